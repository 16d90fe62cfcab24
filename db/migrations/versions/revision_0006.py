"""The numbers of a line are one row; `metrics` becomes a view that shows a row for each of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_PLACES = range(8)
_OF_A_SET = "job_row, log_id, attempt, source, rank, world_size"


def upgrade() -> None:
    op.create_table(
        "metric_sets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("log_id", sa.Integer(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("world_size", sa.BigInteger(), nullable=True),
        *(sa.Column(f"name{place}", sa.Text(), nullable=place > 0) for place in _PLACES),
        *(sa.Column(f"unit{place}", sa.Text(), nullable=place > 0) for place in _PLACES),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_metric_sets_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_sets")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_metric_sets_job_row"), "metric_sets", ["job_row"])
    op.create_table(
        "metric_lines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("set_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("line", sa.BigInteger(), nullable=True),
        *(sa.Column(f"value{place}", sa.Double(), nullable=True) for place in _PLACES),
        sa.ForeignKeyConstraint(
            ["set_id"],
            ["metric_sets.id"],
            name=op.f("fk_metric_lines_set_id_metric_sets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_lines")),
        sqlite_autoincrement=True,
    )
    # What was stored before has a row for each number, in the order of reading.
    op.execute(
        f"INSERT INTO metric_sets ({_OF_A_SET}, name0, unit0) "
        f"SELECT {_OF_A_SET}, name, unit FROM metrics GROUP BY {_OF_A_SET}, name, unit"
    )
    # Without it each number is held against all sets of its job: a million numbers of 64 ranks
    # took more than five minutes, and take eight seconds of processor time.
    op.create_index("ix_metric_sets_upgrade", "metric_sets", [*_OF_A_SET.split(", "), "name0"])
    # SQLite has PostgreSQL's words since 3.39 only.
    same = "IS" if op.get_bind().dialect.name == "sqlite" else "IS NOT DISTINCT FROM"
    op.execute(
        "INSERT INTO metric_lines (id, set_id, step, epoch, time, line, value0) "
        "SELECT m.id, s.id, m.step, m.epoch, m.time, m.line, m.value "
        "FROM metrics m JOIN metric_sets s ON s.job_row = m.job_row "
        f"AND s.log_id {same} m.log_id AND s.attempt = m.attempt AND s.source = m.source "
        f"AND s.rank {same} m.rank AND s.world_size {same} m.world_size "
        "AND s.name0 = m.name AND s.unit0 = m.unit ORDER BY m.id"
    )
    op.drop_index("ix_metric_sets_upgrade", "metric_sets")
    op.create_index(op.f("ix_metric_lines_set_id"), "metric_lines", ["set_id"])
    op.drop_table("metrics")
    op.execute(f"CREATE VIEW metrics AS {' UNION ALL '.join(map(_numbers, _PLACES))}")


def _numbers(place: int) -> str:
    return (
        f"SELECT l.id * {len(_PLACES)} + {place} AS id, s.job_row AS job_row, "
        f"s.name{place} AS name, l.value{place} AS value, s.unit{place} AS unit, "
        "l.step AS step, l.epoch AS epoch, s.rank AS rank, s.world_size AS world_size, "
        "l.time AS time, s.attempt AS attempt, s.source AS source, s.log_id AS log_id, "
        "l.line AS line FROM metric_sets s JOIN metric_lines l ON l.set_id = s.id "
        f"WHERE s.name{place} IS NOT NULL"
    )
