"""What follows a failure: from its cause, the rules of `[retry]` and earlier decisions."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from orchestrator import jobs
from orchestrator.jobs import retry
from orchestrator.recovery.records import Action, Decision, FailedJob
from orchestrator.specs import changes as spec_changes
from orchestrator.toml import values

#: Defaults of `limits`. After a time limit: as many as the job script's own requeues
#: (ORCHESTRATOR_RESTART_LIMIT). After a transient cause: two.
CONTINUED_LIMIT = 20
MAYBE_LIMIT = 2
BACKOFF_SECONDS = 60
BACKOFF_MAX_SECONDS = 3600
EXCLUDE_AFTER = 2
#: Key of the nodes that the next start avoids.
EXCLUDE = "job.exclude"
#: After these causes a continuation job is submitted, without a pause because it is pending anyway.
#: Slurm 24.11 reports PREEMPTED for a job that PreemptMode=CANCEL preempted and that was requeued,
#: however it ends later.
_NEW_JOB = frozenset({"preempted", retry.CONTINUED})


class _NoRetry(Exception):
    """The job is not retried, because of a rule."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule


def decide(
    facts: FailedJob, rules: jobs.Retry, history: Sequence[Decision], now: datetime.datetime
) -> Decision:
    """Return what follows the failure.

    `history` has the decisions about the whole chain, oldest first, without refused ones.
    """
    cause = facts.cause
    starts = [decision for decision in history if decision.action is not Action.NONE]
    same_cause = [decision for decision in starts if decision.cause == cause]
    try:
        _check_cause(facts, rules)
        count = _check_limits(facts, rules, starts, same_cause)
        progress = _check_progress(facts, rules, same_cause)
        changes = _changes(facts, rules)
    except _NoRetry as refusal:
        return Decision(
            action=Action.NONE,
            cause=cause,
            rule=refusal.rule,
            detail=f"{cause}: {refusal}; no retry",
            step=facts.step,
        )
    pause_seconds = 0
    if cause not in _NEW_JOB and cause not in rules.changes:
        first = _or(rules.backoff_seconds, BACKOFF_SECONDS)
        longest = _or(rules.backoff_max_seconds, BACKOFF_MAX_SECONDS)
        # After 30 doublings the longest pause has long been reached.
        pause_seconds = min(first * 2 ** min(len(same_cause), 30), longest)
    # Slurm may start a requeued job on the same nodes.
    is_same = not changes and not facts.avoided_nodes
    can_requeue = is_same and cause not in _NEW_JOB and facts.spec.requeue is not False
    action = "the job is requeued" if can_requeue else "a continuation job is submitted"
    new_values = [f"{key} = {value}" for key, value in changes.items() if key != EXCLUDE]
    if new_values:
        action += f" with {', '.join(new_values)}"
    if without := changes.get(EXCLUDE) or ",".join(facts.avoided_nodes):
        action += f" without {without}"
    if pause_seconds:
        action += f" in {values.elapsed(pause_seconds)}"
    return Decision(
        action=Action.REQUEUE if can_requeue else Action.CONTINUE,
        cause=cause,
        rule="retry.changes" if cause in rules.changes else "retry",
        detail=f"{cause}: {progress}{action} ({count})",
        due_at=now + datetime.timedelta(seconds=pause_seconds),
        changes=changes,
        step=facts.step,
    )


def _check_cause(facts: FailedJob, rules: jobs.Retry) -> None:
    cause = facts.cause
    if facts.cancelled or cause == "cancelled":
        raise _NoRetry("cancelled", "its cancellation was requested")
    if cause not in (*retry.RETRIED, retry.CONTINUED, *retry.ASKED_FOR, *retry.CHANGED):
        raise _NoRetry("never", f"{facts.title}, and the same job would fail again")
    if rules.on is not None and cause not in rules.on:
        raise _NoRetry("retry.on", "retry.on does not list this cause")
    if cause in retry.ASKED_FOR and rules.on is None:
        why = (
            "the job may still be running without Slurm knowing, "
            f"and retry.on does not list {cause}"
        )
        raise _NoRetry("retry.on", why)
    if cause in retry.CHANGED and cause not in rules.changes:
        why = f"the same request would fail again, and retry.changes.{cause} does not change it"
        raise _NoRetry("retry.changes", why)


