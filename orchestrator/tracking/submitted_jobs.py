"""A job whose ID is known: which source is trusted, and when the job counts as lost."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import updates
from orchestrator.tracking.records import Evidence, Observation, Transition, event

#: Successful queries without the job before anything follows from its absence: slurmctld may
#: accept a job two seconds after sbatch gave up, and saves its state only every five seconds.
QUERIES_NEEDED = 3
#: How long after its end a job waits for its accounting rows before it is settled without them.
DETAILS_WAIT_SECONDS = 24 * 3600.0

_FAILED = frozenset(
    {JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.CANCELLED}
)


def needs_sacct(job: jobs.Job, squeue_rows: Sequence[Observation]) -> bool:
    """Return whether sacct has to be queried for a job with these rows of squeue."""
    return job.job_id is not None and all(row.state in jobs.TERMINAL for row in squeue_rows)


def needs_steps(sacct_rows: Sequence[Observation]) -> bool:
    """Return whether the steps of a job with these rows of sacct have to be queried.

    Measured: a memory kill shows as OUT_OF_MEMORY on the step and as FAILED on the job.
    """
    if not sacct_rows or sacct_rows[-1].ended_at is None:
        return False
    return sacct_rows[-1].state in _FAILED and sacct_rows[-1].step_state is None


def never_started(row: Observation) -> bool:
    """Return whether this is the record of a refused submission.

    Measured on 22.05, 24.11 and 26.05: an impossible request is refused with exit code 1 and still
    leaves a FAILED record under the job's name: in squeue with reason BadConstraints, in sacct
    without a reason, a start or a node.
    """
    if row.state is not JobState.FAILED:
        return False
    if row.source == "sacct":
        return row.started_at is None and row.node_list is None
    return (row.reason or "").startswith("BadConstraints")


def is_steady(job: jobs.Job, squeue_rows: Sequence[Observation]) -> bool:
    """Return whether these rows alone decide about the job, at any time: it is pending or runs."""
    return (
        job.state not in jobs.TERMINAL
        and {row.job_id for row in squeue_rows} == {job.job_id}
        and not any(row.state in jobs.TERMINAL for row in squeue_rows)
    )


def is_news(job: jobs.Job, squeue_rows: Sequence[Observation]) -> bool:
    """Return whether squeue reports about a settled job what is not stored yet."""
    accepted = [row for row in squeue_rows if not never_started(row)]
    if job.state in (JobState.NOT_SUBMITTED, JobState.LOST):
        return bool(accepted)
    return any(
        row.state not in jobs.TERMINAL or (row.restart_count or 0) > job.attempt
        for row in accepted
        if row.job_id == job.job_id
    )


def choose(rows: Sequence[Observation], owner: str | None) -> Observation | None:
    """Return the row that is the job: that of the owner, else a live one, else the oldest."""
    owned = [row for row in rows if owner is not None and row.raw_job_id == owner]
    live = [row for row in rows if row.state not in jobs.TERMINAL]
    return min(
        owned or live or rows, key=lambda row: (int(row.raw_job_id), row.row_number), default=None
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missing:
    """How often and since when squeue does not list a job."""

    count: int
    since: datetime.datetime
    seconds: float
    is_long_enough: bool

    @classmethod
    def after(cls, job: jobs.Job, evidence: Evidence) -> Missing:
        """Count this squeue. A start in the future was written by a clock that was ahead."""
        since = min(job.missing_since or evidence.squeue_at, evidence.squeue_at)
        count, seconds = job.misses + 1, (evidence.squeue_at - since).total_seconds()
        is_long_enough = count >= QUERIES_NEEDED and seconds >= evidence.grace_seconds
        return cls(count=count, since=since, seconds=seconds, is_long_enough=is_long_enough)

    @property
    def changes(self) -> dict[str, object]:
        return {"misses": self.count, "missing_since": self.since}

    def __str__(self) -> str:
        return f"{self.count} results of squeue over {self.seconds:.0f} s"


def decide(job: jobs.Job, evidence: Evidence) -> Transition:
    other, rows = _identify(job, evidence)
    if other is not None:
        detail = f"the job is {other.job_id}, not {job.job_id}: both have its token"
        unseen = dataclasses.replace(job, observed_at=None)
        return adopt(unseen, evidence, detail, source=other.source, **ids_of(other))
    row = choose(rows, evidence.owner)
    if row is not None and row.state not in jobs.TERMINAL:
        if _contradicts_end(job, row):
            return Transition(changes={"settled": False} if job.settled else {})
        return updates.apply(job, row, evidence, settled=False)
    sacct = tuple(each for each in evidence.sacct if each.job_id == job.job_id)
    closing = _closing_row(job, sacct)
    if closing is not None and closing.ended_at is not None:
        codes = _exit_codes(job, closing, row, evidence.exit_record)
        closing = _with_preemption(job, closing, row)
        if closing.step_state is JobState.OUT_OF_MEMORY and closing.state in _FAILED:
            closing = dataclasses.replace(closing, state=JobState.OUT_OF_MEMORY)
        exact = _with_exact_code(closing, codes)
        return updates.apply(job, exact, evidence, sacct, settled=evidence.steps_known)
    if row is not None:
        # Terminal in squeue and not yet in sacct: store it, and query sacct for the details.
        exact = _with_exact_code(row, _exit_codes(job, row, evidence.exit_record))
        return updates.apply(job, exact, evidence, settled=_settles(exact, evidence))
    if evidence.exit_record is not None and evidence.exit_record.state in jobs.TERMINAL:
        record = _with_preemption(job, evidence.exit_record)
        return updates.apply(job, record, evidence, settled=_settles(record, evidence))
    if job.state in jobs.TERMINAL and job.state is not JobState.LOST:
        return _settle_without_details(job, evidence)
    if closing is not None:
        return updates.apply(job, closing, evidence, settled=False)
    return _not_listed(job, evidence)


def _identify(
    job: jobs.Job, evidence: Evidence
) -> tuple[Observation | None, tuple[Observation, ...]]:
    """Return the record that is the job, if it has another ID than stored, and its squeue rows.

    Several records can have our token (a job sent twice, a ghost). The owner file in the run folder
    names the one that may run; before there is one, an ID that Slurm has shown is kept. An ID that
    Slurm never showed came from other output of a wrapper around sbatch.
    """
    rows = (*evidence.squeue, *evidence.sacct)
    own = tuple(row for row in evidence.squeue if row.job_id == job.job_id)
    other_rows = [row for row in rows if row.job_id != job.job_id and not never_started(row)]
    owned = [row for row in other_rows if row.raw_job_id == evidence.owner]
    if owned and not any(row.raw_job_id == evidence.owner for row in own):
        return owned[0], own
    is_known = any(row.job_id == job.job_id for row in rows) or job.observed_at is not None
    return choose(other_rows if not is_known else (), evidence.owner), own


def ids_of(row: Observation) -> dict[str, str | None]:
    return {name: getattr(row, name) for name in ("job_id", "raw_job_id", "array_job_id")}


def adopt(
    job: jobs.Job, evidence: Evidence, detail: str, *, source: str, **ids: str | None
) -> Transition:
    """Give a job another ID, and decide what follows from the evidence about that ID."""
    of_submission = ("grace_since", "resend_at", "started_at", "ended_at")
    # Whether squeue lists the job counts from now on.
    absence = {"misses": 0, "missing_since": None}
    changes: dict[str, object] = {**ids, **dict.fromkeys(of_submission), **absence}
    adopted = event(job, evidence, "adopt", detail, source=source)
    bound = dataclasses.replace(job, **changes)  # type: ignore[arg-type]
    return Transition(changes=changes, events=(adopted,)).then(
        decide(bound, evidence.only(ids["job_id"]))
    )


def _contradicts_end(job: jobs.Job, row: Observation) -> bool:
    """Return whether squeue shows an attempt as live whose end is stored.

    Seen on 24.11 with random faults: a slurmctld that was killed returns with a state that is some
    seconds old (it saves every five), and an empty result of squeue lets the exit record count
    early. The end stays; another end, or a new attempt, is stored when Slurm reports it.
    """
    assumed = (JobState.LOST, JobState.NOT_SUBMITTED)
    ended = job.state in jobs.TERMINAL and job.state not in assumed
    return ended and updates.attempt_number(job, row) <= job.attempt


def _closing_row(job: jobs.Job, rows: Sequence[Observation]) -> Observation | None:
    """Return sacct's newest row if it is terminal and of the newest known attempt.

    sacct is late: after a requeue its newest row may still be of the earlier attempt. And it may
    have no end yet. Measured on 22.05: once slurmdbd is back, slurmctld first reports the jobs
    whose start it missed, each with the state that it has by then; their end, exit code, user who
    cancelled and steps follow with the backlog, ten seconds later. Such a row is used for the
    state, if no other source has it, and for nothing more.
    """
    if not rows or rows[-1].state not in jobs.TERMINAL:
        return None
    newest = rows[-1]
    same_start = job.started_at is not None and newest.started_at == job.started_at
    return newest if same_start or newest.row_number >= job.attempt else None


def _exit_codes(job: jobs.Job, row: Observation, *sources: Observation | None) -> list[int]:
    """Return the exit codes of the attempt that `row` ends from other sources."""
    codes = [each.exit_code for each in sources if each and each.state in jobs.TERMINAL]
    if job.state in jobs.TERMINAL and updates.attempt_number(job, row) == job.attempt:
        codes.append(job.exit_code)
    return [code for code in codes if code is not None]


def _with_exact_code(row: Observation, codes: Sequence[int]) -> Observation:
    """Return `row` with an exit code from squeue or the script, if it fits.

    sacct up to 25.05 prints exit code 137 as 9:0, 128 less than squeue (Slurm commit 831571cb84).
    """
    if row.exit_signal:
        return row
    for code in codes:
        if row.exit_code is None or code == row.exit_code + 128:
            return dataclasses.replace(row, exit_code=code, exit_signal=0)
    return row


def _with_preemption(
    job: jobs.Job, row: Observation, shown: Observation | None = None
) -> Observation:
    """Return a row of sacct or the exit record, PREEMPTED if squeue reports that of its attempt.

    `shown` is the row of squeue. Before 24.05 only squeue and scontrol show that a job failed in
    the grace time of its preemption.
    """
    is_stored = job.state is JobState.PREEMPTED and updates.attempt_number(job, row) == job.attempt
    is_shown = shown is not None and shown.state is JobState.PREEMPTED
    if row.state is JobState.FAILED and (is_stored or is_shown):
        return dataclasses.replace(row, state=JobState.PREEMPTED)
    return row


def _settles(row: Observation, evidence: Evidence) -> bool:
    if not evidence.accounting:
        return True
    ended_at = row.ended_at or evidence.squeue_at
    return (evidence.now - ended_at).total_seconds() > DETAILS_WAIT_SECONDS


def _is_dropped_task(job: jobs.Job, evidence: Evidence) -> bool:
    """Return whether this is a task that never started of an array that Slurm has.

    Measured on 24.11 and 26.05: a task that is cancelled while pending leaves no record, neither in
    squeue nor in sacct; the record of the array just does not list it any more.
    """
    return (
        job.array_task_id is not None
        and evidence.owner is None
        and job.started_at is None
        and (evidence.array_job_id is not None or evidence.cancel_requested)
    )


def _settle_without_details(job: jobs.Job, evidence: Evidence) -> Transition:
    ended_at = job.ended_at or job.observed_at or job.created_at
    wait_seconds = DETAILS_WAIT_SECONDS
    is_dropped = job.state is JobState.CANCELLED and _is_dropped_task(job, evidence)
    if is_dropped and evidence.sacct_queried:
        # sacct will have no row of it.
        wait_seconds = evidence.grace_seconds
    # If the clock may be wrong, the grace never ends, and this wait neither.
    waited = (evidence.now - ended_at).total_seconds() > wait_seconds
    waited = waited and math.isfinite(evidence.grace_seconds)
    if job.settled or (evidence.accounting and not waited):
        return Transition()
    return Transition(changes={"settled": True})


def _not_listed(job: jobs.Job, evidence: Evidence) -> Transition:
    missing = Missing.after(job, evidence)
    if job.state is JobState.LOST:
        # sacct may still be late: slurmctld delivers its backlog once slurmdbd is back.
        over = not evidence.accounting or missing.seconds > DETAILS_WAIT_SECONDS
        over = over and math.isfinite(evidence.grace_seconds)
        return Transition(changes={"settled": True} if over and not job.settled else {})
    is_confirmed = evidence.sacct_queried or not evidence.accounting
    if is_confirmed and _is_dropped_task(job, evidence) and not evidence.reused:
        if missing.is_long_enough or evidence.cancel_requested:
            return _cancelled(job, evidence, missing)
    if not is_confirmed or not (missing.is_long_enough or evidence.reused):
        return Transition(changes=missing.changes)
    why = (
        f"Slurm has assigned job ID {job.job_id} to another job"
        if evidence.reused
        else f"{missing} did not list it"
    )
    sacct = "sacct has no end of it" if evidence.accounting else "this cluster has no accounting"
    detail = f"{why}; {sacct}, and there is no exit record"
    settled = evidence.reused or not evidence.accounting
    return _ended_unseen(job, evidence, JobState.LOST, detail, **missing.changes, settled=settled)


def _cancelled(job: jobs.Job, evidence: Evidence, missing: Missing) -> Transition:
    """End a pending task that Slurm dropped from its array; a later row still counts."""
    who = (
        "cancelled by orchestrator"
        if evidence.cancel_requested
        else f"missing from {missing.count} results of squeue"
    )
    detail = f"{who} while pending: Slurm has no record of this task, and it never started"
    present = {"misses": 0, "missing_since": None}
    return _ended_unseen(job, evidence, JobState.CANCELLED, detail, **present)


def _ended_unseen(
    job: jobs.Job, evidence: Evidence, state: JobState, detail: str, **changes: object
) -> Transition:
    return Transition(
        changes={"state": state, "reason": detail, "observed_at": evidence.squeue_at, **changes},
        attempts=(
            dataclasses.replace(updates.attempt(job, job.attempt), state=state, reason=detail),
        ),
        events=(event(job, evidence, "state", detail, state=state),),
    )
