"""Cluster profiles: what holds on a cluster, and what a spec takes from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from orchestrator import errors, jobs, retries
from orchestrator.toml import key_paths, schema, values

#: Path of a key and what is wrong there.
Finding: TypeAlias = tuple[key_paths.KeyPath, str]

#: Name of the profile where no file has one.
BUILT_IN = "default"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """`[profiles.NAME.partitions.PARTITION]`: limits that a spec is held against."""

    #: longest time limit, as Slurm takes it
    max_time: str | None = None
    #: GPUs that a node has
    gpus_per_node: int | None = None
    #: their type, "a100"
    gpu_type: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """`[profiles.NAME]`: a cluster and how one works there."""

    #: its table's name
    name: str = BUILT_IN
    #: auto: Slurm where sbatch is on PATH or the profile names partition, account or QOS, else
    #: this machine
    scheduler: Literal["auto", "slurm", "local"] = "auto"
    #: used where the spec has none, as the next two
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    #: how GPUs are asked for: --gpus-per-node or --gres
    gres_style: Literal["gpus_per_node", "gres"] = "gpus_per_node"
    #: environment modules, used where the spec names none
    modules: tuple[str, ...] = ()
    #: bound into every container, before the spec's own
    binds: tuple[str, ...] = ()
    #: exported into every job; the spec's win
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: limits by partition
    partitions: Mapping[str, Partition] = dataclasses.field(default_factory=dict)
    #: Slurm is not asked again before this age of its last answer
    poll_floor_seconds: int = 10
    #: the controller does a pass so often
    serve_interval_seconds: int = 60
    #: and may be replaced when it did not renew its lease for so long
    lease_seconds: int = 30
    #: submit waits for room where Slurm refuses a job for now, as with --queue
    queue_submissions: bool = False
    #: what waits for room is sent again after so long, and after twice that each time ...
    resend_min_seconds: int = 60
    #: ... up to this
    resend_max_seconds: int = 900
    #: tasks of one job array at the most, where a QOS or an account lets few jobs wait; none: as
    #: many as Slurm's accounts say
    max_submit_jobs: int | None = None
    #: sweeps with more points, or more GPU-hours, ask before they are submitted
    confirm_points: int = 500
    confirm_gpu_hours: int = 500
    #: how long a submission without an answer is looked for; none: max(3 x MessageTimeout, 120)
    submit_grace_seconds: int | None = None
    #: for jobs whose spec says nothing of them
    alerts: jobs.Alerts = dataclasses.field(default_factory=jobs.Alerts)
    #: what follows a failure, where the spec does not say; a job keeps what held when it was sent
    retry: jobs.Retry = dataclasses.field(default_factory=jobs.Retry)
    #: without Slurm: so many GPUs of this machine at the most, or jobs at a time where it has none
    local_slots: int | None = None
    #: without Slurm: from TERM to KILL when a job is cancelled or its time is up (Slurm: KillWait)
    local_kill_wait_seconds: int = 30


def findings(profile: Profile, at: key_paths.KeyPath) -> Iterator[Finding]:
    """Give what is wrong with a profile whose types are right."""
    for key in ("account", "partition", "qos"):
        value = getattr(profile, key)
        if value is not None and (misfit := values.form_error(key, value)):
            yield (*at, key), f"{misfit} (got {schema.as_toml(value)})"
    for key in (
        "poll_floor_seconds",
        "serve_interval_seconds",
        "lease_seconds",
        "submit_grace_seconds",
        "resend_min_seconds",
        "resend_max_seconds",
        "max_submit_jobs",
        "confirm_points",
        "confirm_gpu_hours",
        "local_slots",
        "local_kill_wait_seconds",
    ):
        number = getattr(profile, key)
        if number is not None and number < 1:
            yield (*at, key), f"must be >= 1 (got {number})"
    for key, most in (("stalled_minutes", 10**6), ("slow_percent", 99)):
        number = getattr(profile.alerts, key)
        if number is not None and not 0 <= number <= most:
            yield (*at, "alerts", key), f"must be from 0 to {most} (got {number})"
    for path, told in retries.findings(profile.retry):
        yield (*at, "retry", *path), told
    for place, module in enumerate(profile.modules):
        if not module or module.startswith("-"):
            yield (*at, "modules", place), f"must be a module's name (got {schema.as_toml(module)})"
    for place, bind in enumerate(profile.binds):
        if not values.is_bind(bind):
            told = f"must be {values.BIND_WORDS} (got {schema.as_toml(bind)})"
            yield (*at, "binds", place), told
    for name in profile.variables:
        if told := values.variable_name_error(name):
            yield (*at, "variables", name), told
    for partition, limits in profile.partitions.items():
        yield from _partition_findings(limits, (*at, "partitions", partition))


def _partition_findings(limits: Partition, at: key_paths.KeyPath) -> Iterator[Finding]:
    if misfit := values.form_error("partition", str(at[-1])):
        yield at, misfit
    for key, value in (("max_time", limits.max_time), ("gpu_type", limits.gpu_type)):
        if value is not None and (misfit := values.form_error(key, value)):
            yield (*at, key), f"{misfit} (got {schema.as_toml(value)})"
    if limits.gpus_per_node is not None and limits.gpus_per_node < 0:
        yield (*at, "gpus_per_node"), f"must be >= 0 (got {limits.gpus_per_node})"


def fill(spec: jobs.JobSpec, profile: Profile) -> jobs.JobSpec:
    """Return the spec with what it leaves open taken from the profile.

    SpecError where it asks for more than each of its partitions has.
    """
    environment = dataclasses.replace(
        spec.environment,
        modules=spec.environment.modules or profile.modules,
        variables={**profile.variables, **spec.environment.variables},
    )
    container = spec.container
    if container.runtime != "none":
        inside = {_inside(bind) for bind in container.binds}
        added = tuple(bind for bind in profile.binds if _inside(bind) not in inside)
        container = dataclasses.replace(container, binds=(*added, *container.binds))
    filled = dataclasses.replace(
        spec,
        account=spec.account or profile.account,
        partition=spec.partition or profile.partition,
        qos=spec.qos or profile.qos,
        environment=environment,
        container=container,
        retry=spec.retry.over(profile.retry),
    )
    problems = _over_limits(filled, profile)
    if problems:
        raise errors.SpecError(problems)
    return filled


def _inside(bind: str) -> str:
    source, *rest = bind.split(":")
    return rest[0] if rest else source


def _over_limits(spec: jobs.JobSpec, profile: Profile) -> list[errors.Problem]:
    """Return what no partition of the spec can give; Slurm takes the first that can start it."""
    found: list[errors.Problem] = []
    for name in (spec.partition or "").split(","):
        limits = profile.partitions.get(name)
        problems = [
            errors.Problem(source=f"profile {profile.name}", key=key, message=message)
            for key, message in (_excess(spec, name, limits) if limits else ())
        ]
        if not problems:
            return []
        found.extend(problems)
    return found


def _excess(spec: jobs.JobSpec, name: str, limits: Partition) -> Iterator[tuple[str, str]]:
    asked, most = spec.resources.gpus_per_node, limits.gpus_per_node
    if asked is not None and most is not None and asked > most:
        told = f"partition {name} has {most} GPUs a node (asked for {asked})"
        yield "resources.gpus_per_node", told
    kind = spec.resources.gpu_type
    if kind is not None and limits.gpu_type is not None and kind != limits.gpu_type:
        told = f'partition {name} has GPUs of type "{limits.gpu_type}" (asked for "{kind}")'
        yield "resources.gpu_type", told
    if spec.time_limit is not None and limits.max_time is not None:
        wanted, longest = values.seconds(spec.time_limit), values.seconds(limits.max_time)
        if longest is not None and (wanted is None or wanted > longest):
            told = f"partition {name} allows {limits.max_time} (asked for {spec.time_limit})"
            yield "job.time_limit", told
