"""A job whose ID is known: which witness is believed, and when it counts as lost."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import applying, verdicts
from orchestrator.tracking.observations import Answers, Observation, Verdict, Witnesses

#: Good answers without the job before anything is concluded from its absence (facts: slurmctld
#: may take a job two seconds after sbatch gave up, and saves its state only every five).
ANSWERS_NEEDED = 3
#: How long after its end a job waits for its accounting rows before it is closed without them.
DETAILS_WAIT_SECONDS = 24 * 3600.0

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
    if not rows or rows[-1].ended_at is None:
        return False
    return rows[-1].state in _BAD and rows[-1].step_state is None


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


def is_news(job: jobs.Job, seen: Sequence[Observation]) -> bool:
    """Return whether squeue says of a settled job what its row does not say yet."""
    taken = [row for row in seen if not never_started(row)]
    if job.state in (JobState.NOT_SUBMITTED, JobState.LOST):
        return bool(taken)
    return any(
        row.state not in jobs.TERMINAL or (row.restart_count or 0) > job.attempt
        for row in taken
        if row.job_id == job.job_id
    )


def merged(stored: jobs.Attempt | None, told: jobs.Attempt) -> jobs.Attempt:
    """Return what is stored of an attempt once sacct tells of it.

    sacct prints 9 for the exit code 137: what was known more exactly stays (_with_exact_code).
    """
    if stored is None or stored.exit_code is None or told.exit_code is None:
        return told
    if stored.exit_code == told.exit_code + 128:
        return dataclasses.replace(told, exit_code=stored.exit_code)
    return told


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
    bound, rows = _own(job, witnesses)
    if bound is not None:
        return _rebind(job, bound, witnesses, answers, grace_seconds=grace_seconds, now=now)
    row = choose(rows, witnesses.owner)
    if row is not None and row.state not in jobs.TERMINAL:
        if _goes_back(job, row):
            return Verdict(changes={"settled": False} if job.settled else {})
        return applying.apply(job, row, (), settled=False, now=now)
    sacct = tuple(row for row in witnesses.sacct if row.job_id == job.job_id)
    closing = _closing_row(job, sacct)
    if closing is not None and closing.ended_at is not None:
        merged = _with_exact_code(_with_steps(closing), _codes(job, closing, row, witnesses.record))
        return applying.apply(job, merged, sacct, settled=answers.steps_known, now=now)
    if row is not None:
        # Terminal in squeue and not yet in sacct: believe it, keep asking for the details.
        merged = _with_exact_code(row, _codes(job, row, witnesses.record))
        return applying.apply(job, merged, (), settled=_close_now(merged, answers, now), now=now)
    if witnesses.record is not None and witnesses.record.state in jobs.TERMINAL:
        settled = _close_now(witnesses.record, answers, now)
        return applying.apply(job, witnesses.record, (), settled=settled, now=now)
    if job.state in jobs.TERMINAL and job.state is not JobState.LOST:
        return _close_without_details(job, witnesses, answers, grace_seconds, now)
    if closing is not None:
        return applying.apply(job, closing, (), settled=False, now=now)
    return _missed(job, witnesses, answers, grace_seconds=grace_seconds, now=now)


def _own(job: jobs.Job, witnesses: Witnesses) -> tuple[Observation | None, tuple[Observation, ...]]:
    """Return the record that the job really is, if another than thought, and squeue's own rows.

    Several records can carry our token (a resend, a ghost). The claim in the run folder says which
    one may run; before there is a claim, an ID that Slurm has shown is kept. An ID that Slurm never
    showed came from a wrapper's noise around sbatch.
    """
    everything = (*witnesses.squeue, *witnesses.sacct)
    mine = tuple(row for row in witnesses.squeue if row.job_id == job.job_id)
    others = [row for row in everything if row.job_id != job.job_id and not never_started(row)]
    owned = [row for row in others if row.raw_job_id == witnesses.owner]
    if owned and not any(row.raw_job_id == witnesses.owner for row in mine):
        return owned[0], mine
    known = any(row.job_id == job.job_id for row in everything) or job.observed_at is not None
    if others and not known:
        return choose(others, witnesses.owner), mine
    return None, mine


def _rebind(
    job: jobs.Job,
    row: Observation,
    witnesses: Witnesses,
    answers: Answers,
    *,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    detail = f"the job is {row.job_id}, not {job.job_id}: both carry its token"
    bound = dataclasses.replace(
        job,
        job_id=row.job_id,
        raw_job_id=row.raw_job_id,
        array_job_id=row.array_job_id,
        started_at=None,
        ended_at=None,
        observed_at=None,
    )
    mine = dataclasses.replace(
        witnesses,
        squeue=tuple(one for one in witnesses.squeue if one.job_id == row.job_id),
        sacct=tuple(one for one in witnesses.sacct if one.job_id == row.job_id),
    )
    changes: dict[str, object] = {
        "job_id": row.job_id,
        "raw_job_id": row.raw_job_id,
        "array_job_id": row.array_job_id,
        "started_at": None,
        "ended_at": None,
    }
    first = Verdict(
        changes=changes, events=(verdicts.event(job, now, "adopt", row.source, detail),)
    )
    rest = judge(bound, mine, answers, grace_seconds=grace_seconds, now=now)
    return verdicts.joined(first, rest)


def _goes_back(job: jobs.Job, row: Observation) -> bool:
    """Return whether squeue shows an attempt as live whose end is known.

    Seen on 24.11 among random faults: a slurmctld that was killed comes back with a state that is
    some seconds old (it saves every five), and an empty answer of squeue lets the exit record speak
    early. The end stays; another end, or a new attempt, is believed when Slurm tells of it.
    """
    ours = (JobState.LOST, JobState.NOT_SUBMITTED)
    ended = job.state in jobs.TERMINAL and job.state not in ours
    return ended and applying.attempt_number(job, row) <= job.attempt


def _closing_row(job: jobs.Job, rows: Sequence[Observation]) -> Observation | None:
    """Return sacct's newest row when it is terminal and of the newest attempt we know of.

    sacct is late: after a requeue its newest row may still be the earlier attempt's. And it may
    have no end yet. Measured on 22.05: once slurmdbd is back, slurmctld first tells it of the jobs
    whose beginning it missed, each with the state that it has by now; their end, exit code, user
    who cancelled and steps come with the backlog, ten seconds later. Such a row says the state,
    where nobody else does, and nothing more.
    """
    if not rows or rows[-1].state not in jobs.TERMINAL:
        return None
    newest = rows[-1]
    same_start = job.started_at is not None and newest.started_at == job.started_at
    return newest if same_start or newest.row_number >= job.attempt else None


def _with_steps(row: Observation) -> Observation:
    if row.step_state is JobState.OUT_OF_MEMORY and row.state in _BAD:
        return dataclasses.replace(row, state=JobState.OUT_OF_MEMORY)
    return row


def _codes(job: jobs.Job, row: Observation, *others: Observation | None) -> list[int]:
    """Return the exit codes that are known of the attempt that `row` ends, beside its own."""
    ended = [one for one in others if one is not None and one.state in jobs.TERMINAL]
    codes = [one.exit_code for one in ended]
    if job.state in jobs.TERMINAL and applying.attempt_number(job, row) == job.attempt:
        codes.append(job.exit_code)
    return [code for code in codes if code is not None]


def _with_exact_code(row: Observation, codes: Sequence[int]) -> Observation:
    """Return `row` with an exit code that squeue or the script itself told, where both fit.

    sacct up to 25.05 prints exit code 137 as 9:0, 128 less than squeue (Slurm commit 831571cb84).
    """
    if row.exit_signal:
        return row
    for code in codes:
        if row.exit_code is None or code == row.exit_code + 128:
            return dataclasses.replace(row, exit_code=code, exit_signal=0)
    return row


def _close_now(row: Observation, answers: Answers, now: datetime.datetime) -> bool:
    if not answers.accounting:
        return True
    ended_at = row.ended_at or row.observed_at
    return (now - ended_at).total_seconds() > DETAILS_WAIT_SECONDS


def _dropped(job: jobs.Job, witnesses: Witnesses) -> bool:
    """Return whether this is a task of an array that Slurm has, and that never began.

    Measured on 24.11 and 26.05: a task that is cancelled while it waits leaves no record, neither
    in squeue nor in sacct; the array's own record just names it no more.
    """
    return (
        job.array_task_id is not None
        and witnesses.owner is None
        and job.started_at is None
        and (witnesses.array_job_id is not None or witnesses.cancel_asked)
    )


def _close_without_details(
    job: jobs.Job,
    witnesses: Witnesses,
    answers: Answers,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    ended_at = job.ended_at or job.observed_at or job.created_at
    wait_seconds = DETAILS_WAIT_SECONDS
    if job.state is JobState.CANCELLED and _dropped(job, witnesses) and answers.sacct_asked:
        # There will be no row of it.
        wait_seconds = grace_seconds
    # Where the clock is in doubt there is no end to the grace, and to this wait.
    waited = (now - ended_at).total_seconds() > wait_seconds and math.isfinite(grace_seconds)
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
    # A moment that is still to come was written by a clock that is early.
    missing_since = min(job.missing_since or answers.squeue_at, answers.squeue_at)
    missing_seconds = (answers.squeue_at - missing_since).total_seconds()
    second_witness = answers.sacct_asked or not answers.accounting
    waited = misses >= ANSWERS_NEEDED and missing_seconds >= grace_seconds
    if job.state is JobState.LOST:
        # sacct may still be late: slurmctld delivers its backlog once slurmdbd is back.
        over = not answers.accounting or missing_seconds > DETAILS_WAIT_SECONDS
        over = over and math.isfinite(grace_seconds)
        return Verdict(changes={"settled": True} if over and not job.settled else {})
    dropped = _dropped(job, witnesses) and not witnesses.reused
    if second_witness and dropped and (waited or witnesses.cancel_asked):
        return _cancelled_unseen(job, witnesses, answers, misses, now)
    if not second_witness or not (waited or witnesses.reused):
        return Verdict(changes={"misses": misses, "missing_since": missing_since})
    why = (
        f"Slurm gives job ID {job.job_id} to another job now"
        if witnesses.reused
        else f"{misses} good answers of squeue over {missing_seconds:.0f} s did not know it"
    )
    other = "sacct has no end of it" if answers.accounting else "this cluster keeps no accounts"
    record = "the script left no exit record"
    if job.tracked_name is not None:
        record = "the script of a tracked job leaves no exit record"
    detail = f"{why}; {other}, and {record}"
    return Verdict(
        changes={
            "state": JobState.LOST,
            "reason": detail,
            "misses": misses,
            "missing_since": missing_since,
            "settled": witnesses.reused or not answers.accounting,
            "observed_at": answers.squeue_at,
        },
        attempts=(dataclasses.replace(applying.attempt(job), state=JobState.LOST, reason=detail),),
        events=(verdicts.event(job, now, "state", "controller", detail, JobState.LOST),),
    )


def _cancelled_unseen(
    job: jobs.Job, witnesses: Witnesses, answers: Answers, misses: int, now: datetime.datetime
) -> Verdict:
    """End a waiting task that Slurm dropped from its array; what a later row says still counts."""
    who = "cancelled by us" if witnesses.cancel_asked else f"gone from {misses} answers of squeue"
    known = (
        f"Slurm knows other tasks of array {job.array_job_id} and nothing of this one"
        if witnesses.array_job_id is not None
        else "Slurm has no record of it"
    )
    detail = f"{who} while it waited: {known}, and the task never began"
    return Verdict(
        changes={
            "state": JobState.CANCELLED,
            "reason": detail,
            "misses": 0,
            "missing_since": None,
            "observed_at": answers.squeue_at,
        },
        attempts=(
            dataclasses.replace(applying.attempt(job), state=JobState.CANCELLED, reason=detail),
        ),
        events=(verdicts.event(job, now, "state", "controller", detail, JobState.CANCELLED),),
    )
