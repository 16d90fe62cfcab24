"""What a spec asks for that one machine without Slurm cannot give, or does not know."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator import errors, jobs
from orchestrator.jobs import dependency
from orchestrator.local import queue, slots

#: Keys that are Slurm's affair alone.
_JOB = (
    "partition",
    "account",
    "qos",
    "reservation",
    "constraint",
    "mail_type",
    "mail_user",
    "nodelist",
    "exclude",
)
_RESOURCES = ("ntasks", "ntasks_per_node", "mem", "mem_per_cpu", "mem_per_gpu", "gpu_type", "tmp")


def refuse_unfit(spec: jobs.JobSpec) -> None:
    """Raise SpecError, with all problems, for a spec that cannot run on one machine."""
    problems = [
        errors.Problem(source="scheduler local", key=key, message=message)
        for key, message in _misfits(spec)
    ]
    if problems:
        raise errors.SpecError(problems)


def refuse_too_big(asked: int | None, found: slots.Slots) -> None:
    """Raise SpecError where more GPUs are asked for than the machine has."""
    if found.are_gpus and asked is not None and asked > len(found.devices):
        told = (
            f"this machine has {len(found.devices)} for jobs (asked for {asked}): "
            "ask for fewer, or see local_slots and CUDA_VISIBLE_DEVICES"
        )
        key = "resources.gpus_per_node"
        raise errors.SpecError([errors.Problem(source="scheduler local", key=key, message=told)])


def dependencies(dependency: str) -> list[str]:
    """Return the IDs of the jobs that a dependency names."""
    return [one.job_id for one in queue.conditions(dependency) if one.job_id]


def ignored(spec: jobs.JobSpec) -> list[str]:
    """Return the keys of the spec that mean nothing here."""
    found = [f"job.{key}" for key in _JOB if getattr(spec, key) is not None]
    found += [f"resources.{key}" for key in _RESOURCES if getattr(spec.resources, key) is not None]
    found += ["launch.rendezvous"] if spec.launch.rendezvous in ("c10d", "static") else []
    return found + [f"sbatch.{key}" for key in spec.sbatch]


def _misfits(spec: jobs.JobSpec) -> Iterator[tuple[str, str]]:
    nodes = spec.resources.nodes
    if nodes > 1:
        yield (
            "resources.nodes",
            f"one machine is one node (asked for {nodes}): --set resources.nodes=1, "
            "or --scheduler slurm on a cluster",
        )
    if spec.launch.launcher == "srun":
        yield (
            "launch.launcher",
            "there is no srun here: --set launch.launcher=torchrun starts the ranks, "
            "or --scheduler slurm on a cluster",
        )
    if spec.container.runtime == "pyxis":
        yield (
            "container.runtime",
            "pyxis is a part of srun: use apptainer, or --scheduler slurm on a cluster",
        )
    # Our own names become job IDs of this machine when the job gets into its line.
    slurms, _ = dependency.split(spec.dependency)
    for condition in queue.conditions(slurms or ""):
        if condition.kind not in ("singleton", *queue.KINDS):
            yield (
                "job.dependency",
                f"{condition.kind} is for arrays and burst buffers of Slurm: "
                f"here there are {', '.join(queue.KINDS)} and singleton",
            )
        elif condition.job_id and not condition.job_id.startswith("local-"):
            yield (
                "job.dependency",
                f"{condition.job_id} is a job ID of Slurm's: this machine's read local-7, "
                "or --scheduler slurm on a cluster",
            )
        elif "+" in condition.job_id:
            yield (
                "job.dependency",
                f"minutes after another job ({condition.job_id}) are not counted here: "
                "leave them out, or --scheduler slurm on a cluster",
            )
