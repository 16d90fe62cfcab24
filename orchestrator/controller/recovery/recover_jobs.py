"""Retries of failed jobs with [retry]: decide what follows, and carry it out when it is due."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import errors, jobs, nodes, recovery, specs
from orchestrator.controller.actions import cancel, changes, confirmed
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.metrics import ingest
from orchestrator.controller.nodes import record
from orchestrator.controller.recovery import continuation
from orchestrator.controller.resubmission import resubmit
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import causes
from orchestrator.files import run_folder
from orchestrator.jobs import naming, retry
from orchestrator.slurm import fields

#: Jobs per pass that are decided about, and decisions per pass that are carried out.
JOBS_PER_PASS = 50
#: After this time a pass starts no further action: without Slurm each one takes its time limit.
ACTION_SECONDS = 60.0
#: A folder that is not visible for so long counts as lost; maintenance may take a day.
NOT_VISIBLE_SECONDS = 48 * 3600.0

_Due = tuple[jobs.Job, recovery.StoredDecision]


def step(context: contexts.Context) -> list[str]:
    """Decide about failures and carry out what is due; return one sentence per action."""
    until = time.monotonic() + ACTION_SECONDS
    decided = _decide_all(context)
    done: list[str] = []
    failed: list[str] = []
    now, after = context.clock.now(), 0
    # In pages, because another host may have to carry out the first decisions.
    while len(done) < JOBS_PER_PASS and time.monotonic() < until:
        with context.store.reading() as work:
            due = work.recovery.planned(now, JOBS_PER_PASS, after)
            by_row = work.jobs.by_row([planned.job_row for planned in due])
        context.guard.check()
        sentences, remaining = _requeue(context, [(by_row[each.job_row], each) for each in due])
        done += sentences
        for job, planned in remaining:
            if time.monotonic() >= until:
                break
            context.guard.check()
            with _reported(job, failed):
                done += _continue(context, job, planned)
        if len(due) < JOBS_PER_PASS:
            break
        after = due[-1].id
    return decided + done + failed


@contextlib.contextmanager
def _reported(job: jobs.Job, sentences: list[str]) -> Iterator[None]:
    """Report an error of one job: the others are recovered all the same."""
    try:
        yield
    except (errors.FencedError, errors.DatabaseError):
        raise
    except errors.OrchestratorError as error:
        sentences.append(f"{naming.name_of(job)}: {error}")


def _decide_all(context: contexts.Context) -> list[str]:
    # This host may not see the checkpoints and logs of another cluster's jobs.
    facts = clusters.known_facts(context.with_scheduler("slurm"))
    here = [clusters.machine_cluster(), *([facts.cluster] if facts else [])]
    sentences: list[str] = []
    decidable: list[jobs.Job] = []
    after = 0
    while len(decidable) < JOBS_PER_PASS:
        with context.store.reading() as work:
            rows = work.recovery.undecided(here, JOBS_PER_PASS, after)
            by_row = work.jobs.by_row(rows)
        hidden = {row: reason for row in rows if (reason := _not_visible(by_row[row]))}
        lost = _wait_for_folders(context, [by_row[row] for row in hidden], hidden, sentences)
        decidable += [by_row[row] for row in rows if row not in hidden or row in lost]
        if len(rows) < JOBS_PER_PASS:
            break
        after = rows[-1]
    failed = [job for job in decidable if explanations.is_failed(job)]
    if unexplained := [job.row for job in failed if job.cause is None]:
        explanations.store_causes(context, unexplained)
        decidable = confirmed.stored(context, decidable)
    for job in decidable:
        context.guard.check()
        if job.state is jobs.JobState.COMPLETED:
            with context.store.writing() as work:
                changed = work.jobs.change(job.row, {"recovers": None}, version=job.version)
            if changed:
                continuation.drop_environment(context, job)
        elif _is_unsubmitted_continuation(job) and _submit_stored(context, job):
            sentences.append(f"{naming.name_of(job)} was submitted")
        elif explanations.is_failed(job) and job.cause is not None:
            with _reported(job, sentences):
                sentences += _decide(context, job)
    return sentences


def _not_visible(job: jobs.Job) -> str:
    """Return why this host cannot see the output of a failed job; "" if it can."""
    if job.state is jobs.JobState.COMPLETED or Path(job.run_dir).parent.is_dir():
        return ""
    return f"the run folder {job.run_dir} is not visible on {socket.gethostname()}"


def _wait_for_folders(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    reasons: Mapping[int, str],
    sentences: list[str],
) -> set[int]:
    """Return the rows of jobs whose folder was not visible for so long that it counts as lost.

    Records once that it is not visible: another host, or this one later, may see it.
    """
    if not selected:
        return set()
    now = context.clock.now()
    with context.store.reading() as work:
        since = work.events.first(recovery.AWAY, [job.row for job in selected])
    new = [
        (job, f"{reasons[job.row]}; the decision is postponed")
        for job in selected
        if job.row not in since
    ]
    if new:
        with context.store.writing() as work:
            work.events.add_many(_event(context, job, recovery.AWAY, detail) for job, detail in new)
    sentences += [f"{naming.name_of(job)}: {detail}" for job, detail in new]
    return {row for row, at in since.items() if (now - at).total_seconds() >= NOT_VISIBLE_SECONDS}


def _event(
    context: contexts.Context, job: jobs.Job, kind: str, detail: str
) -> tuple[int, jobs.JobEvent]:
    return job.row, context.event(kind, detail, source="rules", attempt=job.attempt)


def _is_unsubmitted_continuation(job: jobs.Job) -> bool:
    """Return whether a process was killed before it submitted this local continuation job.

    Such jobs for Slurm are submitted again with the deferred ones.
    """
    not_submitted = job.state is jobs.JobState.NOT_SUBMITTED
    return not_submitted and job.continues is not None and job.scheduler == "local"


def _submit_stored(context: contexts.Context, job: jobs.Job) -> bool:
    environ = (
        run_folder.RunFolder(Path(job.run_dir)).environment(run_folder.RETRY_ENVIRONMENT)
        or context.environ
    )
    local = dataclasses.replace(context, environ=environ, is_local=True)
    try:
        resubmit.send_again(local, job, queue=False, is_automatic=True)
    except errors.FencedError:
        raise
    except errors.OrchestratorError as error:
        context.reporter.warn(f"@{job.row}: {error}")
        return False
    return True


def _decide(context: contexts.Context, job: jobs.Job) -> list[str]:
    """Store what follows a failure, with its event, in one transaction."""
    try:
        decision = _decision(context, job)
    except errors.SpecError as error:
        # Another version of this program wrote it.
        decision = _no_retry(job, "stored spec", f"its stored spec cannot be read: {error}")
    now = context.clock.now()
    is_end = decision.action is recovery.Action.NONE
    with context.store.writing(durable=True) as work:
        changes: dict[str, object] = {"recovers": None} if is_end else {}
        if not work.jobs.change(job.row, changes, version=job.version):
            # Another process changed the job: the next pass decides.
            return []
        work.recovery.add(job, decision, now)
        work.events.add_many([_event(context, job, "retry", decision.detail)])
    if is_end:
        continuation.drop_environment(context, job)
    return [f"{naming.name_of(job)} {decision.detail}"]


def _decision(context: contexts.Context, job: jobs.Job) -> recovery.Decision:
    if reason := _not_visible(job):
        hours = NOT_VISIBLE_SECONDS / 3600
        return _no_retry(job, "run folder", f"{reason} for {hours:.0f} h")
    if job.state is jobs.JobState.NOT_SUBMITTED:
        return _no_retry(job, "not submitted", f"the job is not in Slurm: {job.reason}")
    if job.cause is None or job.cause not in causes.known():
        return _no_retry(job, "never", f"another version stored the unknown cause {job.cause}")
    with context.store.reading() as work:
        rows = [*work.recovery.predecessors(job.row), job.row]
        history = work.recovery.of_jobs(rows)
        chain = work.jobs.by_row(rows).values()
        attempts = work.attempts.of_jobs(rows)
        cancel_requested = bool(work.events.cancel_requested([job.row]))
        submission = work.jobs.submission_of(job.row)
    spec = specs.from_json(submission.spec)
    info = causes.known()[job.cause]
    reached, has_checkpoint = None, False
    if job.cause == retry.CONTINUED:
        # The last steps may be in lines that have not been read yet.
        deadline = context.deadline.within(ingest.LOOK_SECONDS)
        ingest.ingest(context, [job], report_notes=False, deadline=deadline)
        folder = continuation.checkpoint_folder(job, spec, submission.provenance)
        reached, has_checkpoint = continuation.measure_progress(context, job, folder)
    facts = recovery.FailedJob(
        cause=job.cause,
        title=info.title,
        maybe=info.retry == "maybe",
        spec=spec,
        task=job.array_task_id,
        cancelled=cancel_requested,
        step=reached,
        has_checkpoint=has_checkpoint,
        gpu_hours=sum(_gpu_hours(link, attempts.get(link.row, ())) for link in chain),
        node_failures=_node_failures(job, attempts, history),
        avoided_nodes=_avoided_nodes(context, job),
    )
    decisions = [stored for stored in history if stored.state != "refused"]
    return recovery.decide(facts, spec.retry, decisions, context.clock.now())


def _no_retry(job: jobs.Job, rule: str, why: str) -> recovery.Decision:
    return recovery.Decision(
        action=recovery.Action.NONE,
        cause=job.cause or "unknown",
        rule=rule,
        detail=f"{why}; no retry",
    )


def _gpu_hours(job: jobs.Job, attempts: Sequence[jobs.Attempt]) -> float:
    seconds = [
        max(0.0, (attempt.ended_at - attempt.started_at).total_seconds())
        for attempt in attempts
        if attempt.started_at is not None and attempt.ended_at is not None
    ]
    return (job.gpus or 0) * sum(seconds) / 3600


def _node_failures(
    job: jobs.Job,
    attempts_by_row: Mapping[int, Sequence[jobs.Attempt]],
    history: Sequence[recovery.StoredDecision],
) -> dict[str, int]:
    """Return by host how many attempts of the chain failed because of a node."""
    if job.cause not in nodes.NODE_CAUSES or job.scheduler == "local":
        return {}
    failed = {
        (stored.job_row, stored.attempt) for stored in history if stored.cause in nodes.NODE_CAUSES
    }
    failed.add((job.row, job.attempt))
    failures: collections.Counter[str] = collections.Counter()
    for row, attempts in attempts_by_row.items():
        for attempt in attempts:
            # Attempts that Slurm requeued by itself count too.
            is_failed = attempt.state is jobs.JobState.NODE_FAIL or (row, attempt.number) in failed
            if is_failed and attempt.node_list:
                failures.update(fields.expand_hosts(attempt.node_list))
    return dict(failures)


def _avoided_nodes(context: contexts.Context, job: jobs.Job) -> tuple[str, ...]:
    avoided = record.excluded(context.with_scheduler(job.scheduler), job.cluster)
    hosts = fields.expand_hosts(job.node_list or "") if avoided else []
    return tuple(node.name for node in avoided if node.name in hosts)


def _requeue(context: contexts.Context, due: Sequence[_Due]) -> tuple[list[str], list[_Due]]:
    """Requeue all jobs that Slurm still knows; return sentences, and the remaining decisions."""
    with context.store.reading() as work:
        cancelled = work.events.cancel_requested([job.row for job, _ in due])
    planned = {
        job.row: decision
        for job, decision in due
        if decision.action is recovery.Action.REQUEUE
        and job.ended
        and job.attempt == decision.attempt
        and job.row not in cancelled
    }
    sentences: list[str] = []
    handled: set[int] = set()
    selected = [job for job, _ in due if job.row in planned]
    for scheduler_context, group in contexts.by_scheduler(context, selected):
        try:
            # A pass that was killed may have requeued it, and that attempt may have ended.
            outcomes = changes.requeue(scheduler_context, group, confirm_seconds=0, by_rules=True)
        except (errors.FencedError, errors.DatabaseError):
            raise
        except errors.OrchestratorError as error:
            sentences.append(f"{naming.names_of(group)}: {error}")
            handled.update(job.row for job in group)
            continue
        # A request that is not confirmed yet counts too: the next refresh shows its effect.
        rejected = (confirmed.End.IMPOSSIBLE, confirmed.End.REFUSED)
        requeued = [outcome.job for outcome in outcomes if outcome.end not in rejected]
        handled.update(job.row for job in requeued)
        with context.store.writing() as work:
            done = {job.row for job in requeued if work.recovery.finish(planned[job.row], "done")}
            undone_decisions = work.recovery.of_jobs(
                [job.row for job in requeued if job.row not in done]
            )
        # Somebody withdrew the decision while Slurm was asked.
        withdrawn = {stored.id for stored in undone_decisions if stored.state == "refused"}
        undone = [job for job in requeued if planned[job.row].id in withdrawn]
        if undone:
            cancel.cancel(scheduler_context, undone, confirm_seconds=0)
        sentences += [f"{naming.name_of(job)} was requeued" for job in requeued if job.row in done]
        sentences += [f"{naming.name_of(job)} was cancelled again" for job in undone]
    return sentences, [pair for pair in due if pair[0].row not in handled]


def _continue(
    context: contexts.Context, job: jobs.Job, planned: recovery.StoredDecision
) -> list[str]:
    """Submit the continuation job, unless the job was started again."""
    name = naming.name_of(job)
    # The requests to Slurm may have changed it.
    (job,) = confirmed.stored(context, [job])
    if job.attempt != planned.attempt or not job.ended:
        with context.store.writing() as work:
            if planned.action is recovery.Action.REQUEUE:
                work.recovery.finish(planned, "done")
            else:
                work.recovery.finish(planned, "refused", detail="it was started again meanwhile")
        return []
    sentences: list[str] = []
    try:
        new = continuation.continue_job(context, job, planned)
        return [] if new is None else [f"{naming.name_of(new)} (@{new.row}) continues {name}"]
    except continuation.NotVisibleError as error:
        if _wait_for_folders(context, [job], {job.row: str(error)}, sentences):
            _refuse(context, job, planned, f"{error} for {NOT_VISIBLE_SECONDS / 3600:.0f} h")
        return sentences
    except continuation.BusyError:
        return []
    except continuation.NotContinuedError as error:
        reason = str(error)
    except errors.SpecError as error:
        reason = f"the changed spec is not valid: {error}"
    except errors.TemplateError as error:
        reason = f"its script cannot be rendered: {error}"
    _refuse(context, job, planned, reason)
    return [f"{name} is not continued: {reason}"]


def _refuse(
    context: contexts.Context, job: jobs.Job, planned: recovery.StoredDecision, detail: str
) -> None:
    """End the chain: the decision is not carried out."""
    with context.store.writing() as work:
        if work.recovery.finish(planned, "refused", detail=detail):
            work.jobs.change(job.row, {"recovers": None})
            work.events.add_many([_event(context, job, "retry", detail)])
    continuation.drop_environment(context, job)
