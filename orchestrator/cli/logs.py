"""orchestrator logs."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import options, output, session
from orchestrator.cli.output import terminal
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.logs import following, searching, tailing
from orchestrator.text import escaping, expressions

#: Last lines of each log that --follow prints first, as `tail -f` does.
_FIRST_LINES = 10
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPart:
    """The part of a job's log that is to be read."""

    job: jobs.Job
    path: str
    span: searching.Span = searching.WHOLE
    #: Whether it is the separate error log.
    is_stderr: bool = False


@click.command("logs")
@options.jobs_argument
@options.sweeps_option
@options.option("--all", "With --grep: search the logs of all jobs.", dest="all_")
@options.option("-n --lines", "Print only the last N lines.", click.IntRange(min=0))
@options.option("-f --follow", "Print new lines until the jobs end.")
@options.option("--attempt", "Print only this attempt, from 0.", click.IntRange(min=0, max=10**6))
@options.option("--stderr", "Print the error log, if it is a separate file.")
@options.option("--path", "Print the path of the log.", dest="show_path")
@options.option("--grep", "Print only matching lines; exit with 1 if there are none.", "REGEX")
@options.option("-i --ignore-case", "With --grep: ignore case.")
@options.option(
    "-C --context",
    "With --grep: also print N lines before and after each match.",
    click.IntRange(min=0, max=10_000),
    dest="context_lines",
    default=0,
)
@click.pass_context
def print_logs(
    ctx: click.Context,
    *,
    references: tuple[str, ...],
    sweeps: tuple[str, ...],
    all_: bool,
    lines: int | None,
    follow: bool,
    attempt: int | None,
    stderr: bool,
    show_path: bool,
    grep: str | None,
    ignore_case: bool,
    context_lines: int,
) -> None:
    """Print or search the logs of jobs.

    The log of one job is printed unchanged. Logs of several jobs have a heading each; with --follow
    each line starts with the job ID. REGEX is a regular expression of Python. Each match is printed
    after the job ID and line number, or with --path after the path and line number.

    \b
    Examples:
      orchestrator logs 123 -n 20
      orchestrator logs digits-ddp -f
      orchestrator logs 123 124 --sweep digits-scaling -f
      orchestrator logs --sweep digits-scaling --grep 'loss.*nan' -i -C 2
      orchestrator logs --all --grep 'CUDA out of memory' --path
    """
    if all_ and grep is None:
        raise click.UsageError("--all requires --grep")
    if not (references or sweeps or all_):
        raise click.UsageError("name jobs, or use --sweep, or --all with --grep")
    if grep is not None and (follow or lines is not None):
        raise click.UsageError("--grep reads whole logs: remove --follow and --lines")
    if grep is None and (ignore_case or context_lines):
        raise click.UsageError("--ignore-case and --context require --grep")
    if attempt is not None and (follow or stderr):
        raise click.UsageError("--attempt cannot be combined with --follow or --stderr")
    context = session.open_context(ctx)
    if all_:
        with context.store.reading() as work:
            selected = sorted(work.jobs.find(jobs.JobQuery(limit=None)), key=lambda job: job.row)
    else:
        selected = session.jobs_and_sweeps(context, references, sweeps)
    if grep is not None:
        parts = _searched_parts(context, selected, attempt, stderr)
        try:
            expression = searching.compile_expression(grep, ignore_case=ignore_case)
        except expressions.ExpressionError as exc:
            raise click.UsageError(f"--grep: {grep!r} is not a regular expression: {exc}") from exc
        if not _print_matches(context, parts, expression, context_lines, show_path=show_path):
            ctx.exit(1)
    elif show_path:
        for job in selected:
            if (path := _path(job, stderr)) is not None:
                terminal.print_exactly(f"{path}\n")
            else:
                output.note(_unknown_path(job))
    elif follow and len(selected) > 1:
        _follow_all(context, selected, stderr, lines)
    elif follow:
        _follow_one(context, selected[0], stderr, lines)
    else:
        _print_tails(context, selected, attempt, stderr, lines)


def _path(job: jobs.Job, stderr: bool) -> str | None:
    return job.stderr_path if stderr and job.stderr_path else job.stdout_path


