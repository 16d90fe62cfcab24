"""What a batch file asks of a machine without Slurm, where nobody else reads its #SBATCH lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from orchestrator import errors, jobs
from orchestrator.rendering import batch_options

#: A line that calls srun, behind words that leave it a command.
_SRUN = re.compile(r"^\s*(?:(?:exec|time|if|!|then|do|\w+=\S*)\s+)*srun\b")


def of(spec: jobs.JobSpec, script: str) -> jobs.JobSpec:
    """Return the spec with what its script's directives ask for; one without batch file as it is.

    What the command line says wins, as it does on sbatch's. Raises SpecError for a file that calls
    srun.
    """
    if spec.launch.batch_file is None:
        return spec
    source = spec.launch.batch_file
    for line in script.split("\n"):
        if _SRUN.match(line):
            told = f"{line.strip()}: there is no srun without Slurm: --scheduler slurm on a cluster"
            raise errors.SpecError([errors.Problem(source=source, message=told)])
    asked = {option.name: option.value for option in batch_options.read(script, source)}
    asked |= {name: None if value is True else str(value) for name, value in spec.sbatch.items()}
    resources = dataclasses.replace(
        spec.resources,
        nodes=_number(asked, "nodes") or 1,
        cpus_per_task=_number(asked, "cpus-per-task"),
        gpus_per_node=_number(asked, "gpus-per-node") or _number(asked, "gpus"),
        gres=asked.get("gres"),
    )
    signal = re.fullmatch(r"B:(?:SIG)?(?:USR1|10)@(\d+)", asked.get("signal") or "")
    export = (asked.get("export") or "").upper()
    return dataclasses.replace(
        spec,
        resources=resources,
        time_limit=asked.get("time"),
        dependency=asked.get("dependency"),
        exclusive="exclusive" in asked,
        requeue=False if "no-requeue" in asked else None,
        signal_seconds=int(signal[1]) if signal else None,
        environment=dataclasses.replace(
            spec.environment, export="none" if export in ("NONE", "NIL") else "all"
        ),
        sbatch={},
    )


def _number(asked: Mapping[str, str | None], name: str) -> int | None:
    """Return the number in "2", "2-4" or "a100:2"."""
    found = re.search(r"(?:^|:)(\d+)(?:-\d+)?$", asked.get(name) or "")
    return int(found[1]) if found else None
