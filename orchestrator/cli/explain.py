"""orchestrator explain."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence

import click

from orchestrator import diagnosis, jobs, recovery
from orchestrator.cli import completing, output, session
from orchestrator.controller.diagnosis import explain
from orchestrator.controller.recovery import chains
from orchestrator.controller.resubmission import resend
from orchestrator.text import escaping

COLUMNS = ("job_id", "name", "state", "cause", "summary", "first_failing_rank")
_TRACEBACK_LINES = 24
#: Details that the sentences tell already.
_FOR_PROGRAMS = frozenset(
    {
        *("rule", "state", "other_lines"),
        *("waiting", "reason", "can_start", "expected_start", "jobs_before"),
    }
)


@click.command(short_help="Tell why a job failed or waits, and what helps.")
@click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
)
@click.option(
    "--log",
    "log_",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Explain a log from anywhere; no job is needed.",
)
@click.option(
    "--attempt", type=click.IntRange(min=0, max=10**9), help="This attempt; default: the newest."
)
@click.option(
    "--rules",
    "rule_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Rules of your own, before those that ship (docs/explain.md). May be repeated.",
)
@session.refresh_options
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    log_: str | None,
    attempt: int | None,
    rule_files: tuple[str, ...],
    refresh_: bool | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """Tell why a job failed, what shows it (file, line, text), and what to change.

    Of several ranks the first one's error counts, and not what the others print after it. Of a
    job that waits: what for, and whether it can ever start. Of an array: its tasks that failed.

    \b
    Examples:
      orchestrator explain 123
      orchestrator explain --log slurm-123.out --json
    """
    if bool(references) == (log_ is not None):
        raise click.UsageError("name a job, or a log with --log FILE")
    chosen = format_ or ("json" if as_json else "table")
    rules = explain.rules_with(rule_files)
    if log_ is not None:
        if attempt is not None:
            raise click.UsageError("--attempt is for jobs")
        facts = explain.log_facts(log_, rules)
        _put([(None, diagnosis.diagnose(facts))], chosen)
        _report_slow(rules)
        return
    context = session.open_context(ctx)
    if refresh_ is not False:
        resend.refresh_or_warn(context, floor_seconds=0 if refresh_ else None)
    found = [job for reference in references for job in _worth(session.jobs_of(context, reference))]
    told = [(job, explain.explain(context, job, rules, attempt=attempt)) for job in found]
    _put(told, chosen, chains.decisions(context, found, attempt=attempt))
    _report_slow(rules)


def _report_slow(rules: diagnosis.Rules) -> None:
    for text in rules.slow.values():
        output.say(text)


def _worth(tasks: Sequence[jobs.Job]) -> Sequence[jobs.Job]:
    """Return the tasks of an array that failed; its first where none did."""
    failed = [task for task in tasks if explain.is_failed(task)]
    return failed or tasks[:1]


_NOTHING_DECIDED: Mapping[int, recovery.StoredDecision] = types.MappingProxyType({})


def _put(
    told: Sequence[tuple[jobs.Job | None, diagnosis.Explanation]],
    chosen: str,
    decided: Mapping[int, recovery.StoredDecision] = _NOTHING_DECIDED,
) -> None:
    if chosen != "table":
        rows = [_row(job, one, decided.get(job.row) if job else None) for job, one in told]
        output.items("explanation", rows, COLUMNS, chosen)
        return
    # The tasks of an array mostly fail of the same: each cause is explained once.
    groups: dict[tuple[object, str], list[tuple[jobs.Job | None, diagnosis.Explanation]]] = {}
    for job, one in told:
        groups.setdefault((one.cause, one.summary), []).append((job, one))
    for place, group in enumerate(groups.values()):
        if place:
            click.echo()
        _print(group[0][0], group[0][1], [job for job, _ in group[1:] if job])
        then = {decided[job.row].detail: None for job, _ in group if job and job.row in decided}
        _field("Then", list(then))


def _row(
    job: jobs.Job | None,
    told: diagnosis.Explanation,
    decided: recovery.StoredDecision | None,
) -> dict[str, object]:
    row: dict[str, object] = {
        "job_id": None if job is None else job.job_id,
        "row": None if job is None else job.row,
        "name": None if job is None else job.name,
        "state": None if job is None else str(job.state),
        "cause": None if told.cause is None else str(told.cause),
        "summary": told.summary,
        "evidence": [_evidence(one) for one in told.evidence],
        "cures": _cures(job, told),
        "first_failing_rank": told.first_failing_rank,
        "traceback": None if told.traceback is None else _traceback(told.traceback),
    }
    if told.cause is not None:
        kind = diagnosis.kind_of(told.cause)
        row |= {"title": kind.title, "acts": str(kind.acts), "retry": str(kind.retry)}
    row["details"] = dict(told.details)
    row["then"] = None if decided is None else decided.detail
    row["also"] = [
        {
            "cause": str(one.cause),
            "rule": one.rule,
            "summary": one.summary or diagnosis.kind_of(one.cause).title,
            "warning": one.level is diagnosis.Level.WARNING,
            **_evidence(one.evidence),
        }
        for one in told.also
    ]
    return row


def _cures(job: jobs.Job | None, told: diagnosis.Explanation) -> list[str]:
    """Return the cures, with the job's own ID where they say JOB."""
    if job is None:
        return list(told.cures)
    name = job.job_id or f"@{job.row}"
    return [re.sub(r"(?<![-\w])JOB\b", name, cure) for cure in told.cures]


