"""Decide what follows a failure, from its cause, the rules of `[retry]` and earlier decisions."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from orchestrator import jobs
from orchestrator.jobs import retry
from orchestrator.recovery.records import Action, Decision, Facts
from orchestrator.specs import changes as spec_changes
from orchestrator.toml import values

#: Defaults of `limits`: continuations at the time limit, as many as the job script's own requeues
#: (ORCHESTRATOR_RESTART_LIMIT), and starts after a transient cause.
CONTINUED_LIMIT = 20
MAYBE_LIMIT = 2
BACKOFF_SECONDS = 60
BACKOFF_MAX_SECONDS = 3600
EXCLUDE_AFTER = 2
#: Key of the nodes that the next start avoids.
EXCLUDE = "job.exclude"
#: After these causes a new job continues. A chain expects to reach time limits; and Slurm (24.11)
#: reports PREEMPTED for a job that PreemptMode=CANCEL preempted and that was requeued, however it
#: ends later.
_NEW_JOB = frozenset({"preempted", retry.CONTINUED})
#: After these causes the time in the queue is pause enough.
_AT_ONCE = _NEW_JOB


class _NoStart(Exception):
    """The job is not started again, with the rule and a sentence."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule


def decide(
    facts: Facts, rules: jobs.Retry, history: Sequence[Decision], now: datetime.datetime
) -> Decision:
    """Return what follows the failure.

    `history` has the decisions about the whole chain, oldest first, without refused ones.
    """
    starts = [decision for decision in history if decision.action is not Action.NONE]
    same_cause = [decision for decision in starts if decision.cause == facts.cause]
    try:
        _refuse_hopeless(facts, rules)
        count = _check_limits(facts, rules, starts, same_cause)
        reached = _check_progress(facts, rules, same_cause)
        changes = _changes(facts, rules)
    except _NoStart as refusal:
        return Decision(
            action=Action.NONE,
            cause=facts.cause,
            rule=refusal.rule,
            why=f"{facts.cause}: {refusal}; it is not started again",
            step=facts.progress.step,
        )
    pause_seconds = 0
    if facts.cause not in _AT_ONCE and facts.cause not in rules.changes:
        first = _or(rules.backoff_seconds, BACKOFF_SECONDS)
        longest = _or(rules.backoff_max_seconds, BACKOFF_MAX_SECONDS)
        # After 30 doublings the longest pause has long been reached.
        pause_seconds = min(first * 2 ** min(len(same_cause), 30), longest)
    can_requeue = not changes and facts.cause not in _NEW_JOB and facts.spec.requeue is not False
    action = Action.REQUEUE if can_requeue else Action.CONTINUE
    return Decision(
        action=action,
        cause=facts.cause,
        rule="retry.changes" if facts.cause in rules.changes else "retry",
        why=_sentence(facts, action, reached, changes, pause_seconds, count),
        due_at=now + datetime.timedelta(seconds=pause_seconds),
        changes=changes,
        step=facts.progress.step,
    )


def _refuse_hopeless(facts: Facts, rules: jobs.Retry) -> None:
    cause = facts.cause
    if facts.cancelled or cause == "cancelled":
        raise _NoStart("cancelled", "its end was asked for")
    known = (*retry.RETRIED, retry.CONTINUED, *retry.ASKED_FOR, *retry.CHANGED)
    if cause not in known:
        raise _NoStart("never", f"{facts.title}, and another start would end the same way")
    if rules.on is not None and cause not in rules.on:
        raise _NoStart("retry.on", "it is not among the causes of retry.on")
    if cause in retry.ASKED_FOR and rules.on is None:
        raise _NoStart("retry.on", "it may run on unseen; retry.on does not name it")
    if cause in retry.CHANGED and cause not in rules.changes:
        raise _NoStart(
            "retry.changes", f"it needs something else, and retry.changes.{cause} says nothing"
        )


