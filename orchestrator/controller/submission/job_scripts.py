"""Render a spec as a batch script. Needs neither Slurm nor the database."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orchestrator
from orchestrator import config, errors, jobs
from orchestrator.jobs import dependency
from orchestrator.rendering import job_script, templates

if typing.TYPE_CHECKING:
    from orchestrator import fabrics
    from orchestrator.controller.session import clusters

_LOCAL_ID = re.compile(r"local-[0-9]+(?:_[0-9]+)?")
#: slurmctld's default of max_script_size (man slurm.conf, SchedulerParameters)
MAX_SCRIPT_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A spec and where it comes from."""

    spec: jobs.JobSpec
    #: the file with the spec, or "flags"
    source: str
    #: the command line
    argv: Sequence[str] = ()


def is_local(configuration: config.Configuration, environ: Mapping[str, str]) -> bool:
    """Return whether jobs run on this machine: as the profile says, else if there is no sbatch.

    A profile that describes a cluster is for Slurm. Otherwise jobs would run on a login node where
    the module that provides Slurm is not loaded.
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
    """Return the text of the script that `submit` would submit in this environment."""
    is_local_job = is_local(configuration, environ)
    return render(configuration, request, is_local=is_local_job).text


def render(
    configuration: config.Configuration, request: Request, *, is_local: bool
) -> templates.Script:
    """Return the script that is submitted, byte for byte; raises SpecError or TemplateError."""
    spec, source = request.spec, request.source
    local_id = _LOCAL_ID.search(dependency.split(spec.dependency)[0] or "")
    if local_id and not is_local:
        raise _problem(
            source,
            f"{local_id[0]} is a local job; a job ID of Slurm is a number",
            key="job.dependency",
        )
    if spec.metrics.patterns or spec.metrics.pattern:
        # A misspelt name that is found when the log is read would cost the metrics of a run.
        from orchestrator.controller.metrics import job_patterns

        job_patterns.of_job(job_patterns.configured(configuration), spec, source=source)
    render_script: Callable[..., templates.Script]
    if spec.launch.batch_file is not None:
        from orchestrator.rendering import batch_file

        text = batch_file.read_text(Path(spec.launch.batch_file))
        render_script = functools.partial(batch_file.render, spec, text)
    else:
        render_script = functools.partial(
            job_script.render, spec, configuration.profile, fabric=fabric_of(configuration, spec)
        )
    script = render_script(
        runs_dir=configuration.runs_dir,
        templates_dir=configuration.templates_dir,
        shared_folders=configuration.shared_folders,
        local=is_local,
        origin=templates.Origin(version=orchestrator.__version__, spec=source),
    )
    if is_local:
        from orchestrator.local import checks
        from orchestrator.rendering import batch_options

        checks.check_spec(batch_options.with_directives(spec, script.text))
    size_bytes = len(script.text.encode())
    if size_bytes >= MAX_SCRIPT_BYTES:
        raise _problem(
            source,
            f"the script has {size_bytes} bytes and Slurm accepts less than "
            f"{MAX_SCRIPT_BYTES}: split it into several arrays, or let the program read long "
            "values from a file",
        )
    return script


def fabric_of(configuration: config.Configuration, spec: jobs.JobSpec) -> fabrics.Fabric | None:
    """Return the fabric of a job, its own or the profile's. Raises SpecError."""
    name = spec.environment.fabric
    name = configuration.profile.fabric if name is None else name
    if not name:
        return None
    from orchestrator import fabrics

    return fabrics.load(name, configuration.fabric_folders, configuration.shared_folders)


def refuse_too_many_tasks(request: Request, facts: clusters.Facts) -> None:
    """Raise SpecError for an array with more tasks than the cluster accepts."""
    tasks = request.spec.array.task_ids
    # MaxArraySize limits the index, which starts at 0 (man slurm.conf).
    if tasks is None or len(tasks) <= facts.max_array_size:
        return
    raise _problem(
        request.source,
        f"{len(tasks)} tasks are more than cluster {facts.cluster} accepts in one array "
        f"(MaxArraySize {facts.max_array_size}): split them into several arrays",
        key="array.size" if request.spec.array.tasks is None else "array.tasks",
    )


def _problem(source: str, message: str, *, key: str = "") -> errors.SpecError:
    return errors.SpecError([errors.Problem(source=source, key=key, message=message)])
