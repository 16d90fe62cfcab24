"""orchestrator nodes."""

from __future__ import annotations

import datetime

from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column
from orchestrator.controller.nodes import record
from orchestrator.controller.session import contexts
from orchestrator.rows import row_values
from orchestrator.rows.contract import service

COLUMNS = (
    Column("cluster", "name", drop=1),
    Column("node", "name"),
    Column("score"),
    Column("failures", "text"),
    Column("slow_runs", drop=4),
    Column("completed", drop=3),
    Column("last_seen_at", drop=2),
    Column("exclude"),
    Column("reason", "text", drop=5),
)


@commands.command(
    "nodes",
    "orchestrator nodes",
    "orchestrator nodes --since now-7days --json",
    table=COLUMNS,
    changes="nothing",
    prints=("nodes",),
)
def nodes(
    context: contexts.Context,
    since: datetime.datetime | None = option(
        "-S --since",
        "Only what happened since this time: 2026-11-01, yesterday, now-7days.",
        value_types.time,
    ),
    show_all: bool = option("-a --all", "Also nodes without failures and slow runs."),
    form: str = options.form,
) -> None:
    """Show the nodes that jobs failed on or ran slowly on.

    SCORE counts failures whose cause is the node, such as a broken GPU or a lost node, and runs
    that are slower than their repeats on other nodes. Older ones count less. EXCLUDE says which
    nodes jobs should avoid. With `exclude = "auto"` in the table [nodes] of the configuration all
    jobs are submitted without them. REASON says why a node is not excluded in spite of its score.
    """
    rows = [
        row_values.row_of(service.NodeRow, node, node=node.name, exclude=node.is_excluded)
        for node in record.read(context, since)
        if show_all or node.score
    ]
    output.print_rows("nodes", rows, COLUMNS, form, _line)


def _line(row: output.Row) -> output.Row:
    failures = ", ".join(f"{count} {cause}" for cause, count in row["failures"].items())
    # What speaks for an exclusion is in the other columns.
    reason = "" if row["exclude"] else row["reason"]
    return {**row, "failures": failures, "score": f"{row['score']:.2f}", "reason": reason}
