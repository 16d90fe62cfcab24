"""recovering: of jobs that failed under [retry], decide what follows, and do it when it is due."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import errors, jobs, recovery
from orchestrator.controller.actions import cancel, confirmed, requeue
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.metrics import ingest
from orchestrator.controller.recovery import continuation, progress
from orchestrator.controller.resubmission import resubmit
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import causes
from orchestrator.jobs import naming, retry
from orchestrator.slurm import host_lists
from orchestrator.tracking import run_folder

#: Decided, and done, in one pass at the most; the rest follows in the next.
AT_ONCE = 50
#: A pass begins nothing more after so long: where Slurm is away each job takes its time-out.
DOING_SECONDS = 60.0
#: What is not seen for so long is gone; maintenance of a file system may take a day.
AWAY_SECONDS = 48 * 3600.0
_BAD_NODE = frozenset({"node_fail", "device_fault"})

_Due = tuple[jobs.Job, recovery.StoredDecision]


def step(context: contexts.Context) -> list[str]:
    """Decide about failures and do what is due; returns what was done, a sentence each."""
    until = time.monotonic() + DOING_SECONDS
    told = _decide_all(context)
    done: list[str] = []
    for page in _due(context):
        if len(done) >= AT_ONCE or time.monotonic() >= until:
            break
        context.guard.check()
        said, rest = _requeue(context, page)
        done += said
        for job, one in rest:
            if time.monotonic() >= until:
                break
            context.guard.check()
            done += _do(context, job, one)
    return told + done


def _due(context: contexts.Context) -> Iterator[list[_Due]]:
    """Yield what is due, so many at a time.

    What another host has to do keeps nobody behind it waiting.
    """
    now, after = context.clock.now(), 0
    while True:
        with context.store.reading() as work:
            due = work.recovery.planned(now, AT_ONCE, after)
            query = jobs.JobQuery(rows=[one.job_row for one in due], limit=None)
            found = {job.row: job for job in work.jobs.find(query)} if due else {}
        yield [(found[one.job_row], one) for one in due]
        if len(due) < AT_ONCE:
            return
        after = due[-1].id


def _undecided(
    context: contexts.Context, clusters: Sequence[str]
) -> tuple[list[str], list[jobs.Job]]:
    """Return what was told, and the jobs whose end can be decided about here."""
    told: list[str] = []
    ended: list[jobs.Job] = []
    after = 0
    while len(ended) < AT_ONCE:
        with context.store.reading() as work:
            rows = work.recovery.undecided(clusters, AT_ONCE, after)
            query = jobs.JobQuery(rows=rows, limit=None)
            found = sorted(work.jobs.find(query), key=lambda job: job.row) if rows else []
        away = {job.row: why for job in found if (why := _not_seen(job))}
        said, given_up = _wait_for(context, [job for job in found if job.row in away], away)
        told += said
        ended += [job for job in found if job.row not in away or job.row in given_up]
        if len(found) < AT_ONCE:
            break
        after = found[-1].row
    return told, ended


def _not_seen(job: jobs.Job) -> str:
    """Return why nothing can be known here of what a job left; "": nothing has to, or it can."""
    if job.state is jobs.JobState.COMPLETED or Path(job.run_dir).parent.is_dir():
        return ""
    return f"its run folder {job.run_dir} is not seen from {socket.gethostname()}"


def _wait_for(
    context: contexts.Context, away: Sequence[jobs.Job], why: Mapping[int, str]
) -> tuple[list[str], set[int]]:
    """Wait for folders that are not seen: another login host, or this one later, may see them.

    Returns what was told, once, and the rows of the jobs whose folder was away for too long.
    """
    if not away:
        return [], set()
    now = context.clock.now()
    with context.store.reading() as work:
        since = work.recovery.away_since([job.row for job in away])
    new = [job for job in away if job.row not in since]
    detail = {job.row: f"{why[job.row]}; it is waited for" for job in new}
    if new:
        with context.store.writing() as work:
            work.events.add_many(
                (job.row, _event(job, now, recovery.AWAY, detail[job.row])) for job in new
            )
    over = {row for row, at in since.items() if (now - at).total_seconds() >= AWAY_SECONDS}
    return [f"{naming.name_of(job)}: {detail[job.row]}" for job in new], over


def _event(job: jobs.Job, at: datetime.datetime, kind: str, detail: str) -> jobs.JobEvent:
    return jobs.JobEvent(at=at, kind=kind, attempt=job.attempt, source="rules", detail=detail)


def _decide_all(context: contexts.Context) -> list[str]:
    # Checkpoints and logs of another cluster's jobs may not be seen from here.
    facts = clusters.known_facts(context.with_scheduler("slurm"))
    here = [clusters.machine_facts(context).cluster, *([facts.cluster] if facts else [])]
    told, ended = _undecided(context, here)
    if unexplained := [
        job.row for job in ended if explanations.is_failed(job) and job.cause is None
    ]:
        explanations.store_causes(context, unexplained)
        ended = confirmed.stored(context, ended)
    for job in ended:
        context.guard.check()
        if job.state is jobs.JobState.COMPLETED:
            _release(context, job)
        elif _is_unsent(job) and _sent(context, job):
            told.append(f"{naming.name_of(job)} was sent again")
        elif explanations.is_failed(job) and job.cause is not None:
            told += _decide(context, job)
    return told


def _is_unsent(job: jobs.Job) -> bool:
    """Tell whether a job of this machine that was to go on with another did not get into its line.

    Slurm's are sent again with what waits for room; this machine's line has room for all.
    """
    unsent = job.state is jobs.JobState.NOT_SUBMITTED
    return unsent and job.continues is not None and job.scheduler == "local"


def _sent(context: contexts.Context, job: jobs.Job) -> bool:
    """Send what a process that was killed had stored; false where this machine refuses it."""
    environ = run_folder.RunFolder(Path(job.run_dir)).retry_environment()
    there = dataclasses.replace(context, environ=environ or context.environ, is_local=True)
    try:
        resubmit.send_again(there, job, queue=False, source="controller")
    except errors.FencedError:
        raise
    except errors.OrchestratorError as exc:
        context.reporter.warn(f"@{job.row}: {exc}")
        return False
    return True


def _release(context: contexts.Context, job: jobs.Job) -> None:
    """Store that nothing is to follow what ended well."""
    with context.store.writing() as work:
        changed = work.jobs.change(job.row, {"recovers": None}, version=job.version)
    if changed:
        continuation.drop_environment(context, job)


def _decide(context: contexts.Context, job: jobs.Job) -> list[str]:
    """Store what follows a failure, with its event, in one transaction."""
    try:
        decision = _decision(context, job)
    except errors.SpecError as exc:
        # Another version stored it.
        decision = _none(job, "stored spec", f"its stored spec cannot be read: {exc}")
    now = context.clock.now()
    nothing = decision.action is recovery.Action.NONE
    event = _event(job, now, "retry", decision.why)
    with context.store.writing(durable=True) as work:
        changes: dict[str, object] = {"recovers": None} if nothing else {}
        if not work.jobs.change(job.row, changes, version=job.version):
            # Somebody did something with it: the next pass sees what.
            return []
        work.recovery.add(job, decision, now)
        work.events.add_many([(job.row, event)])
    if nothing:
        continuation.drop_environment(context, job)
    return [f"{naming.name_of(job)} {decision.why}"]


def _decision(context: contexts.Context, job: jobs.Job) -> recovery.Decision:
    if told := _not_seen(job):
        return _none(job, "run folder", f"{told} for {AWAY_SECONDS / 3600:.0f} h")
    if job.state is jobs.JobState.NOT_SUBMITTED:
        return _none(job, "not submitted", f"Slurm does not have it: {job.reason}")
    if job.cause not in set(causes.Cause):
        return _none(job, "never", f"{job.cause} is a cause of another version")
    spec, checkpoints = continuation.checkpoints_of(context, job)
    kind = causes.info(causes.Cause(job.cause))
    far = recovery.Progress()
    if job.cause == retry.CONTINUED:
        # How far it came may stand in lines that nobody read yet.
        deadline = context.deadline.within(ingest.LOOK_SECONDS)
        ingest.ingest(context, [job], report_notes=False, deadline=deadline)
        far = progress.of(context, job, checkpoints)
    with context.store.reading() as work:
        rows = [*work.recovery.predecessors(job.row), job.row]
        history = work.recovery.of_jobs(rows)
        chain = work.jobs.find(jobs.JobQuery(rows=rows, limit=None))
        attempts = work.attempts.of_jobs(rows)
        end_asked = bool(work.recovery.cancel_requested([job.row]))
    facts = recovery.Facts(
        cause=job.cause,
        title=kind.title,
        maybe=kind.retry is causes.Retry.MAYBE,
        spec=spec,
        task=job.array_task_id,
        cancelled=end_asked,
        progress=far,
        gpu_hours=sum(_gpu_hours(one, attempts.get(one.row, ())) for one in chain),
        node_failures=_node_failures(job, chain, attempts, history),
    )
    # A refused decision has started nothing.
    decisions = [one.decision for one in history if one.state != "refused"]
    return recovery.decide(facts, spec.retry, decisions, context.clock.now())


def _none(job: jobs.Job, rule: str, why: str) -> recovery.Decision:
    return recovery.Decision(
        action=recovery.Action.NONE,
        cause=job.cause or "unknown",
        rule=rule,
        why=f"{why}; it is not started again",
    )


def _gpu_hours(job: jobs.Job, attempts: Sequence[jobs.Attempt]) -> float:
    ran = [
        (one.ended_at - one.started_at).total_seconds()
        for one in attempts
        if one.started_at is not None and one.ended_at is not None
    ]
    return (job.gpus or 0) * sum(max(0.0, seconds) for seconds in ran) / 3600


def _node_failures(
    job: jobs.Job,
    chain: Sequence[jobs.Job],
    attempts: dict[int, list[jobs.Attempt]],
    history: Sequence[recovery.StoredDecision],
) -> dict[str, int]:
    """Return how often attempts of the chain failed by a node, by the nodes that they had."""
    if job.cause not in _BAD_NODE or job.scheduler == "local":
        return {}
    bad = {(one.job_row, one.attempt) for one in history if one.decision.cause in _BAD_NODE}
    bad.add((job.row, job.attempt))
    counted: collections.Counter[str] = collections.Counter()
    for one in chain:
        for attempt in attempts.get(one.row, ()):
            # What Slurm requeued by itself counts too.
            failed = attempt.state is jobs.JobState.NODE_FAIL or (one.row, attempt.number) in bad
            if failed and attempt.node_list:
                counted.update(host_lists.expand(attempt.node_list))
    return dict(counted)


def _requeue(context: contexts.Context, due: Sequence[_Due]) -> tuple[list[str], list[_Due]]:
    """Requeue all that Slurm still can, with one look for all of them.

    Returns what was told, and what is to be done otherwise.
    """
    with context.store.reading() as work:
        cancelled = work.recovery.cancel_requested([job.row for job, _ in due])
    asked = {
        job.row: one for job, one in due if _can_requeue(job, one) and job.row not in cancelled
    }
    told: list[str] = []
    over: set[int] = set()
    for there, some in contexts.by_scheduler(context, [job for job, _ in due if job.row in asked]):
        try:
            # A pass that was killed may have requeued it, and that attempt have ended by now.
            outcomes = requeue.requeue(
                there, some, confirm_seconds=0, source="rules", same_attempt=True
            )
        except (errors.SlurmError, errors.RunFolderError) as exc:
            told.append(f"{naming.names_of(some)}: {exc}")
            over.update(job.row for job in some)
            continue
        # Not seen yet (UNSEEN) it is asked for all the same: the next refresh shows it.
        no = (confirmed.End.IMPOSSIBLE, confirmed.End.REFUSED)
        taken = [outcome.job for outcome in outcomes if outcome.end not in no]
        with context.store.writing() as work:
            kept = {job.row for job in taken if work.recovery.finish(asked[job.row], "done")}
            lost = [job for job in taken if job.row not in kept]
            withdrawn = {
                one.id
                for one in work.recovery.of_jobs([job.row for job in lost])
                if one.state == "refused"
            }
        told += [f"{naming.name_of(job)} was requeued" for job in taken if job.row in kept]
        # While Slurm was asked, somebody took the plan back.
        back = [job for job in lost if asked[job.row].id in withdrawn]
        if back:
            cancel.cancel(there, back, confirm_seconds=0)
        told += [f"{naming.name_of(job)} was cancelled again" for job in back]
        over.update(job.row for job in taken)
    return told, [pair for pair in due if pair[0].row not in over]


def _can_requeue(job: jobs.Job, one: recovery.StoredDecision) -> bool:
    is_as_decided = job.ended and job.attempt == one.attempt
    return is_as_decided and one.decision.action is recovery.Action.REQUEUE


def _do(context: contexts.Context, job: jobs.Job, one: recovery.StoredDecision) -> list[str]:
    """Go on with the job, unless something else became of it; what cannot be done waits."""
    name = naming.name_of(job)
    # As it is after what was asked of Slurm.
    (now,) = confirmed.stored(context, [job])
    if now.attempt != one.attempt or not now.ended:
        # By us, before we could store that; by a person; or by Slurm.
        with context.store.writing() as work:
            if one.decision.action is recovery.Action.REQUEUE:
                work.recovery.finish(one, "done")
            else:
                work.recovery.finish(one, "refused", detail="it was started again meanwhile")
        return []
    try:
        with context.store.reading() as work:
            if work.recovery.cancel_requested([job.row]):
                raise continuation.OverError("its end was asked for")
        new = continuation.go_on(context, now, one)
    except continuation.OverError as exc:
        _refuse(context, job, one, str(exc))
        return [f"{name} is not gone on with: {exc}"]
    except continuation.AwayError as exc:
        told, given_up = _wait_for(context, [job], {job.row: str(exc)})
        if given_up:
            _refuse(context, job, one, f"{exc} for {AWAY_SECONDS / 3600:.0f} h")
        return told
    except continuation.BusyError:
        return []
    except errors.SpecError as exc:
        _refuse(context, job, one, f"it cannot be asked for so: {exc}")
        return [f"{name} is not gone on with: {exc}"]
    except (errors.SlurmError, errors.RunFolderError) as exc:
        return [f"{name}: {exc}"]
    if new is None:
        return []
    return [f"{naming.name_of(new)} (@{new.row}) goes on with {name}"]


def _refuse(
    context: contexts.Context, job: jobs.Job, one: recovery.StoredDecision, detail: str
) -> None:
    """Store that a plan comes to nothing, and the chain to its end."""
    event = _event(job, context.clock.now(), "retry", detail)
    with context.store.writing() as work:
        if work.recovery.finish(one, "refused", detail=detail):
            work.jobs.change(job.row, {"recovers": None})
            work.events.add_many([(job.row, event)])
    continuation.drop_environment(context, job)
