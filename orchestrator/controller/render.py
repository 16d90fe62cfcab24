"""render: what a spec becomes; needs neither Slurm nor the database."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import orchestrator
from orchestrator import config, jobs, patterns, rendering


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
    return rendering.render(
        request.spec,
        configuration.profile,
        runs_dir=configuration.runs_dir,
        templates_dir=configuration.templates_dir,
        origin=rendering.Origin(version=orchestrator.__version__, spec=request.source),
    )
