"""The explanation that `orchestrator explain` shows of a job or of any log. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator import jobs
from orchestrator.diagnosis import causes, exit_codes, final_states, main_finding
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.diagnosis.records import (
    Evidence,
    Explanation,
    Finding,
    JobFacts,
    Level,
    Traceback,
)
from orchestrator.jobs import JobState

_EVIDENCE_LINES = 4
_MAX_ALSO = 8
#: 128 and SIGTERM.
_SIGTERM_CODE = 143
#: How strong the final state or the exit code is, compared with findings in the log.
_STATE_LEVELS = {
    "time_limit": Level.ENDED,
    "cancelled": Level.ENDED,
    "nonzero_exit": Level.OUTCOME,
    # The script says what it misses in its folder.
    "run_folder": Level.OUTCOME,
    **dict.fromkeys(exit_codes.CRASH_CAUSES.values(), Level.AFTER),
    # 126 and 127 of bash, which printed the name of the program.
    "missing_program": Level.AFTER,
}
_TIMEOUTS = ("nccl_timeout", "gloo_timeout")
# ProcessGroupNCCL.cpp, torch 1.12 to 2.13: "Watchdog caught collective operation timeout:
# WorkNCCL(SeqNum=8, OpType=ALLREDUCE, ...)", one line per rank whose call timed out.
_COLLECTIVE = re.compile(r"SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,60})")
#: Names that programs use for the batch size per rank and step.
_BATCH_PER_RANK = (
    "per_device_batch_size",
    "per_device_train_batch_size",
    "micro_batch_size",
    "batch_size_per_gpu",
    "samples_per_gpu",
)


def explain(facts: JobFacts) -> Explanation:
    """Return why a job failed; for a job that has not failed, its state and what looks unusual."""
    job = facts.job
    if job is not None and not job.ended and not facts.is_earlier_attempt:
        return _live(facts, job)
    if job is not None and job.state is JobState.COMPLETED:
        return Explanation(
            cause=None,
            summary="the job did not fail: COMPLETED",
            evidence=(final_states.evidence(job),),
            also=_notable(facts.findings),
            details={"state": str(job.state)},
        )
    return _failed(facts)


def advice_for_ranks(
    arguments: Mapping[str, object], world_size: int, *, is_included_trainer: bool
) -> tuple[str, ...]:
    """Return why a job on several ranks may train differently from one on a single GPU.

    The included trainers give each rank its own random numbers; other programs may not.
    """
    if world_size < 2:
        return ()
    advice = []
    batches = [(name, arguments.get(name)) for name in _BATCH_PER_RANK]
    # true and false are no sizes.
    per_rank = [(name, batch) for name, batch in batches if type(batch) is int]
    # An explicit global batch size shows that it was kept.
    if per_rank and "batch_size" not in arguments:
        name, batch = per_rank[0]
        advice.append(
            f"accuracy can differ from that on one GPU: {name} = {batch} on {world_size} ranks is "
            f"a global batch of {batch * world_size}; scale the learning rate with it and use a "
            "warm-up, or keep the global batch"
        )
    if "seed" in arguments and not is_included_trainer:
        advice.append(
            f"seed = {arguments['seed']} on all ranks gives every rank the same augmentations: "
            "add the rank to the seed after the model is created"
        )
    return tuple(advice)


def _live(facts: JobFacts, job: jobs.Job) -> Explanation:
    if job.state is not JobState.RUNNING or job.reason not in (None, "", "None"):
        reason = pending_reasons.reason_sentence(job)
        summary = f"the job has not ended: {job.state}" + (f", {reason}" if reason else "")
    elif facts.last_lines:
        summary = "the job is running; the last line of its log is:"
    else:
        summary = "the job is running and has printed nothing yet"
    written = {} if facts.written_at is None else {"last_written": facts.written_at}
    return Explanation(
        cause=None,
        summary=summary,
        evidence=facts.last_lines[-1:],
        also=_notable(facts.findings),
        details={"state": str(job.state), **written},
    )


def _failed(facts: JobFacts) -> Explanation:
    findings = list(facts.findings)
    state = final_states.finding(facts)
    if state is not None:
        level = _STATE_LEVELS.get(state.cause, Level.DECISIVE)
        is_terminated = facts.job is not None and facts.job.exit_code == _SIGTERM_CODE
        if is_terminated and level is not Level.DECISIVE:
            # srun and torchrun end the other ranks with SIGTERM and exit with the highest code.
            level = max(level, Level.OUTCOME)
        state = dataclasses.replace(state, level=level)
        if state.cause not in ("cancelled", "time_limit"):
            # Slurm ended a step at most (srun --kill-on-bad-exit), not the job.
            findings = [_without_job_end(finding) for finding in findings]
        findings.append(state)
    main = main_finding.select(findings)
    if main is None:
        return _unexplained(facts, "the log shows no failure")
    if facts.job is None and main_finding.program_continued(findings):
        return _unexplained(facts, "the program continued after all errors in the log")
    if main.cause == "nccl_timeout" and (rank := _rank_behind(findings)) is not None:
        main = next(each for each in findings if each.cause == main.cause and each.rank == rank)
    info = causes.known()[main.cause]
    remaining = [finding for finding in findings if finding is not main]
    weakest = max(main.level, Level.AFTER)
    same = [
        finding
        for finding in main_finding.last_group(remaining)
        if finding.cause == main.cause and finding.level <= weakest
    ]
    summary = next((finding.summary for finding in [main, *same] if finding.summary), info.title)
    state_cures = state.cures if state is not None and state in same else ()
    rank = main.rank
    if rank is None and main.level is not Level.TIMEOUT:
        torchrun = (each.rank for each in findings if each.rule == "torchrun-root-cause")
        rank = next(torchrun, None)
    return Explanation(
        cause=main.cause,
        summary=summary,
        evidence=(*_evidence(main, same, state), *_last_output(facts, main)),
        cures=tuple(dict.fromkeys((*main.cures, *state_cures, *info.cures))),
        first_failing_rank=rank,
        traceback=main.traceback or _traceback(main, findings),
        details=_details(facts, main, findings),
        also=_notable(remaining, except_cause=main.cause),
    )


def _without_job_end(finding: Finding) -> Finding:
    if finding.level is Level.ENDED and finding.cause == "cancelled":
        return dataclasses.replace(finding, level=Level.HINT)
    return finding


def _unexplained(facts: JobFacts, summary: str) -> Explanation:
    cause = None if facts.job is None else "unknown"
    cures: tuple[str, ...] = ("check the log of stderr or of another rank",)
    if cause is not None:
        summary, cures = causes.known()[cause].title, causes.known()[cause].cures
    return Explanation(
        cause=cause,
        summary=summary,
        evidence=facts.last_lines[-1:],
        cures=cures,
        also=_notable(facts.findings),
    )


def _evidence(
    main: Finding, same: Sequence[Finding], state: Finding | None
) -> tuple[Evidence, ...]:
    """Return the main line, further lines with the same cause, and what Slurm reports."""
    lines = [each for each in (main, *same) if each is not state][:_EVIDENCE_LINES]
    if state is not None:
        lines = [*lines[: _EVIDENCE_LINES - 1], state]
    return tuple(dict.fromkeys(each.evidence for each in lines))


def _last_output(facts: JobFacts, main: Finding) -> tuple[Evidence, ...]:
    """Return the end of the log if the exit code is all that is known about the failure."""
    if main.cause != "nonzero_exit" or main.evidence.path is not None:
        return ()
    return facts.last_lines


def _traceback(main: Finding, findings: Sequence[Finding]) -> Traceback | None:
    """Return the traceback of another line with the same cause, and the same rank if known."""
    for finding in findings:
        # The traceback of torchrun itself shows nothing.
        is_error = finding.level < Level.OUTCOME and finding.rank in (main.rank, None)
        if finding.cause == main.cause and finding.traceback and is_error:
            return finding.traceback
    return None


def _details(facts: JobFacts, main: Finding, findings: Sequence[Finding]) -> dict[str, object]:
    other_lines = Counter(
        str(finding.cause)
        for finding in main_finding.last_group(findings)
        if finding.cause != main.cause and finding.evidence.path
    )
    details: dict[str, object] = {
        "rule": main.rule,
        "state": facts.job and str(facts.job.state),
        "rank_exit_code": main.exit_code,
        "earlier_attempts": final_states.earlier_attempts(facts),
        "unread_bytes": facts.skipped_bytes,
        "uncounted_bytes": facts.uncounted_bytes,
        **(_rank_details(findings) if main.cause in _TIMEOUTS else {}),
        "other_lines": dict(other_lines.most_common()),
    }
    return {name: value for name, value in details.items() if value}


def _rank_details(findings: Sequence[Finding]) -> dict[str, object]:
    """Return which ranks waited for a collective, and which operations they called."""
    timeouts = [each for each in findings if each.cause in _TIMEOUTS]
    waited = {
        each.rank for each in timeouts if each.level is Level.TIMEOUT and each.rank is not None
    }
    calls = sorted(_timed_out_calls(findings).items())
    details: dict[str, object] = {"ranks_that_waited": sorted(waited)}
    if len(waited) > 1:
        details["ranks_that_did_not"] = sorted(set(range(max(waited))) - waited)
    if len({operation for _, (_, operation) in calls}) > 1:
        details["different_calls"] = {
            f"rank {rank}": f"{name} (number {number})" for rank, (number, name) in calls
        }
    elif len({number for _, (number, _) in calls}) > 1:
        details["different_numbers"] = {f"rank {rank}": number for rank, (number, _) in calls}
    return details


def _rank_behind(findings: Sequence[Finding]) -> int | None:
    """Return the rank whose call has the lowest sequence number, if it is only one rank."""
    calls = _timed_out_calls(findings)
    numbers = sorted((number, rank) for rank, (number, _) in calls.items())
    if len(numbers) > 1 and numbers[0][0] < numbers[1][0]:
        return numbers[0][1]
    return None


def _timed_out_calls(findings: Sequence[Finding]) -> dict[int, tuple[int, str]]:
    """Return sequence number and operation of each rank's first call that timed out."""
    calls: dict[int, tuple[int, str]] = {}
    for finding in findings:
        match = _COLLECTIVE.search(finding.evidence.text)
        if finding.level is Level.TIMEOUT and finding.rank is not None and match:
            call = (int(match["number"]), match["operation"])
            calls[finding.rank] = min(call, calls.get(finding.rank, call))
    return calls


def _notable(findings: Sequence[Finding], except_cause: Cause | None = None) -> tuple[Finding, ...]:
    """Return one finding per rule with another cause, warnings last."""
    by_rule: dict[str, Finding] = {}
    for finding in findings:
        is_notable = finding.level < Level.OUTCOME or finding.level is Level.WARNING
        if is_notable and finding.cause != except_cause and finding.evidence.path:
            by_rule.setdefault(finding.rule, finding)
    return tuple(sorted(by_rule.values(), key=lambda finding: finding.level)[:_MAX_ALSO])
