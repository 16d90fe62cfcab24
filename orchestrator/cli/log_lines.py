"""Lines of several jobs' logs, each behind its job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import click

from orchestrator import errors, jobs, logs
from orchestrator.cli import output, terminal
from orchestrator.controller.session import contexts
from orchestrator.text import escaping

#: Lines of each log that are shown first, as tail -f shows them.
FIRST_LINES = 10
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class Part(Protocol):
    """A part of a job's log."""

    @property
    def job(self) -> jobs.Job: ...
    @property
    def path(self) -> str: ...
    @property
    def is_stderr(self) -> bool: ...
    @property
    def span(self) -> logs.Span: ...


def label(job: jobs.Job) -> str:
    """Return what a job is called at the head of a line."""
    return job.job_id or f"@{job.row}"


def follow(
    context: contexts.Context,
    update: Callable[[], bool],
    by_row: Mapping[int, jobs.Job],
    place: Callable[[jobs.Job], str | None],
    lines: int | None,
) -> None:
    """Print lines as they come, until all jobs have ended; `update` brings `by_row` up to date."""

    def look() -> tuple[bool, Mapping[int, str]]:
        is_live = update()
        places = {row: place(job) for row, job in by_row.items()}
        return is_live, {row: path for row, path in places.items() if path is not None}

    stdout = terminal.bytes_stream()
    rows = list(by_row)
    seen = set()
    first = FIRST_LINES if lines is None else lines
    for found in logs.follow_all(look, wait=context.clock.sleep, lines=first):
        seen.add(found.key)
        wide = max(len(label(job)) for job in by_row.values())
        head = f"{label(by_row[found.key]):<{wide}} | "
        if _is_coloured():
            head = click.style(head, fg=_COLOURS[rows.index(found.key) % len(_COLOURS)])
        encoded = head.encode()
        shown = (b"%s%s\n" % (encoded, _shown(line)) for line in found.lines)
        stdout.write(b"".join(shown))
        stdout.flush()
    for row in rows:
        if row not in seen:
            context.reporter.info(
                f"{label(by_row[row])}: nothing was printed ({by_row[row].state})"
            )


def search(
    context: contexts.Context,
    parts: Iterable[Part],
    expression: str,
    ignore_case: bool,
    around: int,
    by_path: bool,
) -> bool:
    """Print the lines that fit, each behind its job or file and its number; false where none is."""
    try:
        wanted = logs.compile_expression(expression, ignore_case=ignore_case)
    except logs.BadExpressionError as exc:
        raise click.UsageError(f"--grep: {expression!r} is no regular expression: {exc}") from exc
    some = False
    stdout = terminal.bytes_stream()
    for part in parts:
        name = part.path if by_path else label(part.job) + (" stderr" if part.is_stderr else "")
        if sys.stdout.isatty():
            name = escaping.one_line(name)
        is_first = True
        # As grep writes it: `:` beside what fits, `-` beside its surroundings.
        try:
            for hit in logs.search(part.path, wanted, around=around, span=part.span):
                if around and (hit.gap or (is_first and some)):
                    stdout.write(b"--\n")
                is_first = False
                mark = ":" if hit.fits else "-"
                head = f"{name}{mark}{hit.number}{mark}"
                if _is_coloured():
                    head = click.style(head, fg="cyan" if hit.fits else "bright_black")
                encoded = head.encode(errors="surrogateescape")
                stdout.write(b"%s%s\n" % (encoded, _shown(hit.text)))
                some = True
        except errors.NotFoundError:
            # Not begun, or deleted since: there is nothing to find.
            continue
        except errors.OrchestratorError as exc:
            context.reporter.info(f"{label(part.job)}: {exc}")
    return some


def _is_coloured() -> bool:
    return output.is_drawable() and not os.environ.get("NO_COLOR")


def _shown(line: bytes) -> bytes:
    """Return a line as it is, or on a terminal as one that can do nothing to it."""
    if not sys.stdout.isatty():
        return line
    # Of a progress bar the newest state: a carriage return would go back over the job.
    newest = line.rstrip(b"\r").rpartition(b"\r")[2]
    return "".join(logs.for_terminal([newest], hold=True)).encode()
