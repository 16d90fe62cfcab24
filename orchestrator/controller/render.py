"""render: what a spec becomes; needs neither Slurm nor the database."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import orchestrator
from orchestrator import config, errors, jobs, patterns, rendering
from orchestrator.rendering import batch_file

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


def render(configuration: config.Configuration, request: Request) -> str:
    """Return the script, byte for byte what `submit` hands to sbatch."""
    if request.spec.metrics.patterns:
        # Found out only when the log is read, a misspelt name would cost a run's numbers.
        patterns.select(patterns.load_shipped(), request.spec.metrics.patterns)
    script = _rendered(configuration, request)
    size_bytes = len(script.encode())
    if size_bytes >= LARGEST_SCRIPT_BYTES:
        told = (
            f"the script would have {size_bytes} bytes, and Slurm takes less than "
            f"{LARGEST_SCRIPT_BYTES}: make several arrays of it, or let the program read long "
            "values from a file"
        )
        raise errors.SpecError([errors.Problem(source=request.source, message=told)])
    return script


def _rendered(configuration: config.Configuration, request: Request) -> str:
    if request.spec.launch.batch_file is not None:
        return batch_file.render(
            request.spec,
            batch_file.read_text(Path(request.spec.launch.batch_file)),
            runs_dir=configuration.runs_dir,
            templates_dir=configuration.templates_dir,
            origin=rendering.Origin(version=orchestrator.__version__, spec=request.source),
        )
    return rendering.render(
        request.spec,
        configuration.profile,
        runs_dir=configuration.runs_dir,
        templates_dir=configuration.templates_dir,
        origin=rendering.Origin(version=orchestrator.__version__, spec=request.source),
    )


def template(
    configuration: config.Configuration, request: Request, *, runs_dir: Path
) -> tuple[str, str]:
    """Return the name of the template, and the hash of all sources that go into the script."""
    if request.spec.launch.batch_file is not None:
        text = batch_file.read_text(Path(request.spec.launch.batch_file))
        found = batch_file.template_hash(
            request.spec, text, runs_dir=runs_dir, templates_dir=configuration.templates_dir
        )
        return batch_file.TEMPLATE, found
    found = rendering.template_hash(
        request.spec,
        configuration.profile,
        runs_dir=runs_dir,
        templates_dir=configuration.templates_dir,
    )
    return rendering.TEMPLATE, found
