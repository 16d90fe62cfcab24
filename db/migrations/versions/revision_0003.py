"""Jobs that were submitted by hand and are tracked: their own name in Slurm."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tracked_name", sa.Text(), nullable=True))
