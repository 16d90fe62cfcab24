"""orchestrator logs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence

import click

from orchestrator import errors, jobs, logs
from orchestrator.cli import completing, log_lines, session, terminal
from orchestrator.controller.session import contexts
from orchestrator.text import escaping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a job's log that is asked for."""

    job: jobs.Job
    path: str
    span: logs.Span
    #: the error log, beside the other
    is_stderr: bool = False


@click.command(short_help="Print the logs of jobs, or search them.")
@click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
)
@click.option("--sweep", "sweeps", multiple=True, metavar="SWEEP", help="All jobs of it.")
@click.option("--all", "everything", is_flag=True, help="With --grep: the logs of all jobs.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="The last N lines; default: all.")
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on as they grow, until the end.")
@click.option("--attempt", type=click.IntRange(min=0, max=10**6), help="Only of this attempt.")
@click.option("--stderr", "stderr_", is_flag=True, help="The error log, where it is its own file.")
@click.option("--path", "path_", is_flag=True, help="Print where the log lies.")
@click.option("--grep", metavar="REGEX", help="Only lines that fit; exit code 1 where none does.")
@click.option("-i", "--ignore-case", is_flag=True, help="With --grep: a is A.")
@click.option(
    "-C",
    "--context",
    "around",
    type=click.IntRange(min=0, max=10_000),
    default=0,
    metavar="N",
    help="With --grep: N lines before and after each too.",
)
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    sweeps: tuple[str, ...],
    everything: bool,
    lines: int | None,
    follow_: bool,
    attempt: int | None,
    stderr_: bool,
    path_: bool,
    grep: str | None,
    ignore_case: bool,
    around: int,
) -> None:
    """Print the logs of jobs, or the lines in them that fit a regular expression (Python's).

    The log of one job is printed as it lies in the file. Those of several have a head each; with
    --follow the job stands before each line. With --grep each line comes behind its job and its
    line number, with --path behind its file.

    \b
    Examples:
      orchestrator logs 123 -n 20
      orchestrator logs digits-ddp -f
      orchestrator logs 123 124 --sweep digits-scaling -f
      orchestrator logs --sweep digits-scaling --grep 'loss.*nan' -i -C 2
      orchestrator logs --all --grep 'CUDA out of memory' --path
    """
    if everything and grep is None:
        raise click.UsageError("--all is for --grep: the logs of all jobs are too much to read")
    if not (references or sweeps or everything):
        raise click.UsageError("name jobs, or --sweep; with --grep also --all")
    if grep is not None and (follow_ or lines is not None):
        raise click.UsageError("--grep reads whole logs: leave out --follow and --lines")
    if grep is None and (ignore_case or around):
        raise click.UsageError("--ignore-case and --context are for --grep")
    if attempt is not None and (follow_ or stderr_):
        raise click.UsageError("--attempt is of a log that is read whole, and of stdout alone")
    context = session.open_context(ctx)
    if everything:
        with context.store.reading() as work:
            found = sorted(work.jobs.find(jobs.JobQuery(limit=None)), key=lambda job: job.row)
    else:
        found = session.jobs_and_sweeps(context, references, sweeps)
    if grep is not None:
        parts = _searched(context, found, attempt, stderr_)
        if not log_lines.search(context, parts, grep, ignore_case, around, path_):
            ctx.exit(1)
    elif path_:
        for job in found:
            if (place := _place(job, stderr_)) is not None:
                terminal.print_exactly(f"{place}\n")
            else:
                context.reporter.info(_no_place(job))
    elif follow_:
        _follow(context, found, stderr_, lines)
    else:
        _tail(context, found, attempt, stderr_, lines)


def _place(job: jobs.Job, stderr_: bool) -> str | None:
    return job.stderr_path if stderr_ and job.stderr_path else job.stdout_path


def _parts(
    context: contexts.Context,
    found: Sequence[jobs.Job],
    attempt: int | None,
    stderr_: bool,
    *,
    quiet: bool,
) -> Iterator[Part]:
    """Yield the logs that there are; `quiet`: nothing is said of jobs that have none."""
    whole = logs.Span(0, None, 0)
    for job in found:
        path, span = _place(job, stderr_), whole
        if path is None:
            if not quiet:
                context.reporter.info(_no_place(job))
            continue
        try:
            if attempt is not None:
                of_attempt = _attempt_span(job, path, attempt)
                if of_attempt is None:
                    if not quiet:
                        context.reporter.info(f"the log has no attempt {attempt} of {job.job_id}")
                    continue
                span = of_attempt
            yield Part(job=job, path=path, span=span)
        except errors.NotFoundError:
            if not quiet:
                context.reporter.info(_missing(context, job.row, path))
        except errors.OrchestratorError as exc:
            context.reporter.info(f"{job.job_id or f'@{job.row}'}: {exc}")


