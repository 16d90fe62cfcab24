"""Explanations as text for people: for the command line and for `top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.diagnosis import records
from orchestrator.jobs import naming
from orchestrator.rows import explanation_rows, row_values
from orchestrator.text import escaping, nouns

_MAX_TRACEBACK_LINES = 24
_MAX_NAMES = 20
_INDENT = 11


def lines(explained: Sequence[explanation_rows.Explained]) -> Iterator[str]:
    """Yield the text that `explain` prints about jobs."""
    # The tasks of an array often fail for the same reason, which is printed once.
    groups: dict[tuple[object, str], list[explanation_rows.Explained]] = {}
    for item in explained:
        key = (item.explanation.cause, item.explanation.summary)
        groups.setdefault(key, []).append(item)
    for number, group in enumerate(groups.values()):
        if number:
            yield ""
        yield from map(escaping.visible, _lines(group))


def _lines(group: Sequence[explanation_rows.Explained]) -> Iterator[str]:
    job, explanation = group[0].job, group[0].explanation
    if job is not None:
        yield from _field("Job", [f"{job.job_id or '-'} (@{job.row}) {job.name}, {job.state}"])
    if same := [item.job for item in group[1:] if item.job]:
        names = ", ".join(map(naming.name_of, same[:_MAX_NAMES]))
        rest = f" and {len(same) - _MAX_NAMES} more" if len(same) > _MAX_NAMES else ""
        yield from _field("The same", [f"{names}{rest}"])
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
        if name not in explanation_rows.HIDDEN_DETAILS:
            yield from _field(name.replace("_", " ").capitalize(), [row_values.cell(value)])
    decisions = {item.decision.detail: None for item in group if item.decision}
    yield from _field("Next", decisions)


def _field(name: str, texts: Iterable[str]) -> Iterator[str]:
    head = f"{name}:"
    for line in texts:
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
    summary, evidence = explanation_rows.summary(finding), finding.evidence
    return f"{head}: {summary} ({evidence.path}:{evidence.line})"


def _traceback_lines(traceback: records.Traceback) -> Iterator[str]:
    rank = "" if traceback.rank is None else f" of rank {traceback.rank}"
    yield f"Traceback{rank} ({traceback.path}:{traceback.first_line}):"
    texts = list(traceback.lines)
    omitted = len(texts) - _MAX_TRACEBACK_LINES
    if omitted > 0:
        half = _MAX_TRACEBACK_LINES // 2
        texts[half:-half] = [f"  ... {nouns.count(omitted, 'line')} ..."]
    yield from (f"  {line}" for line in texts)
