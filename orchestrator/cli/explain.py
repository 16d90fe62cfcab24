"""orchestrator explain."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from orchestrator import jobs, recovery
from orchestrator.cli import commands, options, output, session, value_types
from orchestrator.cli.commands import option
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.prune import marks
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.diagnosis import causes, log_rules, records
from orchestrator.jobs import naming
from orchestrator.text import escaping

COLUMNS = ("job_id", "name", "state", "cause", "summary", "first_failing_rank")
_MAX_TRACEBACK_LINES = 24
_MAX_NAMES = 20
_INDENT = 11
#: Details that the text already contains.
_HIDDEN_DETAILS = frozenset(
    {
        *("rule", "state", "other_lines", "rank_exit_code"),
        *("waiting", "reason", "can_start", "expected_start", "jobs_before"),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Explained:
    #: None: a log without a job
    job: jobs.Job | None = None
    explanation: records.Explanation
    #: Of a recovery rule, after this failure.
    decision: recovery.StoredDecision | None = None
    #: that the run folder was pruned; "": it was not
    pruned: str = ""

    @property
    def fixes(self) -> list[str]:
        """The fixes, with the job's ID in place of JOB."""
        if self.job is None:
            return list(self.explanation.cures)
        name = naming.name_of(self.job)
        return [re.sub(r"(?<![-\w])JOB\b", name, fix) for fix in self.explanation.cures]


