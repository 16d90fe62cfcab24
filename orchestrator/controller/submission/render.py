"""render: what a spec becomes; needs neither Slurm nor the database."""

from __future__ import annotations

import dataclasses
import os
import shutil
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import orchestrator
from orchestrator import config, errors, jobs
from orchestrator.controller.metrics import job_patterns
from orchestrator.jobs import dependency
from orchestrator.local import checks
from orchestrator.rendering import batch_file, batch_options, job_script, templates

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import clusters

#: slurmctld's default of max_script_size (man slurm.conf, SchedulerParameters); a larger script is
#: refused with "Pathname of a file, directory or other parameter too long".
LARGEST_SCRIPT_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    spec: jobs.JobSpec
    #: what the spec was read from, for the script's head and the job's papers
    source: str
    #: the command line, for the job's papers
    argv: Sequence[str] = ()


def is_local(configuration: config.Configuration, environ: Mapping[str, str]) -> bool:
    """Return whether jobs run on this machine: by the profile, else where there is no sbatch.

    A profile that describes a cluster is for that cluster: without the module that brings Slurm,
    its login node must not be taken for a place to train on.
    """
    profile = configuration.profile
    if profile.scheduler != "auto":
        return profile.scheduler == "local"
    if profile.partition or profile.account or profile.qos or profile.partitions:
        return False
    return shutil.which("sbatch", path=environ.get("PATH", os.defpath)) is None


def as_submitted(
    configuration: config.Configuration, request: Request, environ: Mapping[str, str]
) -> str:
    """Return the script that `submit` would submit in these surroundings."""
    here = is_local(configuration, environ)
    return render(configuration, request, on_this_machine=here)


def render(
    configuration: config.Configuration, request: Request, *, on_this_machine: bool = False
) -> str:
    """Return the script, byte for byte what `submit` hands to sbatch, or runs here."""
    return make(configuration, request, on_this_machine=on_this_machine).text


def make(
    configuration: config.Configuration, request: Request, *, on_this_machine: bool = False
) -> templates.Script:
    """Return the script, and what it was made of; raises SpecError or TemplateError."""
    slurms, _ = dependency.split(request.spec.dependency)
    if not on_this_machine and (
        here := [one for one in checks.dependency_job_ids(slurms or "") if "-" in one]
    ):
        told = f"{here[0]} is a job of a machine without Slurm; a job ID of Slurm's reads 123"
        problem = errors.Problem(source=request.source, key="job.dependency", message=told)
        raise errors.SpecError([problem])
    if request.spec.metrics.patterns or request.spec.metrics.pattern:
        # Found out only when the log is read, a misspelt name would cost a run's numbers.
        job_patterns.of_job(
            job_patterns.configured(configuration), request.spec, source=request.source
        )
    script = _rendered(configuration, request, on_this_machine=on_this_machine)
    if on_this_machine:
        checks.check_spec(batch_options.with_directives(request.spec, script.text))
    size_bytes = len(script.text.encode())
    if size_bytes >= LARGEST_SCRIPT_BYTES:
        told = (
            f"the script would have {size_bytes} bytes, and Slurm takes less than "
            f"{LARGEST_SCRIPT_BYTES}: make several arrays of it, or let the program read long "
            "values from a file"
        )
        raise errors.SpecError([errors.Problem(source=request.source, message=told)])
    return script


def refuse_too_many_tasks(request: Request, facts: clusters.Facts) -> None:
    """Raise SpecError for an array with more tasks than the cluster takes."""
    tasks = request.spec.array.task_ids
    # MaxArraySize is the limit of the index, which begins at 0 (man slurm.conf).
    if tasks is None or len(tasks) <= facts.max_array_size:
        return
    told = (
        f"{len(tasks)} tasks are more than cluster {facts.cluster} takes in one array: "
        f"its MaxArraySize is {facts.max_array_size}; make several arrays of them"
    )
    key = "array.size" if request.spec.array.tasks is None else "array.tasks"
    raise errors.SpecError([errors.Problem(source=request.source, key=key, message=told)])


def _rendered(
    configuration: config.Configuration, request: Request, *, on_this_machine: bool
) -> templates.Script:
    if request.spec.launch.batch_file is not None:
        return batch_file.render(
            request.spec,
            batch_file.read_text(Path(request.spec.launch.batch_file)),
            runs_dir=configuration.runs_dir,
            templates_dir=configuration.templates_dir,
            shared_folders=configuration.shared_folders,
            local=on_this_machine,
            origin=templates.Origin(version=orchestrator.__version__, spec=request.source),
        )
    return job_script.render(
        request.spec,
        configuration.profile,
        runs_dir=configuration.runs_dir,
        templates_dir=configuration.templates_dir,
        shared_folders=configuration.shared_folders,
        local=on_this_machine,
        origin=templates.Origin(version=orchestrator.__version__, spec=request.source),
    )