def _check_limits(
    facts: FailedJob, rules: jobs.Retry, starts: Sequence[Decision], same_cause: Sequence[Decision]
) -> str:
    """Return the number of this start and the limit: "2 of at most 3"."""
    cause, most = facts.cause, rules.max_retries or 0
    default = CONTINUED_LIMIT if cause == retry.CONTINUED else MAYBE_LIMIT if facts.maybe else None
    limit = rules.limits.get(cause, default)
    if limit is not None and len(same_cause) >= limit:
        rule = f"retry.limits.{cause}"
        raise _NoRetry(rule, f"the limit of retries after this cause is reached ({limit})")
    if rules.gpu_hours is not None and facts.gpu_hours >= rules.gpu_hours:
        used = f"{facts.gpu_hours:.1f} of {rules.gpu_hours} GPU-hours are used (retry.gpu_hours)"
        raise _NoRetry("retry.gpu_hours", used)
    if cause == retry.CONTINUED:
        return f"{len(same_cause) + 1} of at most {limit}"
    done = sum(start.cause != retry.CONTINUED for start in starts)
    if done >= most:
        why = f"the limit of retries is reached (max_retries = {most})"
        raise _NoRetry("retry.max_retries", why)
    return f"{done + 1} of at most {most}"


def _check_progress(facts: FailedJob, rules: jobs.Retry, same_cause: Sequence[Decision]) -> str:
    """Return the progress as the beginning of a sentence.

    A job that reached its time limit must have come further than the last one that did.
    """
    step = facts.step
    reached = "" if step is None else f"it reached step {step}; "
    if facts.cause != retry.CONTINUED or facts.cause in rules.changes:
        return reached
    earlier = [decision.step for decision in same_cause if decision.step is not None]
    if step is None and not facts.has_checkpoint:
        why = "it left no checkpoint and logged no step, so a continuation job would start over"
        raise _NoRetry("progress", why)
    if step is not None and earlier and step <= earlier[-1]:
        why = f"it reached step {step}, no further than the job before ({earlier[-1]})"
        raise _NoRetry("progress", why)
    return reached or "it left a checkpoint; "


def _changes(facts: FailedJob, rules: jobs.Retry) -> dict[str, jobs.ArgumentValue]:
    """Return the keys of the spec that the next start changes, with their new values."""
    changes: dict[str, jobs.ArgumentValue] = {}
    spec = facts.spec
    for key, value in rules.changes.get(facts.cause, {}).items():
        try:
            spec, changes[key] = spec_changes.changed(spec, key, value, task=facts.task)
        except spec_changes.CannotChangeError as problem:
            raise _NoRetry(f"retry.changes.{facts.cause}", str(problem)) from problem
    after = _or(rules.exclude_after, EXCLUDE_AFTER)
    bad = [host for host, times in facts.node_failures.items() if after and times >= after]
    excluded = [host for host in (_excluded(facts.spec) or "").split(",") if host]
    # A host that the spec requests by name cannot be excluded.
    requested = (facts.spec.nodelist or "").split(",")
    new = [host for host in sorted(bad) if host not in excluded and host not in requested]
    if new:
        changes[EXCLUDE] = ",".join([*excluded, *new])
    return changes


def _excluded(spec: jobs.JobSpec) -> str | None:
    if spec.launch.batch_file is not None:
        return str(spec.sbatch["exclude"]) if "exclude" in spec.sbatch else None
    return spec.exclude


def changed(
    spec: jobs.JobSpec, changes: Mapping[str, jobs.ArgumentValue], *, task: int | None = None
) -> jobs.JobSpec:
    for key, value in changes.items():
        if key == EXCLUDE and spec.launch.batch_file is not None:
            # The spec of a batch file has no `exclude`: the option is passed to sbatch.
            spec = dataclasses.replace(spec, sbatch={**spec.sbatch, "exclude": str(value)})
            continue
        spec, _ = spec_changes.changed(spec, key, value, task=task)
    return spec


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
