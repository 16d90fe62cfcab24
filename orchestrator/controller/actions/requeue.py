"""requeue: a job that runs, or has ended, waits again under the same job ID."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from orchestrator import jobs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.refresh import evidence
from orchestrator.controller.session import contexts
from orchestrator.diagnosis import pending_reasons

#: slurmctld's word for --no-requeue, and for a site with JobRequeue=0 (22.05 to 26.05).
_FORBIDDEN = "Requested operation is presently disabled"


def requeue(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    hold: bool = False,
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
    source: str = "user",
    as_known: bool = False,
) -> list[confirmed.Outcome]:
    """Requeue the jobs; `hold`: they wait until they are released.

    One that has ended can be requeued only while slurmctld holds its record (MinJobAge).
    `as_known`: not where another attempt than the known one has begun, whatever became of it.
    """
    attempts = {job.row: job.attempt for job in wanted}

    @functools.cache
    def kept() -> Collection[int]:
        return _kept(context, wanted)

    def objection(job: jobs.Job) -> str:
        if as_known and job.attempt != attempts[job.row]:
            return f"{job.job_id} was started again meanwhile"
        return _objection(job, kept=kept)

    def done(before: jobs.Job, now: jobs.Job) -> bool:
        begun = now.attempt > before.attempt
        if hold:
            return begun and pending_reasons.is_held(now)
        return begun and now.state is not jobs.JobState.COMPLETING

    def hopeless(before: jobs.Job, now: jobs.Job) -> str:
        moved = now.state in jobs.TERMINAL or now.state is jobs.JobState.RUNNING
        if not (hold and moved and now.attempt > before.attempt):
            return ""
        return f"{now.job_id} was requeued, and let go before it was seen held ({now.state})"

    wish = confirmed.Wish(
        command="scontrol requeuehold" if hold else "scontrol requeue",
        ask=lambda scheduler, job_ids: scheduler.requeue(job_ids, hold=hold),
        objection=objection,
        already=lambda job: False,
        done=done,
        hopeless=hopeless,
        source=source,
    )
    outcomes = confirmed.fulfil(context, wanted, wish, confirm_seconds=confirm_seconds)
    return [_explained(outcome) for outcome in outcomes]


def _kept(context: contexts.Context, wanted: Sequence[jobs.Job]) -> Collection[int]:
    """Return the rows of the jobs that slurmctld has, each under its own token.

    The refresh before it does not tell: it judges what is live, and drops what squeue says of the
    rest. This second squeue is asked only where a job that has ended is to be requeued.
    """
    ended = [job for job in wanted if job.job_id is not None and job.scheduler == "slurm"]
    # This machine keeps what has ended for a month, and refuses by itself what it has cleared.
    local = {job.row for job in wanted if job.scheduler == "local"}
    if not ended:
        return local
    with context.store.reading() as work:
        installation_id = work.settings.installation_id()
    queue = evidence.ask_queue(context, ended, installation_id)
    kept = {job.row for job in ended if any(row.job_id == job.job_id for row in queue.of(job))}
    return kept | local


def _objection(job: jobs.Job, *, kept: Callable[[], Collection[int]]) -> str:
    if pending_reasons.is_held(job):
        return f"{job.job_id} waits already, held; `orchestrator release {job.job_id}` lets it go"
    if job.state is jobs.JobState.PENDING:
        return f"{job.job_id} waits already; `orchestrator hold {job.job_id}` holds it"
    if job.state in jobs.TERMINAL and job.row not in kept():
        return (
            f"{job.job_id} has ended ({job.state}) and Slurm has forgotten it; "
            f"{_sent_again(job)} as a new job"
        )
    return ""


def _explained(outcome: confirmed.Outcome) -> confirmed.Outcome:
    if outcome.end is not confirmed.End.REFUSED or _FORBIDDEN not in outcome.why:
        return outcome
    why = (
        f"{outcome.why} (the job was submitted with --no-requeue, or the site forbids it; "
        f"once it has ended, {_sent_again(outcome.job)})"
    )
    return confirmed.Outcome(job=outcome.job, end=outcome.end, why=why)


def _sent_again(job: jobs.Job) -> str:
    # How a job by hand was submitted is not known well enough for `resubmit`.
    if job.tracked_name is not None:
        return "sbatch sends it again"
    return f"`orchestrator resubmit {job.job_id}` sends it again"