def _parts(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    attempt: int | None,
    stderr: bool,
    *,
    quiet: bool = False,
) -> Iterator[LogPart]:
    """Yield the parts that exist; unless `quiet`, print a message for each that is missing."""

    def report(message: str) -> None:
        if not quiet:
            output.note(message)

    for job in selected:
        path = _path(job, stderr)
        try:
            if path is None:
                report(_unknown_path(job))
            elif attempt is None:
                yield LogPart(job=job, path=path)
            elif (span := _attempt_span(job, path, attempt)) is not None:
                yield LogPart(job=job, path=path, span=span)
            else:
                report(f"the log has no attempt {attempt} of {job.job_id}")
        except errors.NotFoundError:
            report(_missing_file(context, job.row, path or ""))
        except errors.OrchestratorError as exc:
            output.note(f"{naming.name_of(job)}: {exc}")


def _searched_parts(
    context: contexts.Context, selected: Sequence[jobs.Job], attempt: int | None, stderr: bool
) -> Iterator[LogPart]:
    for job in selected:
        yield from _parts(context, [job], attempt, stderr, quiet=len(selected) > 1)
        if job.stderr_path and not stderr and attempt is None:
            yield LogPart(job=job, path=job.stderr_path, is_stderr=True)


def _attempt_span(job: jobs.Job, path: str, attempt: int) -> searching.Span | None:
    if job.tracked_name is not None:
        raise errors.ConflictError("the log of a tracked job does not mark its attempts")
    return searching.attempt_span(path, job, attempt)


def _print_tails(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    attempt: int | None,
    stderr: bool,
    lines: int | None,
) -> None:
    separator = ""
    for part in _parts(context, selected, attempt, stderr):
        try:
            blocks = tailing.tail(part.path, lines, part.span.begin_bytes, part.span.end_bytes)
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
            output.note(_missing_file(context, part.job.row, part.path))


def _with_final_newline(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    last = first
    yield first
    for last in blocks:
        yield last
    if last and not last.endswith(b"\n"):
        yield b"\n"


def _follow_one(context: contexts.Context, job: jobs.Job, stderr: bool, lines: int | None) -> None:
    # It imports everything that talks to Slurm.
    from orchestrator.controller.actions import wait

    path = _path(job, stderr)
    if path is None:
        output.note(_unknown_path(job))
        return
    by_row = {job.row: job}
    blocks = following.follow(
        path, done=lambda: not wait.update(context, by_row), wait=context.clock.sleep, lines=lines
    )
    try:
        _print_blocks(blocks, flush=True)
    except errors.NotFoundError:
        output.note(_missing_file(context, job.row, path))


def _follow_all(
    context: contexts.Context, selected: Sequence[jobs.Job], stderr: bool, lines: int | None
) -> None:
    """Print new lines of several logs, each after its job ID."""
    from orchestrator.controller.actions import wait

    by_row = {job.row: job for job in selected}
    rows = list(by_row)

    def update() -> tuple[bool, Mapping[int, str]]:
        is_live = wait.update(context, by_row)
        paths = {row: _path(job, stderr) for row, job in by_row.items()}
        return is_live, {row: path for row, path in paths.items() if path is not None}

    stdout = terminal.bytes_stream()
    silent = set(rows)
    first_lines = _FIRST_LINES if lines is None else lines
    logs = following.follow_all(update, wait=context.clock.sleep, lines=first_lines)
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
    context: contexts.Context,
    parts: Iterator[LogPart],
    expression: re.Pattern[bytes],
    context_lines: int,
    *,
    show_path: bool,
) -> bool:
    """Print matching lines as grep does, with `:` after a match and `-` after its context.

    Returns whether there are any.
    """
    stdout = terminal.bytes_stream()
    has_matches = False
    for part in parts:
        suffix = " stderr" if part.is_stderr else ""
        name = part.path if show_path else f"{naming.name_of(part.job)}{suffix}"
        if sys.stdout.isatty():
            name = escaping.one_line(name)
        is_first = True
        try:
            for hit in searching.search(
                part.path, expression, around=context_lines, span=part.span
            ):
                if context_lines and (hit.gap or (is_first and has_matches)):
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


def _unknown_path(job: jobs.Job) -> str:
    if job.job_id is None:
        return f"no log yet: @{job.row} has no job ID ({job.state})"
    if job.tracked_name is not None:
        return (
            f"the log of {job.job_id} is unknown: "
            f"`orchestrator track {job.job_id} --log PATH` sets it"
        )
    return f"no log yet: {job.job_id} is {job.state}"


def _missing_file(context: contexts.Context, row: int, path: str) -> str:
    with context.store.reading() as work:
        job = work.jobs.get(row)
        was_read = any(cursor.path == path and cursor.inode for cursor in work.log_cursors.of(row))
    if was_read:
        return f"the log {path} was deleted"
    if job is not None and job.state in jobs.TERMINAL:
        return f"no log: {path} does not exist ({job.state})"
    return f"no log yet: {path}" + (f" ({job.state})" if job else "")