def _check_limits(
    facts: Facts, rules: jobs.Retry, starts: Sequence[Decision], same_cause: Sequence[Decision]
) -> str:
    """Return the number of this start and the limit: "2 of at most 3"."""
    cause, most = facts.cause, rules.max_retries or 0
    default = CONTINUED_LIMIT if cause == retry.CONTINUED else MAYBE_LIMIT if facts.maybe else None
    limit = rules.limits.get(cause, default)
    if limit is not None and len(same_cause) >= limit:
        times = "once" if limit == 1 else f"{limit} times"
        raise _NoStart(f"retry.limits.{cause}", f"it was started again {times} after it")
    if rules.gpu_hours is not None and facts.gpu_hours >= rules.gpu_hours:
        used = f"{facts.gpu_hours:.1f} GPU-hours are used, of {rules.gpu_hours} of retry.gpu_hours"
        raise _NoStart("retry.gpu_hours", used)
    if cause == retry.CONTINUED:
        return f"{len(same_cause) + 1} of at most {limit}"
    done = sum(start.cause != retry.CONTINUED for start in starts)
    if done >= most:
        times = "never" if most == 0 else "once" if most == 1 else f"{most} times"
        raise _NoStart("retry.max_retries", f"it was started again {times}, all of max_retries")
    return f"{done + 1} of at most {most}"


def _check_progress(facts: Facts, rules: jobs.Retry, same_cause: Sequence[Decision]) -> str:
    """Return how far the job came, for a sentence.

    A job that reached its time limit must have come further than the last one that did.
    """
    step = facts.progress.step
    reached = "" if step is None else f"it came to step {step}"
    if facts.cause != retry.CONTINUED or facts.cause in rules.changes:
        return reached
    steps = [decision.step for decision in same_cause if decision.step is not None]
    if step is None and not facts.progress.saved:
        raise _NoStart(
            "progress", "it left no checkpoint and told no step, so that the next would begin anew"
        )
    if step is not None and steps and step <= steps[-1]:
        raise _NoStart(
            "progress", f"it came to step {step}, no further than the one before ({steps[-1]})"
        )
    return reached or "it left a checkpoint"


def _changes(facts: Facts, rules: jobs.Retry) -> dict[str, jobs.ArgumentValue]:
    """Return the keys of the spec that the next start changes, with their new values."""
    changes: dict[str, jobs.ArgumentValue] = {}
    spec = facts.spec
    for key, value in rules.changes.get(facts.cause, {}).items():
        try:
            spec, changes[key] = spec_changes.changed(spec, key, value, task=facts.task)
        except spec_changes.CannotChangeError as problem:
            raise _NoStart(f"retry.changes.{facts.cause}", str(problem)) from problem
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
    """Return the spec with the changes of a decision applied."""
    for key, value in changes.items():
        if key == EXCLUDE and spec.launch.batch_file is not None:
            # The spec of a batch file has no `exclude`: the option is passed to sbatch.
            spec = dataclasses.replace(spec, sbatch={**spec.sbatch, "exclude": str(value)})
            continue
        spec, _ = spec_changes.changed(spec, key, value, task=task)
    return spec


def _sentence(
    facts: Facts,
    action: Action,
    reached: str,
    changes: Mapping[str, jobs.ArgumentValue],
    pause_seconds: float,
    count: str,
) -> str:
    parts = [reached] if reached else []
    what = "it waits again" if action is Action.REQUEUE else "a new job goes on with it"
    changed_keys = [f"{key} = {value}" for key, value in changes.items() if key != EXCLUDE]
    if changed_keys:
        what += f", with {', '.join(changed_keys)}"
    if EXCLUDE in changes:
        what += f", without {changes[EXCLUDE]}"
    if pause_seconds:
        what += f", in {values.elapsed(pause_seconds)}"
    return f"{facts.cause}: {'; '.join([*parts, what])} ({count})"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