def _evidence(one: diagnosis.Evidence) -> dict[str, object]:
    return {"path": one.path, "line": one.line, "text": one.text, "source": str(one.source)}


def _traceback(one: diagnosis.Traceback) -> Mapping[str, object]:
    frame = one.own_frame
    own = None if frame is None else {"path": frame.path, "line": frame.line, "code": frame.code}
    return {
        "path": one.path,
        "first_line": one.first_line,
        "last_line": one.last_line,
        "rank": one.rank,
        "exception": one.exception,
        "message": one.message,
        "own_frame": own,
        "lines": list(one.lines),
    }


def _print(
    job: jobs.Job | None,
    told: diagnosis.Explanation,
    others: Sequence[jobs.Job],
) -> None:
    if job is not None:
        output.field("Job", f"{job.job_id or '-'} (@{job.row}) {job.name}, {job.state}", width=11)
    if others:
        names = ", ".join(other.job_id or f"@{other.row}" for other in others[:20])
        more = f" and {len(others) - 20} more" if len(others) > 20 else ""
        click.echo(f"{'The same:':<11}{names}{more}")
    rank = "" if told.first_failing_rank is None else f" (first on rank {told.first_failing_rank})"
    cause = "" if told.cause is None else f"{told.cause}: "
    _field("Cause" if told.cause else "State", [f"{cause}{told.summary}{rank}"])
    _field("Evidence", [_place(one) for one in told.evidence])
    if told.traceback is not None:
        _show_traceback(told.traceback)
    if told.cures:
        _field("To do", [f"- {cure}" for cure in _cures(job, told)])
    if told.also:
        _field("Also", [_beside(one) for one in told.also])
    for name, value in told.details.items():
        if name in _FOR_PROGRAMS:
            continue
        _field(name.replace("_", " ").capitalize(), [output.cell(value)])


def _field(name: str, lines: Sequence[str]) -> None:
    for place, line in enumerate(lines):
        head = f"{name + ':':<11}" if place == 0 else " " * 11
        if len(head.rstrip()) > 10:
            click.echo(head.rstrip())
            head = " " * 11
        click.echo(f"{head}{escaping.visible(line)}")


def _place(one: diagnosis.Evidence) -> str:
    where = "" if one.path is None else f"{one.path}:{one.line}: "
    said = "Slurm says " if one.path is None and one.source is diagnosis.Source.SLURM else ""
    return f"{where}{said}{one.text}"


def _beside(one: diagnosis.Finding) -> str:
    what = one.summary or diagnosis.kind_of(one.cause).title
    head = "warning" if one.level is diagnosis.Level.WARNING else str(one.cause)
    return f"{head}: {what} ({one.evidence.path}:{one.evidence.line})"


def _show_traceback(one: diagnosis.Traceback) -> None:
    rank = "" if one.rank is None else f" of rank {one.rank}"
    click.echo(f"Traceback{rank} ({escaping.visible(one.path)}:{one.first_line}):")
    lines = list(one.lines)
    if len(lines) > _TRACEBACK_LINES:
        half = _TRACEBACK_LINES // 2
        left = len(lines) - 2 * half
        lines = [*lines[:half], f"  ... {left} lines ...", *lines[-half:]]
    for line in lines:
        click.echo(f"  {escaping.visible(line)}")
