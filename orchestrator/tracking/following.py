"""A job whose ID is known: which witness is believed, and when it counts as lost."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import applying, verdicts
from orchestrator.tracking.observations import Answers, Observation, Verdict, Witnesses

#: Good answers without the job before anything is concluded from its absence (facts: slurmctld
#: may take a job two seconds after sbatch gave up, and saves its state only every five).
ANSWERS_NEEDED = 3
#: How long after its end a job waits for its accounting rows before it is closed without them.
DETAILS_WAIT_SECONDS = 24 * 3600

_BAD = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.CANCELLED})


def needs_sacct(job: jobs.Job, seen: Sequence[Observation]) -> bool:
    """Return whether sacct has to be asked for a job of which squeue said `seen`."""
    if job.job_id is None:
        return False
    return not seen or all(row.state in jobs.TERMINAL for row in seen)


def needs_steps(rows: Sequence[Observation]) -> bool:
    """Return whether the steps of a job with these sacct rows are worth a look.

    Measured: a memory kill shows as OUT_OF_MEMORY on the step and plain FAILED on the job.
    """
    return bool(rows) and rows[-1].state in _BAD and rows[-1].step_state is None


def never_started(row: Observation) -> bool:
    """Return whether this is the record that a refused submission leaves behind.

    Measured on 22.05, 24.11 and 26.05: an impossible request is refused with exit code 1 and still
    leaves a FAILED record under the job's name: in squeue with reason BadConstraints, in sacct
    without a reason, a start or a node.
    """
    if row.state is not JobState.FAILED:
        return False
    if row.source == "sacct":
        return row.started_at is None and row.node_list is None
    return (row.reason or "").startswith("BadConstraints")


def choose(rows: Sequence[Observation], owner: str | None) -> Observation | None:
    """Return the row that is the job: the owner's, else a live one, else the oldest."""
    if not rows:
        return None
    owned = [row for row in rows if owner is not None and row.raw_job_id == owner]
    live = [row for row in rows if row.state not in jobs.TERMINAL]
    return min(owned or live or list(rows), key=lambda row: (int(row.raw_job_id), row.row_number))


def judge(
    job: jobs.Job,
    witnesses: Witnesses,
    answers: Answers,
    *,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    row = choose(witnesses.squeue, job.raw_job_id)
    if row is not None and row.state not in jobs.TERMINAL:
        return applying.apply(job, row, (), settled=False, now=now)
    closing = _closing_row(job, witnesses.sacct)
    if closing is not None:
        merged = _with_record(_with_steps(closing), witnesses.record)
        return applying.apply(job, merged, witnesses.sacct, settled=True, now=now)
    if row is not None:
        # Terminal in squeue and not yet in sacct: believe it, keep asking for the details.
        merged = _with_record(row, witnesses.record)
        return applying.apply(job, merged, (), settled=_close_now(merged, answers, now), now=now)
    if witnesses.record is not None and witnesses.record.state in jobs.TERMINAL:
        settled = _close_now(witnesses.record, answers, now)
        return applying.apply(job, witnesses.record, (), settled=settled, now=now)
    if job.state in jobs.TERMINAL and job.state is not JobState.LOST:
        return _close_without_details(job, answers, now)
    return _missed(job, witnesses, answers, grace_seconds=grace_seconds, now=now)


def _closing_row(job: jobs.Job, rows: Sequence[Observation]) -> Observation | None:
    """Return sacct's newest row when it is terminal and of the newest attempt we know of.

    sacct is late: after a requeue its newest row may still be the earlier attempt's.
    """
    if not rows or rows[-1].state not in jobs.TERMINAL:
        return None
    newest = rows[-1]
    same_start = job.started_at is None or newest.started_at == job.started_at
    return newest if same_start or newest.row_number >= job.attempt else None


def _with_steps(row: Observation) -> Observation:
    if row.step_state is JobState.OUT_OF_MEMORY and row.state in _BAD:
        return dataclasses.replace(row, state=JobState.OUT_OF_MEMORY)
    return row


def _with_record(row: Observation, record: Observation | None) -> Observation:
    """Return `row` with the exit code that the script itself wrote, where both fit.

    sacct up to 25.05 prints exit code 137 as 9:0, 128 less than scontrol (Slurm commit 831571cb84).
    """
    if record is None or record.state not in jobs.TERMINAL or row.exit_signal:
        return row
    code = record.exit_code
    if row.exit_code is None or code in (row.exit_code, row.exit_code + 128):
        return dataclasses.replace(row, exit_code=code, exit_signal=row.exit_signal or 0)
    return row


def _close_now(row: Observation, answers: Answers, now: datetime.datetime) -> bool:
    if not answers.accounting:
        return True
    ended_at = row.ended_at or row.observed_at
    return (now - ended_at).total_seconds() > DETAILS_WAIT_SECONDS


def _close_without_details(job: jobs.Job, answers: Answers, now: datetime.datetime) -> Verdict:
    ended_at = job.ended_at or job.observed_at or job.created_at
    waited = (now - ended_at).total_seconds() > DETAILS_WAIT_SECONDS
    if job.settled or (answers.accounting and not waited):
        return Verdict()
    return Verdict(changes={"settled": True})


def _missed(
    job: jobs.Job,
    witnesses: Witnesses,
    answers: Answers,
    *,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    misses = job.misses + 1
    missing_since = job.missing_since or answers.squeue_at
    missing_seconds = (answers.squeue_at - missing_since).total_seconds()
    second_witness = answers.sacct_asked or not answers.accounting
    waited = misses >= ANSWERS_NEEDED and missing_seconds >= grace_seconds
    if job.state is JobState.LOST or not second_witness or not (waited or witnesses.reused):
        return Verdict(changes={"misses": misses, "missing_since": missing_since})
    why = (
        f"Slurm gives job ID {job.job_id} to another job now"
        if witnesses.reused
        else f"{misses} good answers of squeue over {missing_seconds:.0f} s did not know it"
    )
    other = "sacct has no end of it" if answers.accounting else "this cluster keeps no accounts"
    detail = f"{why}; {other}, and the script left no exit record"
    return Verdict(
        changes={
            "state": JobState.LOST,
            "reason": detail,
            "misses": misses,
            "missing_since": missing_since,
            "settled": True,
            "observed_at": answers.squeue_at,
        },
        attempts=(dataclasses.replace(applying.attempt(job), state=JobState.LOST, reason=detail),),
        events=(verdicts.event(job, now, "state", "controller", detail, JobState.LOST),),
    )
