"""Cluster profiles: defaults and limits of a cluster, and the values a spec gets from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from orchestrator import errors, jobs
from orchestrator.toml import schema, values
from orchestrator.toml.key_paths import KeyPath

#: Path of a key, and what is wrong there.
Finding: TypeAlias = tuple[KeyPath, str]

#: Name of the profile if no file has one.
BUILT_IN = "default"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """`[profiles.NAME.partitions.PARTITION]`: limits that a spec is checked against."""

    #: longest time limit
    max_time: str | None = None
    #: GPUs of a node
    gpus_per_node: int | None = None
    #: type of these GPUs, "a100"
    gpu_type: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """`[profiles.NAME]`: a cluster and its defaults."""

    #: its table's name
    name: str = BUILT_IN
    #: auto: Slurm if sbatch is on PATH or the profile sets partition, account or QOS; else this
    #: machine
    scheduler: Literal["auto", "slurm", "local"] = "auto"
    #: account, used if the spec sets none
    account: str | None = None
    #: partition, used if the spec sets none
    partition: str | None = None
    #: QOS, used if the spec sets none
    qos: str | None = None
    #: option that requests GPUs: --gpus-per-node or --gres
    gres_style: Literal["gpus_per_node", "gres"] = "gpus_per_node"
    #: environment modules, used if the spec sets none
    modules: tuple[str, ...] = ()
    #: maker of the GPUs, used if the spec sets none
    gpu_vendor: Literal["nvidia", "amd", "intel"] | None = None
    #: network between the nodes, used if the spec sets none: a name of `orchestrator config
    #: fabrics`
    fabric: str | None = None
    #: files and folders bound into every container, before those of the spec
    binds: tuple[str, ...] = ()
    #: variables exported into every job; those of the spec override them
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: limits by partition
    partitions: Mapping[str, Partition] = dataclasses.field(default_factory=dict)
    #: minimum age of Slurm's last reply before the next query, in seconds
    poll_floor_seconds: int = 10
    #: seconds between two controller passes
    serve_interval_seconds: int = 60
    #: another controller may take the lease if it was not renewed for so many seconds
    lease_seconds: int = 30
    #: submit defers jobs that Slurm refuses for now (submit limit), as with --queue
    queue_submissions: bool = False
    #: deferred submissions are retried after so many seconds, then after twice that
    resend_min_seconds: int = 60
    #: longest pause before a deferred submission is retried, in seconds
    resend_max_seconds: int = 900
    #: submit limit; arrays of a sweep with more points have at most half as many tasks; default:
    #: the limit in Slurm's accounting
    max_submit_jobs: int | None = None
    #: sweeps with more points need a confirmation
    confirm_points: int = 500
    #: sweeps that request more GPU-hours need a confirmation
    confirm_gpu_hours: int = 500
    #: seconds for which a job may be unknown to Slurm before it counts as not submitted or lost;
    #: default: 3 x MessageTimeout, at least 120
    submit_grace_seconds: int | None = None
    #: defaults of the specs
    alerts: jobs.Alerts = dataclasses.field(default_factory=jobs.Alerts)
    #: defaults of the specs; a job keeps the values of its submission
    retry: jobs.Retry = dataclasses.field(default_factory=jobs.Retry)
    #: defaults of the specs
    code: jobs.Code = dataclasses.field(default_factory=jobs.Code)
    #: defaults of the specs; a job keeps the values of its submission
    tracking: jobs.Tracking = dataclasses.field(default_factory=jobs.Tracking)
    #: without Slurm: GPUs of this machine to use, or jobs at a time if it has none; default: all
    #: GPUs, or 1 job
    local_slots: int | None = None
    #: without Slurm: seconds from TERM to KILL when a job is cancelled or times out (as KillWait)
    local_kill_wait_seconds: int = 30


def findings(profile: Profile, at: KeyPath) -> Iterator[Finding]:
    """Yield what is wrong with a profile whose types are right."""
    tables: dict[KeyPath, object] = {(): profile}
    tables |= {("alerts",): profile.alerts, ("retry",): profile.retry, ("code",): profile.code}
    tables[("tracking",)] = profile.tracking
    tables |= {("partitions", name): limits for name, limits in profile.partitions.items()}
    for table, record in tables.items():
        for path, error in schema.value_errors(record):
            yield (*at, *table, *path), error
    if profile.tracking != jobs.Tracking():
        from orchestrator.trackers import checks

        for path, error in checks.findings(profile.tracking):
            yield (*at, "tracking", *path), error
    if profile.retry != jobs.Retry():
        from orchestrator.specs import retry_checks

        for path, error in retry_checks.findings(profile.retry):
            yield (*at, "retry", *path), error
    if "/" in (profile.fabric or ""):
        # The trust of a project's file does not include that file.
        message = "must be a name of `orchestrator config fabrics`; only a spec may name a file"
        yield (*at, "fabric"), message
    for name in jobs.SET_BY_US:
        if getattr(profile.code, name):
            yield (*at, "code", name), jobs.SET_BY_US_MESSAGE
    for name in profile.variables:
        if error := values.variable_name_error(name):
            yield (*at, "variables", name), error
    for name in profile.partitions:
        if error := values.form_error("partition", name):
            yield (*at, "partitions", name), error


def fill(spec: jobs.JobSpec, profile: Profile) -> jobs.JobSpec:
    """Return the spec with the profile's defaults.

    Raises SpecError if it exceeds the limits of each of its partitions.
    """
    filled = with_defaults(spec, profile)
    # No defaults of stored specs: a job that was submitted without a snapshot has none.
    filled = dataclasses.replace(
        filled,
        code=spec.code.over(profile.code),
        tracking=spec.tracking.over(profile.tracking),
    )
    tracking = filled.tracking
    needs_project = "mlflow" in (tracking.trackers or ()) and spec.launch.batch_file is None
    if needs_project and tracking.project is None:
        message = "is missing: mlflow needs the name of the experiment that the program uses"
        raise errors.SpecError([errors.Problem(source="", key="tracking.project", message=message)])
    container = filled.container
    if not container.properties.binds_read_only:
        # Those of the spec were checked.
        for bind in [bind for bind in container.binds or () if bind.endswith(":ro")]:
            message = (
                f"{container.runtime} cannot bind {bind} of the profile read-only: name it here "
                "without :ro, and the job can write there"
            )
            raise errors.SpecError(
                [errors.Problem(source="", key="container.binds", message=message)]
            )
    # Slurm takes the first partition that can start the job.
    problems: list[errors.Problem] = []
    for name in (filled.partition or "").split(","):
        excess = list(_excess(filled, name, profile.partitions.get(name, Partition())))
        if not excess:
            return filled
        problems += [
            errors.Problem(source=f"profile {profile.name}", key=key, message=message)
            for key, message in excess
        ]
    raise errors.SpecError(problems)


def with_defaults(spec: jobs.JobSpec, profile: Profile) -> jobs.JobSpec:
    """Return the spec with the profile's defaults; the same once more changes nothing.

    An empty value in the spec stays empty.
    """
    modules, variables = spec.environment.modules, spec.environment.variables
    environment = dataclasses.replace(
        spec.environment,
        modules=profile.modules if modules is None else modules,
        fabric=profile.fabric if spec.environment.fabric is None else spec.environment.fabric,
        variables={} if variables == {} else {**profile.variables, **(variables or {})},
    )
    container = spec.container
    if container.runtime != "none" and container.binds != ():
        binds = container.binds or ()
        targets = {bind_target(bind) for bind in binds}
        added = tuple(bind for bind in profile.binds if bind_target(bind) not in targets)
        container = dataclasses.replace(container, binds=(*added, *binds))
    return dataclasses.replace(
        spec,
        account=profile.account if spec.account is None else spec.account,
        partition=profile.partition if spec.partition is None else spec.partition,
        qos=profile.qos if spec.qos is None else spec.qos,
        resources=dataclasses.replace(
            spec.resources, gpu_vendor=spec.resources.gpu_vendor or profile.gpu_vendor
        ),
        environment=environment,
        container=container,
        retry=spec.retry.over(profile.retry),
    )


def bind_target(bind: str) -> str:
    """Return the path of a bind inside the container."""
    return bind.split(":")[1 if ":" in bind else 0]


def _excess(spec: jobs.JobSpec, name: str, limits: Partition) -> Iterator[tuple[str, str]]:
    gpus, gpu_type = spec.resources.gpus_per_node, spec.resources.gpu_type
    if gpus is not None and limits.gpus_per_node is not None and gpus > limits.gpus_per_node:
        message = f"partition {name} has {limits.gpus_per_node} GPUs per node (requested: {gpus})"
        yield "resources.gpus_per_node", message
    if gpu_type is not None and limits.gpu_type is not None and gpu_type != limits.gpu_type:
        message = f'partition {name} has GPUs of type "{limits.gpu_type}" (requested: "{gpu_type}")'
        yield "resources.gpu_type", message
    if spec.time_limit is not None and limits.max_time is not None:
        seconds, max_seconds = values.seconds(spec.time_limit), values.seconds(limits.max_time)
        if max_seconds is not None and (seconds is None or seconds > max_seconds):
            message = f"partition {name} allows {limits.max_time} (requested: {spec.time_limit})"
            yield "job.time_limit", message
