"""orchestrator explain."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import jobs
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.session import contexts, selection
from orchestrator.rows import explanation_rows, explanation_texts

COLUMNS = ("job_id", "name", "state", "cause", "summary", "first_failing_rank")


@commands.command(
    "explain",
    "orchestrator explain 123",
    "orchestrator explain --log slurm-123.out --json",
    changes="nothing",
    prints=("explanation",),
)
def explain(
    ctx: click.Context,
    references: tuple[str, ...] = options.references,
    log: str | None = option(
        "--log", "Explain a log file instead of a job.", value_types.INPUT_FILE
    ),
    attempt: int | None = option(
        "--attempt", "Explain this attempt, from 0. Default: the newest.", value_types.INDEX
    ),
    rule_files: tuple[str, ...] = option(
        "--rules",
        "File with rules that precede the built-in ones (docs/explain.md).",
        value_types.INPUT_FILE,
        multiple=True,
    ),
    refresh: bool | None = options.refresh,
    form: str | None = options.optional_form,
) -> None:
    """Explain why a job failed or is pending, and how to fix it.

    The evidence is shown with file, line and text. If several ranks failed, the first error counts.
    For a pending job: what it is waiting for, and whether it can start at all. For an array: the
    tasks that failed.
    """
    if bool(references) == (log is not None):
        raise click.UsageError("specify a job, or a log with --log FILE")
    rules = explanations.rules_with(rule_files)
    explained: list[explanation_rows.Explained] = []
    if log is not None:
        if attempt is not None:
            raise click.UsageError("--attempt requires a job")
        explained.append(
            explanation_rows.Explained(explanation=explanations.explain_log(log, rules))
        )
    else:
        context = session.open_context(ctx)
        on_demand.refresh(context, refresh)
        selected: list[jobs.Job] = []
        for reference in references:
            selected += explanations.to_explain(selection.jobs_of(context, reference))
        explained = explanation_rows.explained(context, selected, rules, attempt)
    if form in (None, "table"):
        for line in explanation_texts.lines(explained):
            click.echo(line)
    else:
        output.print_rows("explanation", list(map(explanation_rows.row, explained)), COLUMNS, form)
    for reason in rules.slow.values():
        output.note(reason)


def lines(context: contexts.Context, failed: Sequence[jobs.Job]) -> list[str]:
    """Return the text that `explain` prints about jobs."""
    explained = explanation_rows.explained(context, failed, explanations.rules_with(()))
    return list(explanation_texts.lines(explained))
