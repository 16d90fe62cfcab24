"""orchestrator logs."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import terminal
from orchestrator.controller.logs import reading
from orchestrator.controller.session import contexts, selection
from orchestrator.jobs import naming
from orchestrator.logs import following, searching, tailing
from orchestrator.text import escaping, expressions

#: Last lines of each log that --follow prints first, as `tail -f` does.
_FIRST_LINES = 10
_LINE_COLUMNS = (
    output.Column("job_id"),
    output.Column("line"),
    output.Column("text", "text"),
    output.Column("path", "parts", drop=1),
)
#: Of rows, which are printed while the log is read.
_PAGE_LINES = 10_000
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogOptions:
    lines: int | None = option("-n --lines", "Print only the last N lines.", click.IntRange(min=0))
    follow: bool = option("-f --follow", "Print new lines until the jobs end.")
    attempt: int | None = option("--attempt", "Print only this attempt, from 0.", value_types.INDEX)
    stderr: bool = option("--stderr", "Print the error log, if it is a separate file.")
    show_path: bool = option("--path", "Print the path of the log.")
    grep: str | None = option(
        "--grep", "Print only matching lines; exit with 1 if there are none.", "REGEX"
    )
    ignore_case: bool = option("-i --ignore-case", "With --grep: ignore case.")
    context_lines: int = option(
        "-C --context",
        "With --grep: also print N lines before and after each match.",
        click.IntRange(min=0, max=10_000),
        default=0,
    )


@commands.command(
    "logs",
    "orchestrator logs 123 -n 20",
    "orchestrator logs digits-ddp -f",
    "orchestrator logs 123 124 --sweep digits-scaling -f",
    "orchestrator logs --sweep digits-scaling --grep 'loss.*nan' -i -C 2",
    "orchestrator logs --all --grep 'CUDA out of memory' --path",
    changes="nothing",
    prints=("log_lines",),
)
def print_logs(
    ctx: click.Context,
    references: tuple[str, ...] = options.references,
    sweeps: tuple[str, ...] = options.sweeps,
    all_: bool = option("--all", "With --grep: search the logs of all jobs."),
    shown: LogOptions = commands.record(LogOptions),
    form: str | None = options.optional_form,
) -> None:
    """Print or search the logs of jobs.

    The log of one job is printed unchanged. Logs of several jobs have a heading each; with --follow
    each line starts with the job ID. REGEX is a regular expression of Python. Each match is printed
    after the job ID and line number, or with --path after the path and line number. With --json the
    whole log is read, also with --lines, because each line has its number.
    """
    grep = shown.grep
    options.refuse(
        {
            "--all requires --grep": all_ and grep is None,
            "specify jobs, or use --sweep, or --all with --grep": not (
                references or sweeps or all_
            ),
            "--follow prints lines as they arrive: remove --json and --format": form
            and shown.follow,
            "--json includes the path of each line: remove --path": (
                form and grep is None and shown.show_path
            ),
            "--grep reads whole logs: remove --follow and --lines": (
                grep is not None and (shown.follow or shown.lines is not None)
            ),
            "--ignore-case and --context require --grep": (
                grep is None and (shown.ignore_case or shown.context_lines)
            ),
            "--attempt cannot be combined with --follow or --stderr": (
                shown.attempt is not None and (shown.follow or shown.stderr)
            ),
        }
    )
    context = session.open_context(ctx)
    if all_:
        with context.store.reading() as work:
            selected = sorted(work.jobs.find(jobs.JobQuery(limit=None)), key=lambda job: job.row)
    else:
        selected = selection.jobs_and_sweeps(context, references, sweeps)
    if grep is not None:
        try:
            expression = searching.compile_expression(grep, ignore_case=shown.ignore_case)
        except expressions.ExpressionError as exc:
            raise click.UsageError(f"--grep: {grep!r} is not a regular expression: {exc}") from exc
        parts = _parts(context, selected, shown)
        if form is not None:
            has_matches = _print_rows(context, parts, expression, shown, form)
        else:
            has_matches = _print_matches(parts, expression, shown)
        if not has_matches:
            ctx.exit(1)
    elif form is not None:
        _print_rows(context, _parts(context, selected, shown), None, shown, form)
    elif shown.show_path:
        for job in selected:
            if (path := reading.path_of(job, stderr=shown.stderr)) is not None:
                terminal.print_exactly(f"{path}\n")
            else:
                output.note(reading.missing(context, job, None))
    elif shown.follow and len(selected) > 1:
        _follow_all(context, selected, shown)
    elif shown.follow:
        _follow_one(context, selected[0], shown)
    else:
        _print_tails(context, selected, shown)


def _parts(
    context: contexts.Context, selected: Sequence[jobs.Job], shown: LogOptions
) -> Iterator[reading.LogPart]:
    """Yield the parts that exist, for --grep with error logs; print a message for missing ones.

    A search of several logs does not mention missing ones.
    """
    is_search = shown.grep is not None
    for job in selected:
        try:
            yield reading.part(context, job, stderr=shown.stderr, attempt=shown.attempt)
        except errors.NotFoundError as exc:
            if not (is_search and len(selected) > 1):
                output.note(str(exc))
        except errors.OrchestratorError as exc:
            output.note(f"{naming.name_of(job)}: {exc}")
        if is_search and job.stderr_path and not shown.stderr and shown.attempt is None:
            yield reading.LogPart(job=job, path=job.stderr_path, is_stderr=True)


def _print_tails(
    context: contexts.Context, selected: Sequence[jobs.Job], shown: LogOptions
) -> None:
    separator = ""
    for part in _parts(context, selected, shown):
        try:
            blocks = tailing.tail(
                part.path, shown.lines, part.span.begin_bytes, part.span.end_bytes
            )
            if len(selected) > 1:
                # Open the file before its heading is printed.
                first = next(blocks, b"")
                path = escaping.one_line(part.path)
                name = naming.name_of(part.job)
                click.echo(f"{separator}==> {name} {part.job.name}: {path} <==")
                separator = "\n"
                blocks = _with_final_newline(first, blocks)
            _print_blocks(blocks)
        except errors.NotFoundError:
            output.note(reading.missing(context, part.job, part.path))


def _with_final_newline(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    last = first
    yield first
    for last in blocks:
        yield last
    if last and not last.endswith(b"\n"):
        yield b"\n"


def _follow_one(context: contexts.Context, job: jobs.Job, shown: LogOptions) -> None:
    path, by_row = reading.path_of(job, stderr=shown.stderr), {job.row: job}
    try:
        if path is None:
            raise errors.NotFoundError
        blocks = following.follow(
            path,
            done=lambda: not reading.update(context, by_row),
            wait=context.clock.sleep,
            lines=shown.lines,
        )
        _print_blocks(blocks, flush=True)
    except errors.NotFoundError:
        output.note(reading.missing(context, job, path))


def _follow_all(context: contexts.Context, selected: Sequence[jobs.Job], shown: LogOptions) -> None:
    """Print new lines of several logs, each after its job ID."""
    by_row = {job.row: job for job in selected}
    rows = list(by_row)
    stdout = terminal.bytes_stream()
    silent = set(rows)
    first_lines = _FIRST_LINES if shown.lines is None else shown.lines
    logs = reading.follow(context, by_row, lines=first_lines, stderr=shown.stderr)
    for row, new_lines in logs:
        silent.discard(row)
        width = max(len(naming.name_of(job)) for job in by_row.values())
        head = f"{naming.name_of(by_row[row]):<{width}} | "
        head = _coloured(head, _COLOURS[rows.index(row) % len(_COLOURS)])
        lines_out = (b"%s%s\n" % (head.encode(), _displayed(line)) for line in new_lines)
        stdout.write(b"".join(lines_out))
        stdout.flush()
    for row in sorted(silent, key=rows.index):
        job = by_row[row]
        output.note(f"{naming.name_of(job)}: nothing was printed ({job.state})")


def _print_matches(
    parts: Iterator[reading.LogPart], expression: re.Pattern[bytes], shown: LogOptions
) -> bool:
    """Print matching lines as grep does, with `:` after a match and `-` after its context.

    Returns whether there are any.
    """
    stdout = terminal.bytes_stream()
    has_matches = False
    for part in parts:
        suffix = " stderr" if part.is_stderr else ""
        name = part.path if shown.show_path else f"{naming.name_of(part.job)}{suffix}"
        if sys.stdout.isatty():
            name = escaping.one_line(name)
        is_first = True
        try:
            for hit in searching.search(
                part.path, expression, around=shown.context_lines, span=part.span
            ):
                if shown.context_lines and (hit.gap or (is_first and has_matches)):
                    stdout.write(b"--\n")
                is_first = False
                has_matches = True
                mark = ":" if hit.fits else "-"
                head = f"{name}{mark}{hit.number}{mark}"
                head = _coloured(head, "cyan" if hit.fits else "bright_black")
                encoded = head.encode(errors="surrogateescape")
                stdout.write(b"%s%s\n" % (encoded, _displayed(hit.text)))
        except errors.NotFoundError:
            # The job has not started, or the log was deleted meanwhile.
            continue
        except errors.OrchestratorError as exc:
            output.note(f"{naming.name_of(part.job)}: {exc}")
    return has_matches


def _print_rows(
    context: contexts.Context,
    parts: Iterator[reading.LogPart],
    expression: re.Pattern[bytes] | None,
    shown: LogOptions,
    form: str,
) -> bool:
    """Print lines as rows: all, the last ones, or those that match and their context.

    Returns whether there are any.
    """
    from orchestrator.rows import row_values
    from orchestrator.rows.contract import jobs as contract

    def rows(part: reading.LogPart) -> Iterator[dict[str, object]]:
        hits = searching.search(part.path, expression, around=shown.context_lines, span=part.span)
        for hit in hits if shown.lines is None else collections.deque(hits, shown.lines):
            yield row_values.row_of(
                contract.LogLineRow,
                part.job,
                path=part.path,
                is_stderr=part.is_stderr,
                line=hit.number,
                is_match=hit.fits,
                text=hit.text.decode(errors="replace"),
            )

    def pages() -> Iterator[list[dict[str, object]]]:
        for part in parts:
            of_part = rows(part)
            try:
                while page := list(itertools.islice(of_part, _PAGE_LINES)):
                    yield page
            except errors.NotFoundError:
                # The job has not started, or the log was deleted meanwhile.
                if expression is None:
                    output.note(reading.missing(context, part.job, part.path))
            except errors.OrchestratorError as exc:
                output.note(f"{naming.name_of(part.job)}: {exc}")

    return output.print_pages("log_lines", pages(), _LINE_COLUMNS, form) > 0


def _coloured(head: str, colour: str) -> str:
    is_coloured = output.is_drawable() and not os.environ.get("NO_COLOR")
    return click.style(head, fg=colour) if is_coloured else head


def _displayed(line: bytes) -> bytes:
    """Return a line unchanged, or on a terminal without control characters."""
    if not sys.stdout.isatty():
        return line
    # Only the last state of a progress bar: a carriage return would overwrite the job ID.
    newest = line.rstrip(b"\r").rpartition(b"\r")[2]
    return "".join(tailing.for_terminal([newest], hold=True)).encode()


def _print_blocks(blocks: Iterator[bytes], *, flush: bool = False) -> None:
    """Write a log to stdout, unchanged unless it is a terminal."""
    if sys.stdout.isatty():
        for text in tailing.for_terminal(blocks, hold=not flush):
            terminal.unescaped().write(text)
            sys.stdout.flush()
        return
    stdout = terminal.bytes_stream()
    for block in blocks:
        stdout.write(block)
        if flush:
            stdout.flush()
