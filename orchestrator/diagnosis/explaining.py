"""Facts -> explanation. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.diagnosis import choosing, ends, kinds, waiting, waits
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import (
    Evidence,
    Explanation,
    Facts,
    Finding,
    Level,
    Source,
    Traceback,
)
from orchestrator.jobs import JobState

_EVIDENCE_LINES = 4
_ALSO = 8
#: 128 and SIGTERM.
_SIGTERM_CODE = 143
#: How much Slurm's word, or an exit code, weighs beside what the log says.
_SLURM_LEVELS = {
    Cause.TIME_LIMIT: Level.ENDED,
    Cause.CANCELLED: Level.ENDED,
    Cause.NONZERO_EXIT: Level.OUTCOME,
    Cause.KILLED: Level.AFTER,
    Cause.SEGFAULT: Level.AFTER,
    Cause.ABORTED: Level.AFTER,
    Cause.SHARED_MEMORY: Level.AFTER,
    Cause.ILLEGAL_INSTRUCTION: Level.AFTER,
    # bash's 126 and 127, after a line that names the program.
    Cause.MISSING_PROGRAM: Level.AFTER,
}


def diagnose(facts: Facts) -> Explanation:
    """Return why a job failed; of one that did not, what it does and what looks odd."""
    job = facts.job
    if job is not None and not job.ended and not facts.past:
        return _live(facts, job)
    if job is not None and job.state is JobState.COMPLETED:
        return _completed(facts, job)
    return _failed(facts)


def _live(facts: Facts, job: jobs.Job) -> Explanation:
    if job.state is not JobState.RUNNING or job.reason not in (None, "", "None"):
        told = waiting.explain_reason(job)
        summary = f"it has not ended: {job.state}" + (f", {told}" if told else "")
    else:
        summary = (
            "it runs, and its log's last line is:" if facts.last_line else "it runs; no log yet"
        )
    details: dict[str, object] = {"state": str(job.state)}
    if facts.written_at is not None:
        details["last_written"] = facts.written_at
    return Explanation(
        cause=None,
        summary=summary,
        evidence=() if facts.last_line is None else (facts.last_line,),
        also=tuple(_notable(facts.findings)),
        details=details,
    )


def _completed(facts: Facts, job: jobs.Job) -> Explanation:
    return Explanation(
        cause=None,
        summary="it did not fail: COMPLETED",
        evidence=(ends.evidence_of(job),),
        cures=facts.advice,
        also=tuple(_notable(facts.findings)),
        details={"state": str(job.state)},
    )


def _failed(facts: Facts) -> Explanation:
    slurm = ends.of_slurm(facts)
    findings = list(facts.findings)
    if slurm is not None:
        level = _SLURM_LEVELS.get(slurm.cause, Level.DECISIVE)
        if facts.job is not None and facts.job.exit_code == _SIGTERM_CODE:
            # srun and torchrun end the others by SIGTERM, and end with the highest code.
            level = max(level, Level.OUTCOME)
        slurm = dataclasses.replace(slurm, level=level, order=len(findings) + 1)
        if slurm.cause not in (Cause.CANCELLED, Cause.TIME_LIMIT):
            # Slurm ended a step of it at the most (srun --kill-on-bad-exit), and not the job.
            findings = [_not_ended(one) for one in findings]
        findings.append(slurm)
    found = choosing.chosen(findings)
    if found is None:
        return _unexplained(facts, "nothing in the log tells of a failure")
    if facts.job is None and choosing.went_on(findings):
        return _unexplained(facts, "the log goes on after all errors in it: it lived through them")
    suspect = waits.suspect(findings) if found.cause is Cause.NCCL_TIMEOUT else None
    if suspect is not None:
        found = next(one for one in findings if one.cause is found.cause and one.rank == suspect)
    kind = kinds.kind_of(found.cause)
    others = [one for one in findings if one is not found]
    # What Slurm says has its own words; a line of the log has a place to look at.
    weakest = max(found.level, Level.AFTER)
    same = [
        one
        for one in choosing.last_bout(others)
        if one.cause is found.cause and one.level <= weakest
    ]
    logged = [one for one in same if one.evidence.source is not Source.SLURM]
    summary = found.summary or next((one.summary for one in same if one.summary), "") or kind.title
    cures = tuple(
        dict.fromkeys((*found.cures, *(slurm.cures if slurm in same else ()), *kind.cures))
    )
    evidence = _evidence(found, logged, slurm)
    rank = found.rank
    if rank is None and found.level is not Level.TIMEOUT:
        rank = next((one.rank for one in findings if one.rule == "torchrun-root-cause"), None)
    return Explanation(
        cause=found.cause,
        summary=summary,
        evidence=evidence,
        cures=cures,
        first_failing_rank=rank,
        traceback=found.traceback or _traceback(found, findings),
        details=_details(facts, found, findings),
        also=tuple(_notable(others, beside=found.cause)),
    )


def _not_ended(one: Finding) -> Finding:
    ended = one.level is Level.ENDED and one.cause is Cause.CANCELLED
    return dataclasses.replace(one, level=Level.HINT) if ended else one


def _unexplained(facts: Facts, summary: str) -> Explanation:
    kind = kinds.kind_of(Cause.UNKNOWN)
    if facts.job is None:
        cures: tuple[str, ...] = ("the log of stderr, or of another rank, may tell more",)
        cause = None
    else:
        summary, cures, cause = kind.title, kind.cures, Cause.UNKNOWN
    return Explanation(
        cause=cause,
        summary=summary,
        evidence=() if facts.last_line is None else (facts.last_line,),
        cures=cures,
        also=tuple(_notable(facts.findings)),
    )


def _evidence(
    found: Finding, same: Sequence[Finding], slurm: Finding | None
) -> tuple[Evidence, ...]:
    """Return the finding's own line, further ones that say the same, and Slurm's word."""
    lines = [found, *same]
    if found.evidence.source is Source.SLURM:
        lines = [*same, found] if same else [found]
    elif slurm is not None:
        lines = [*lines[: _EVIDENCE_LINES - 1], slurm]
    kept = lines[:_EVIDENCE_LINES]
    if slurm is not None and slurm not in kept:
        kept[-1] = slurm
    return tuple(dict.fromkeys(one.evidence for one in kept))


def _traceback(found: Finding, findings: Sequence[Finding]) -> Traceback | None:
    """Return the traceback of another line of the same cause, by the same rank if it is known."""
    for one in findings:
        if one.cause is found.cause and one.traceback and one.rank in (found.rank, None):
            return one.traceback
    return None


def _details(facts: Facts, found: Finding, findings: Sequence[Finding]) -> dict[str, object]:
    details: dict[str, object] = {"rule": found.rule}
    if facts.job is not None:
        details["state"] = str(facts.job.state)
    if earlier := ends.earlier(facts):
        details["earlier_attempts"] = earlier
    if facts.skipped_bytes:
        details["unread_bytes"] = facts.skipped_bytes
    if facts.uncounted_bytes:
        details["uncounted_bytes"] = facts.uncounted_bytes
    if found.cause in (Cause.NCCL_TIMEOUT, Cause.GLOO_TIMEOUT):
        details |= waits.told(findings)
    after = Counter(
        str(one.cause)
        for one in choosing.last_bout(findings)
        if one is not found and one.cause is not found.cause and one.evidence.path
    )
    if after:
        details["other_lines"] = dict(after.most_common())
    return details


def _notable(findings: Sequence[Finding], beside: Cause | None = None) -> list[Finding]:
    """Return one finding of each rule that says something else, warnings last."""
    seen: dict[str, Finding] = {}
    for finding in findings:
        told = finding.level < Level.OUTCOME or finding.level is Level.WARNING
        if told and finding.cause is not beside and finding.evidence.path:
            seen.setdefault(finding.rule, finding)
    return sorted(seen.values(), key=lambda one: one.level)[:_ALSO]
