"""What the shell completes: job IDs, rows and names of the jobs that were seen last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from orchestrator.text import escaping

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: More do not fit on a screen.
MOST = 100
#: Words that mean nothing but themselves to a shell.
_PLAIN = re.compile(r"[A-Za-z0-9@._+-]+")


def job_references(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the jobs that begin so, with their states beside them; the database alone is read."""
    from click.shell_completion import CompletionItem

    from orchestrator import errors, jobs
    from orchestrator.cli import settings
    from orchestrator.controller.session import stores

    # click makes the contexts of the parents without running them: ctx.obj is not set here.
    ctx.obj = {key: value for key, value in ctx.find_root().params.items() if value is not None}
    try:
        configuration = settings.configuration_of(ctx, quiet=True)
        store = stores.of(configuration)
        if not store.exists():
            return []
        try:
            with store.reading() as work:
                found = work.jobs.find(jobs.JobQuery(limit=10 * MOST))
        finally:
            store.close()
    except errors.OrchestratorError:
        # There is no place to tell it: the command itself does.
        return []
    items: dict[str, str] = {}
    for job in found:
        told = f"{job.state} {job.name}"
        words = (
            (job.job_id, f"@{job.row}") if incomplete.startswith("@") else (job.job_id, job.name)
        )
        for word in words:
            # The shell puts it into the command line as it is, unquoted.
            if word and word.startswith(incomplete) and _PLAIN.fullmatch(word):
                items.setdefault(word, told if word != job.name else f"{job.state} {job.job_id}")
    return [
        CompletionItem(word, help=escaping.one_line(told))
        for word, told in list(items.items())[:MOST]
    ]
