"""`status --all-hosts`: the jobs of several hosts in one table."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Sequence
from typing import Any

import click

from orchestrator import errors
from orchestrator.cli import output
from orchestrator.cli.output import Column, job_tables
from orchestrator.rows import job_rows
from orchestrator.rows.contract import jobs as contract
from orchestrator.rows.contract import reading

if typing.TYPE_CHECKING:
    from orchestrator.controller.hosts import gathering
    from orchestrator.controller.session import contexts

#: The name of this computer in the table.
HERE = "localhost"
_COLUMNS = (Column("host"), *job_tables.JOB_COLUMNS)
#: The words after the command, in the click context's meta.
_WORDS = "orchestrator.status_words"
#: Of a host's jobs that a table folds; further ones are not sent.
_MAX_FOLDED = 10_000
#: As with --host.
_NO_CONNECTION = 255


class StatusCommand(click.Command):
    """Keeps the words of the command line: other hosts get the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)


def start(context: contexts.Context) -> gathering.Gathering:
    """Begin to connect to all hosts of the configuration. Raises RequestError without one."""
    from orchestrator.controller.hosts import gathering
    from orchestrator.controller.remote import connection

    hosts = context.configuration.hosts
    if not hosts:
        raise errors.RequestError("--all-hosts: no [hosts.NAME] is in the configuration")
    remotes = [connection.remote(name, context.configuration) for name in hosts]
    made = gathering.Gathering(remotes, context.environ)
    click.get_current_context().call_on_close(made.close)
    return made


def print_jobs(
    gathered: gathering.Gathering,
    here: Sequence[dict[str, Any]],
    notes: Sequence[str],
    limit: int,
    form: str,
    *,
    is_folded: bool,
) -> int:
    """Print the jobs of this computer and of the hosts; return the exit code.

    here, notes: rows of this computer, and messages about them. limit: rows of each host.
    """
    words = [word for word in click.get_current_context().meta[_WORDS] if word != "--all-hosts"]
    # One more shows whether there are more.
    asked = _MAX_FOLDED if is_folded else limit + 1
    answers = gathered.answers(
        ["status", *words, "--format", "json", "--limit", str(asked)],
        lambda row: reading.row(row, contract.JobRow),
    )
    rows = [{"host": HERE, **row} for row in here[:limit]]
    shortened = [HERE] if len(here) > limit else []
    for answer in answers:
        theirs = [_readable(row) for row in answer.rows]
        if is_folded:
            theirs = job_rows.fold(theirs, [_fold_key(row) for row in theirs])
        rows += [{"host": answer.name, **row} for row in theirs[:limit]]
        if len(theirs) > limit or len(answer.rows) >= _MAX_FOLDED:
            shortened.append(answer.name)
    output.print_rows("host_jobs", rows, _COLUMNS, form, line=job_rows.job_line)
    for note in notes:
        output.note(f"{HERE}: {note}")
    for answer in answers:
        for note in answer.notes:
            output.note(f"{answer.name}: {note}")
    if shortened:
        output.note(
            f"Only the newest {limit} of {', '.join(shortened)} are shown; --limit changes the "
            "number."
        )
    failed = [answer for answer in answers if answer.error]
    for answer in failed:
        output.note(f"{answer.name}: not shown: {answer.error}")
    return _NO_CONNECTION if failed else 0


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row from JSON as tables need it."""
    at = row["resend_at"]
    return {**row, "resend_at": at and datetime.datetime.fromisoformat(at)}


def _fold_key(row: dict[str, Any]) -> tuple[object, ...]:
    return row["array_job_id"] or row["row"], row["state"], row["reason"], row["exit_code"]
