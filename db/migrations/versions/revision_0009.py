"""What a local job was submitted with, as a hash: its request lies in files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("submissions", sa.Column("request_sha256", sa.Text(), nullable=True))
