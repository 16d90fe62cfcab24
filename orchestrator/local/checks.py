"""Which parts of a spec one machine without Slurm cannot provide, or ignores."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator import errors, jobs
from orchestrator.jobs import dependency
from orchestrator.local import queue
from orchestrator.local.slots import Slots
from orchestrator.specs import ranks

#: Keys that only Slurm uses.
_JOB_KEYS = (
    *("partition", "account", "qos", "reservation", "constraint"),
    *("mail_type", "mail_user", "nodelist", "exclude"),
)
_RESOURCE_KEYS = (
    *("ntasks", "ntasks_per_node", "mem", "mem_per_cpu", "mem_per_gpu", "gpu_type", "tmp"),
)
_SOURCE = "scheduler local"


def check_spec(spec: jobs.JobSpec) -> None:
    """Raise SpecError with all reasons why the spec cannot run on one machine."""
    problems = [
        errors.Problem(source=_SOURCE, key=key, message=message) for key, message in _problems(spec)
    ]
    if problems:
        raise errors.SpecError(problems)


def check_gpus(requested: int | None, slots: Slots) -> None:
    """Raise SpecError if more GPUs are requested than this machine has."""
    if slots.are_gpus and requested is not None and requested > len(slots.devices):
        message = (
            f"{requested} GPUs requested, but this machine has {len(slots.devices)} for jobs: "
            "request fewer, check local_slots and CUDA_VISIBLE_DEVICES, or run on the CPU "
            "with CUDA_VISIBLE_DEVICES="
        )
        key = "resources.gpus_per_node"
        raise errors.SpecError([errors.Problem(source=_SOURCE, key=key, message=message)])


def dependency_job_ids(dependency: str) -> list[str]:
    return [part.job_id for part in queue.conditions(dependency) if part.job_id]


def ignored_keys(spec: jobs.JobSpec) -> list[str]:
    """Return the keys of the spec that have no effect without Slurm."""
    keys = [f"job.{key}" for key in _JOB_KEYS if getattr(spec, key) is not None]
    resources = [key for key in _RESOURCE_KEYS if getattr(spec.resources, key) is not None]
    if ranks.is_set_by_tasks(spec):
        resources = [key for key in resources if not key.startswith("ntasks")]
    keys += [f"resources.{key}" for key in resources]
    keys += ["launch.rendezvous"] if spec.launch.rendezvous in ("c10d", "static") else []
    return keys + [f"sbatch.{key}" for key in spec.sbatch]


def _needs_slurm(launcher: str) -> bool:
    if launcher in ("auto", "torchrun", "srun", "python", "ray"):
        return launcher in ("srun", "ray")
    from orchestrator import plugins

    return plugins.load(plugins.Launcher, launcher).needs_slurm


def _problems(spec: jobs.JobSpec) -> Iterator[tuple[str, str]]:
    on_a_cluster = "or --scheduler slurm on a cluster"
    if spec.resources.nodes > 1:
        yield (
            "resources.nodes",
            f"{spec.resources.nodes} nodes requested, but this is one machine: "
            f"use --set resources.nodes=1, {on_a_cluster}",
        )
    if _needs_slurm(launcher := ranks.launcher_of(spec.launch)):
        framework = ranks.framework_of(spec.launch)
        instead = "torchrun" if framework is None else framework.local_launcher
        yield (
            "launch.launcher",
            f"{launcher} needs Slurm: use --set launch.launcher={instead}, {on_a_cluster}",
        )
    if spec.container.properties.needs_srun:
        yield (
            "container.runtime",
            f"{spec.container.runtime} is a plugin of Slurm's srun: use apptainer, {on_a_cluster}",
        )
    # Names of our own jobs become local job IDs when the job is submitted.
    for condition in queue.conditions(dependency.split(spec.dependency)[0] or ""):
        if condition.kind not in ("singleton", *queue.KINDS):
            message = f"{condition.kind} needs Slurm: use {', '.join(queue.KINDS)} or singleton"
        elif condition.job_id and not condition.job_id.startswith("local-"):
            message = (
                f"{condition.job_id} is a job ID of Slurm; local job IDs look like local-7: "
                f"use one, {on_a_cluster}"
            )
        elif "+" in condition.job_id:
            message = (
                f"a delay in minutes ({condition.job_id}) needs Slurm: remove it, {on_a_cluster}"
            )
        else:
            continue
        yield "job.dependency", message