@commands.command(
    "explain", "orchestrator explain 123", "orchestrator explain --log slurm-123.out --json"
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
    explained: list[_Explained] = []
    if log is not None:
        if attempt is not None:
            raise click.UsageError("--attempt requires a job")
        explained.append(_Explained(explanation=explanations.explain_log(log, rules)))
    else:
        context = session.open_context(ctx)
        session.refresh(context, refresh)
        selected: list[jobs.Job] = []
        for reference in references:
            tasks = options.jobs_of(context, reference)
            failed = [task for task in tasks if explanations.is_failed(task)]
            selected += failed or tasks[:1]
        explained = _explained(context, selected, rules, attempt)
    if form in (None, "table"):
        for line in _texts(explained):
            click.echo(line)
    else:
        output.print_rows("explanation", list(map(_row, explained)), COLUMNS, form)
    for reason in rules.slow.values():
        output.note(reason)


def lines(context: contexts.Context, failed: Sequence[jobs.Job]) -> list[str]:
    """Return the text that `explain` prints about jobs."""
    return list(_texts(_explained(context, failed, explanations.rules_with(()))))


def _explained(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    rules: log_rules.Rules,
    attempt: int | None = None,
) -> list[_Explained]:
    decisions = chains.decisions(context, selected, attempt=attempt)
    return [
        _Explained(
            job=job,
            explanation=explanations.explain(context, job, rules, attempt=attempt),
            decision=decisions.get(job.row),
            pruned=marks.note(context, job),
        )
        for job in selected
    ]


def _row(explained: _Explained) -> dict[str, object]:
    job, explanation, decision = explained.job, explained.explanation, explained.decision
    traceback = explanation.traceback
    row: dict[str, object] = {
        **output.fields_of(job, ("job_id", "row", "name", "state")),
        **output.fields_of(explanation, ("cause", "summary")),
        "evidence": list(map(_evidence, explanation.evidence)),
        "cures": explained.fixes,
        "first_failing_rank": explanation.first_failing_rank,
        "traceback": traceback and _traceback(traceback),
    }
    if explanation.cause is not None:
        row |= output.fields_of(causes.known()[explanation.cause], ("title", "acts", "retry"))
    return {
        **row,
        "details": dict(explanation.details),
        "then": decision and decision.detail,
        "also": [
            {
                **output.fields_of(finding, ("cause", "rule")),
                "summary": _summary(finding),
                "warning": finding.level is records.Level.WARNING,
                **_evidence(finding.evidence),
            }
            for finding in explanation.also
        ],
    }


def _evidence(evidence: records.Evidence) -> dict[str, object]:
    return output.fields_of(evidence, ("path", "line", "text", "source"))


def _summary(finding: records.Finding) -> str:
    return finding.summary or causes.known()[finding.cause].title


def _traceback(traceback: records.Traceback) -> Mapping[str, object]:
    names = ("path", "first_line", "last_line", "rank", "exception", "message")
    frame = traceback.own_frame
    return {
        **output.fields_of(traceback, names),
        "own_frame": frame and output.fields_of(frame, ("path", "line", "code")),
        "lines": list(traceback.lines),
    }


def _texts(explained: Sequence[_Explained]) -> Iterator[str]:
    # The tasks of an array often fail for the same reason, which is printed once.
    groups: dict[tuple[object, str], list[_Explained]] = {}
    for item in explained:
        key = (item.explanation.cause, item.explanation.summary)
        groups.setdefault(key, []).append(item)
    for number, group in enumerate(groups.values()):
        if number:
            yield ""
        yield from map(escaping.visible, _lines(group))


def _lines(group: Sequence[_Explained]) -> Iterator[str]:
    job, explanation = group[0].job, group[0].explanation
    if job is not None:
        yield from _field("Job", [f"{job.job_id or '-'} (@{job.row}) {job.name}, {job.state}"])
    if same := [item.job for item in group[1:] if item.job]:
        names = ", ".join(map(naming.name_of, same[:_MAX_NAMES]))
        more = f" and {len(same) - _MAX_NAMES} more" if len(same) > _MAX_NAMES else ""
        yield from _field("The same", [f"{names}{more}"])
    first_rank = explanation.first_failing_rank
    is_named = first_rank is None or f"rank {first_rank} " in explanation.summary
    rank = "" if is_named else f" (first on rank {first_rank})"
    cause = "" if explanation.cause is None else f"{explanation.cause}: "
    yield from _field("Cause" if cause else "State", [f"{cause}{explanation.summary}{rank}"])
    if group[0].pruned:
        yield from _field("Note", [f"{group[0].pruned}, and with it its logs"])
    yield from _field("Evidence", map(_evidence_text, explanation.evidence))
    if explanation.traceback is not None:
        yield from _traceback_lines(explanation.traceback)
    yield from _field("Fix", [f"- {fix}" for fix in group[0].fixes])
    yield from _field("Also", map(_finding_text, explanation.also))
    for name, value in explanation.details.items():
        if name not in _HIDDEN_DETAILS:
            yield from _field(name.replace("_", " ").capitalize(), [output.cell(value)])
    decisions = {item.decision.detail: None for item in group if item.decision}
    yield from _field("Next", decisions)


def _field(name: str, lines: Iterable[str]) -> Iterator[str]:
    head = f"{name}:"
    for line in lines:
        if len(head) >= _INDENT:
            yield head
            head = ""
        yield f"{head:<{_INDENT}}{line}"
        head = ""


def _evidence_text(evidence: records.Evidence) -> str:
    if evidence.path is not None:
        return f"{evidence.path}:{evidence.line}: {evidence.text}"
    return f"Slurm: {evidence.text}" if evidence.source is records.Source.SLURM else evidence.text


def _finding_text(finding: records.Finding) -> str:
    head = "warning" if finding.level is records.Level.WARNING else str(finding.cause)
    return f"{head}: {_summary(finding)} ({finding.evidence.path}:{finding.evidence.line})"


def _traceback_lines(traceback: records.Traceback) -> Iterator[str]:
    rank = "" if traceback.rank is None else f" of rank {traceback.rank}"
    yield f"Traceback{rank} ({traceback.path}:{traceback.first_line}):"
    lines = list(traceback.lines)
    omitted = len(lines) - _MAX_TRACEBACK_LINES
    if omitted > 0:
        half = _MAX_TRACEBACK_LINES // 2
        lines[half:-half] = [f"  ... {output.count(omitted, 'line')} ..."]
    yield from (f"  {line}" for line in lines)