def _searched(
    context: contexts.Context, found: Sequence[jobs.Job], attempt: int | None, stderr_: bool
) -> Iterator[Part]:
    """Yield the logs that there are, the error logs that are files of their own too."""
    for job in found:
        yield from _parts(context, [job], attempt, stderr_, quiet=len(found) > 1)
        if job.stderr_path and not stderr_ and attempt is None:
            span = logs.Span(0, None, 0)
            yield Part(job=job, path=job.stderr_path, span=span, is_stderr=True)


def _attempt_span(job: jobs.Job, path: str, attempt: int) -> logs.Span | None:
    if job.tracked_name is not None:
        raise errors.ConflictError("a job by hand has no banners: its attempts cannot be told")
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    return logs.attempt_span(path, banner, attempt)


def _tail(
    context: contexts.Context,
    found: Sequence[jobs.Job],
    attempt: int | None,
    stderr_: bool,
    lines: int | None,
) -> None:
    several = len(found) > 1
    gap = ""
    for part in _parts(context, found, attempt, stderr_, quiet=False):
        try:
            blocks = logs.tail(part.path, lines, part.span.begin_bytes, part.span.end_bytes)
            if not several:
                _print(blocks, follow_=False)
                continue
            # Opened before its head is printed.
            first = next(blocks, b"")
            path = escaping.one_line(part.path)
            click.echo(f"{gap}==> {log_lines.label(part.job)} {part.job.name}: {path} <==")
            gap = "\n"
            _print(_whole_lines(first, blocks), follow_=False)
        except errors.NotFoundError:
            context.reporter.info(_missing(context, part.job.row, part.path))


def _whole_lines(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks, and a line end where the last one lacks it: a head follows."""
    last = first
    yield first
    for last in blocks:
        yield last
    if last and not last.endswith(b"\n"):
        yield b"\n"


def _follow(
    context: contexts.Context, found: Sequence[jobs.Job], stderr_: bool, lines: int | None
) -> None:
    # What asks Slurm takes as long to load as all the rest.
    from orchestrator.controller.actions import wait

    by_row = {job.row: job for job in found}
    if len(found) > 1:
        log_lines.follow(
            context,
            lambda: wait.update(context, by_row),
            by_row,
            lambda job: _place(job, stderr_),
            lines,
        )
        return
    (job,) = found
    path = _place(job, stderr_)
    if path is None:
        context.reporter.info(_no_place(job))
        return
    blocks = logs.follow(
        path, done=lambda: not wait.update(context, by_row), wait=context.clock.sleep, lines=lines
    )
    try:
        _print(blocks, follow_=True)
    except errors.NotFoundError:
        context.reporter.info(_missing(context, job.row, path))


def _print(blocks: Iterator[bytes], follow_: bool) -> None:
    """Write a log to stdout: as it lies in the file, unless a person reads it."""
    if sys.stdout.isatty():
        for text in logs.for_terminal(blocks, hold=not follow_):
            terminal.unescaped().write(text)
            sys.stdout.flush()
        return
    stdout = terminal.bytes_stream()
    for block in blocks:
        stdout.write(block)
        if follow_:
            stdout.flush()


def _no_place(job: jobs.Job) -> str:
    if job.job_id is None:
        return f"no log yet: @{job.row} has no job ID ({job.state})"
    if job.tracked_name is not None:
        return (
            f"the log of {job.job_id} is not known; `orchestrator track {job.job_id} --log PATH` "
            "names it"
        )
    return f"no log yet: {job.job_id} is {job.state}"


def _missing(context: contexts.Context, row: int, path: str) -> str:
    with context.store.reading() as work:
        job = work.jobs.get(row)
        was_read = any(cursor.path == path and cursor.inode for cursor in work.log_cursors.of(row))
    if was_read:
        return f"the log {path} was deleted"
    if job is not None and job.state in jobs.TERMINAL:
        return f"no log: {path} is not there ({job.state})"
    return f"no log yet: {path}" + (f" ({job.state})" if job else "")
