"""GPU-hours that jobs may use at most, with everything that starts again without being asked."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

from orchestrator import config, jobs, specs
from orchestrator.controller.session import contexts
from orchestrator.jobs import retry
from orchestrator.local import slots
from orchestrator.recovery import decisions
from orchestrator.specs import ranks
from orchestrator.sweeps import resources

#: In options of sbatch that request GPUs: gpus, gpus-per-task, gres, tres-per-task, ...
_GPU_WORDS = ("gpu", "gres", "tres")
#: Keys that a retry may change, after which a job may use more GPUs or more time.
_LARGER = frozenset(
    "job.exclusive job.partition job.signal_seconds job.time_limit "
    "resources.gpus_per_node resources.gres resources.nodes".split()
)


def by_spec(context: contexts.Context) -> Callable[[jobs.JobSpec], float | None]:
    """Return of_spec() for jobs of this context."""
    machine = None
    if context.is_local:
        machine = slots.find(context.environ, count=context.profile.local_slots)
    return functools.partial(of_spec, profile=context.profile, machine=machine)


def of_spec(
    spec: jobs.JobSpec, profile: config.Profile, machine: slots.Slots | None = None
) -> float | None:
    """Return the GPU-hours of all tasks of a job; None: unknown.

    machine: this machine, on which the job runs; None: Slurm runs it.
    """
    # What #SBATCH lines and further options of sbatch ask for is not part of the spec.
    options = " ".join(spec.sbatch)
    if spec.launch.batch_file is not None or any(word in options for word in _GPU_WORDS):
        return None
    gpus = _gpus_per_node(spec, profile) if machine is None else _gpus_here(spec, machine)
    if gpus == 0:
        return 0.0
    hours = resources.hours_of(spec, profile)
    if hours is None or gpus is None:
        return None
    of_task = _of_starts(spec, hours[1] * gpus)
    return None if of_task is None else of_task * tasks(spec)


def of_job(context: contexts.Context, job: jobs.Job) -> float | None:
    """Return the GPU-hours of a job, or of one array task, that starts again."""
    if job.tracked_name is not None:
        return 0.0 if job.gpus == 0 else _of_start(job)
    with context.store.reading() as work:
        spec = specs.from_json(work.jobs.submission_of(job.row).spec)
    # Slurm shows what the job requests until it has exclusive nodes.
    if not spec.exclusive and (hours := _of_start(job)) is not None:
        return _of_starts(spec, hours)
    hours = by_spec(context.with_scheduler(job.scheduler))(spec)
    return None if hours is None else hours / tasks(spec)


def total(hours: Iterable[float | None]) -> float | None:
    known = list(hours)
    if any(number is None for number in known):
        return None
    return math.fsum(number for number in known if number is not None)


def tasks(spec: jobs.JobSpec) -> int:
    return 1 if spec.array.task_ids is None else len(spec.array.task_ids)


def starts(spec: jobs.JobSpec) -> int:
    """Return how often a job starts at most: it requeues itself, and rules of [retry] apply.

    Not counted: that Slurm requeues a preempted job, or one whose node failed.
    """
    return _own_starts(spec) * _chain(spec.retry)


def _own_starts(spec: jobs.JobSpec) -> int:
    is_requeued = spec.signal_seconds is not None and spec.requeue is not False
    return 1 + (decisions.CONTINUED_LIMIT if is_requeued else 0)


def _chain(rules: jobs.Retry) -> int:
    """Return the number of jobs of a chain: the first one, retries and continuations."""
    if not rules.is_on:
        return 1
    is_continued = rules.on is None or retry.CONTINUED in rules.on
    limit = rules.limits.get(retry.CONTINUED, decisions.CONTINUED_LIMIT)
    return 1 + (rules.max_retries or 0) + (limit if is_continued else 0)


def _of_starts(spec: jobs.JobSpec, hours: float) -> float | None:
    rules = spec.retry
    if rules.is_on and any(_LARGER & changes.keys() for changes in rules.changes.values()):
        return None
    of_job = hours * _own_starts(spec)
    of_chain = of_job * _chain(rules)
    # The last job of a chain starts before the limit is reached.
    return of_chain if rules.gpu_hours is None else min(of_chain, rules.gpu_hours + of_job)


def _of_start(job: jobs.Job) -> float | None:
    if job.gpus is None or job.time_limit_seconds is None:
        return None
    return job.gpus * job.time_limit_seconds / 3600


def _gpus_here(spec: jobs.JobSpec, machine: slots.Slots) -> int:
    if not machine.are_gpus:
        return 0
    # A job has a GPU even if it requests none.
    return len(machine.devices) if spec.exclusive else max(1, ranks.gpus_per_node(spec))


def _gpus_per_node(spec: jobs.JobSpec, profile: config.Profile) -> int | None:
    """Return the GPUs that a job gets on each node at most; None: unknown."""
    if not spec.exclusive:
        return ranks.gpus_per_node(spec)
    # All GPUs of the node, however many are requested (man sbatch, --exclusive).
    names = (spec.partition or "").split(",")
    sizes = [profile.partitions[n].gpus_per_node for n in names if n in profile.partitions]
    known = [size for size in sizes if size is not None]
    return max(known) if known and len(known) == len(names) else None
