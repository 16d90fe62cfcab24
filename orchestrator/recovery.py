"""What follows a failure: its cause, the rules of `[retry]`, what was done before. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping, Sequence

from orchestrator import jobs, values
from orchestrator.jobs import retry
from orchestrator.specs import changes as spec_changes

#: Where `limits` says nothing: goings-on at the time limit, as many as the job script's own
#: requeues (ORCHESTRATOR_RESTART_LIMIT), and starts after a cause that comes and goes.
CONTINUED_LIMIT = 20
MAYBE_LIMIT = 2
BACKOFF_SECONDS = 60
BACKOFF_MAX_SECONDS = 3600
EXCLUDE_AFTER = 2
#: Key of what is left out of the next start's nodes.
EXCLUDE = "job.exclude"
#: After these a new job goes on. To reach a time limit is a link of a chain; and of a job that was
#: preempted by PreemptMode=CANCEL and requeued Slurm says PREEMPTED whatever its next end (24.11).
_NEW_JOB = frozenset({"preempted", retry.CONTINUED})
#: After these the queue itself is pause enough.
_AT_ONCE = _NEW_JOB


class Action(enum.StrEnum):
    """What is done."""

    #: the same job waits again
    REQUEUE = "requeue"
    #: a new job goes on with its work
    CONTINUE = "continue"
    NONE = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an attempt came."""

    #: step of its newest checkpoint, else the highest step that it told; none: neither is known
    step: int | None = None
    #: it wrote a checkpoint
    saved: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a job that failed."""

    #: a word of diagnosis, and the same in words: "a GPU ran out of memory"
    cause: str
    title: str
    #: whether it comes and goes: another start may or may not do better
    maybe: bool
    spec: jobs.JobSpec
    #: of an array
    task: int | None = None
    #: somebody asked for its end
    cancelled: bool = False
    progress: Progress = Progress()
    #: of the whole chain
    gpu_hours: float = 0.0
    #: failures by host, of the whole chain; empty where no node is at fault
    node_failures: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Past:
    """What was decided of an attempt of the chain before."""

    cause: str
    action: Action
    step: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows a failure, and why."""

    action: Action
    cause: str
    #: what decides it, a key of [retry] or a few words
    rule: str
    #: a plain sentence
    why: str
    #: when it is done at the earliest; none: nothing is done
    due_at: datetime.datetime | None = None
    #: keys of the spec and their new values
    changes: Mapping[str, jobs.ArgumentValue] = dataclasses.field(default_factory=dict)
    step: int | None = None


class _NoStart(Exception):
    """Nothing follows; rule and sentence."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule


def decide(
    facts: Facts, rules: jobs.Retry, history: Sequence[Past], now: datetime.datetime
) -> Decision:
    """Return what follows the failure; `history` is of the whole chain, oldest first."""
    starts = [past for past in history if past.action is not Action.NONE]
    alike = [past for past in starts if past.cause == facts.cause]
    try:
        _refuse_hopeless(facts, rules)
        which = _within_limits(facts, rules, starts, alike)
        further = _further(facts, rules, alike)
        changes = _changes(facts, rules)
    except _NoStart as none:
        return Decision(
            action=Action.NONE,
            cause=facts.cause,
            rule=none.rule,
            why=f"{facts.cause}: {none}; it is not started again",
            step=facts.progress.step,
        )
    pause_seconds = 0
    if facts.cause not in _AT_ONCE and facts.cause not in rules.changes:
        first = _or(rules.backoff_seconds, BACKOFF_SECONDS)
        longest = _or(rules.backoff_max_seconds, BACKOFF_MAX_SECONDS)
        # Beyond 2**30 pauses the longest has long been reached.
        pause_seconds = min(first * 2 ** min(len(alike), 30), longest)
    same = not changes and facts.cause not in _NEW_JOB and facts.spec.requeue is not False
    action = Action.REQUEUE if same else Action.CONTINUE
    return Decision(
        action=action,
        cause=facts.cause,
        rule="retry.changes" if facts.cause in rules.changes else "retry",
        why=_sentence(facts, action, further, changes, pause_seconds, which),
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


def _within_limits(
    facts: Facts, rules: jobs.Retry, starts: Sequence[Past], alike: Sequence[Past]
) -> str:
    """Return which start this is of how many."""
    cause, most = facts.cause, rules.max_retries or 0
    default = CONTINUED_LIMIT if cause == retry.CONTINUED else MAYBE_LIMIT if facts.maybe else None
    limit = rules.limits.get(cause, default)
    if limit is not None and len(alike) >= limit:
        times = "once" if limit == 1 else f"{limit} times"
        raise _NoStart(f"retry.limits.{cause}", f"it was started again {times} after it")
    if rules.gpu_hours is not None and facts.gpu_hours >= rules.gpu_hours:
        told = f"{facts.gpu_hours:.1f} GPU-hours are used, of {rules.gpu_hours} of retry.gpu_hours"
        raise _NoStart("retry.gpu_hours", told)
    if cause == retry.CONTINUED:
        return f"{len(alike) + 1} of at most {limit}"
    done = sum(past.cause != retry.CONTINUED for past in starts)
    if done >= most:
        times = "never" if most == 0 else "once" if most == 1 else f"{most} times"
        raise _NoStart("retry.max_retries", f"it was started again {times}, all of max_retries")
    return f"{done + 1} of at most {most}"


def _further(facts: Facts, rules: jobs.Retry, alike: Sequence[Past]) -> str:
    """Return how far it came, for a sentence; of what reached its time limit it must be further."""
    far = facts.progress
    told = "" if far.step is None else f"it came to step {far.step}"
    if facts.cause != retry.CONTINUED or facts.cause in rules.changes:
        return told
    before = next((past.step for past in reversed(alike) if past.step is not None), None)
    if far.step is None and not far.saved:
        raise _NoStart(
            "progress", "it left no checkpoint and told no step, so that the next would begin anew"
        )
    if far.step is not None and before is not None and far.step <= before:
        raise _NoStart(
            "progress", f"it came to step {far.step}, no further than the one before ({before})"
        )
    return told or "it left a checkpoint"


def _changes(facts: Facts, rules: jobs.Retry) -> dict[str, jobs.ArgumentValue]:
    found: dict[str, jobs.ArgumentValue] = {}
    spec = facts.spec
    for key, value in rules.changes.get(facts.cause, {}).items():
        try:
            spec, found[key] = spec_changes.changed(spec, key, value, task=facts.task)
        except spec_changes.CannotChangeError as problem:
            raise _NoStart(f"retry.changes.{facts.cause}", str(problem)) from problem
    after = _or(rules.exclude_after, EXCLUDE_AFTER)
    bad = [host for host, times in facts.node_failures.items() if after and times >= after]
    before = [one for one in (_excluded(facts.spec) or "").split(",") if one]
    # A host that the spec asks for by name cannot be left out.
    new = [one for one in sorted(bad) if one not in before and one not in _asked(facts.spec)]
    if new:
        found[EXCLUDE] = ",".join([*before, *new])
    return found


def _excluded(spec: jobs.JobSpec) -> str | None:
    if spec.launch.batch_file is not None:
        return str(spec.sbatch["exclude"]) if "exclude" in spec.sbatch else None
    return spec.exclude


def _asked(spec: jobs.JobSpec) -> list[str]:
    return (spec.nodelist or "").split(",")


def changed(
    spec: jobs.JobSpec, changes: Mapping[str, jobs.ArgumentValue], *, task: int | None = None
) -> jobs.JobSpec:
    """Return the spec with the changes of a decision."""
    for key, value in changes.items():
        if key == EXCLUDE and spec.launch.batch_file is not None:
            # What a batch file is given besides stands on sbatch's command line.
            spec = dataclasses.replace(spec, sbatch={**spec.sbatch, "exclude": str(value)})
            continue
        spec, _ = spec_changes.changed(spec, key, value, task=task)
    return spec


def _sentence(
    facts: Facts,
    action: Action,
    further: str,
    changes: Mapping[str, jobs.ArgumentValue],
    pause_seconds: float,
    which: str,
) -> str:
    parts = [further] if further else []
    what = "it waits again" if action is Action.REQUEUE else "a new job goes on with it"
    asked = [f"{key} = {value}" for key, value in changes.items() if key != EXCLUDE]
    if asked:
        what += f", with {', '.join(asked)}"
    if EXCLUDE in changes:
        what += f", without {changes[EXCLUDE]}"
    if pause_seconds:
        what += f", in {values.elapsed(pause_seconds)}"
    return f"{facts.cause}: {'; '.join([*parts, what])} ({which})"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
