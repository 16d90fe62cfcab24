"""Environments of attempts as rows. The JSON fields are a contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator import environments, jobs
from orchestrator.controller.environments import attempts
from orchestrator.rows import row_values
from orchestrator.rows.contract import jobs as contract
from orchestrator.usage import efficiency

#: For CSV and TSV: one row for each value.
VALUE_COLUMNS = ("job_id", "attempt", "kind", "name", "value")
_LIBRARIES = {"pytorch": "PyTorch", "cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}


def environment_row(
    job: jobs.Job, each: attempts.AttemptEnvironment, image: Mapping[str, object] | None
) -> dict[str, object]:
    """Return an environment as JSON has it; image: the container image of the submission."""
    return row_values.row_of(
        contract.EnvironmentRow,
        each.environment,
        job_id=job.job_id,
        row=job.row,
        attempt=each.attempt,
        libraries=environments.versions(each.environment),
        container=image,
        placement=row_values.row_of(contract.PlacementRow, each.placement),
    )


def value_rows(job: jobs.Job, each: attempts.AttemptEnvironment) -> list[dict[str, object]]:
    """Return an environment as rows of VALUE_COLUMNS."""
    start = {"job_id": job.job_id, "attempt": each.attempt}
    return [
        {**start, "kind": kind, "name": name, "value": value}
        for kind, name, value in environments.flat(each.environment)
    ]


def fields(
    job: jobs.Job, newest: attempts.AttemptEnvironment, image: Mapping[str, Any] | None
) -> Iterator[tuple[str, object]]:
    """Yield labels and values for people; those that are None or empty are not shown."""
    environment, placement = newest.environment, newest.placement
    yield "Job", f"{job.job_id or '-'} (@{job.row})"
    yield "Attempt", newest.attempt
    nodes = "" if placement.nodes == placement.host else f" ({placement.nodes})"
    yield "Host", f"{placement.host}{nodes}"
    python = f"{environment.python_version or 'version unknown'} ({environment.python})"
    yield "Python", python if environment.python else "not recorded"
    libraries = environments.versions(environment)
    yield from ((_LIBRARIES[name], version) for name, version in libraries.items())
    yield "Driver", environment.driver
    of_host = f" ({placement.gpus_on_host} on {placement.host})"
    yield "GPUs", environment.gpus and ", ".join(environment.gpus) + of_host
    yield "CPU", environment.cpu
    parts = (environment.os, environment.kernel and f"Linux {environment.kernel}", environment.libc)
    yield "System", ", ".join(filter(None, parts))
    yield "Modules", ", ".join(environment.modules)
    yield "Container", image and _image_text(image)


def _image_text(image: Mapping[str, Any]) -> str:
    text = f"{image['image']} ({image['runtime']})"
    if image["sha256"]:
        return f"{text}, SHA-256 {image['sha256']}"
    if image["sif_id"]:
        text += f", SIF ID {image['sif_id']}"
    if image["size_bytes"] is not None:
        text += f", {efficiency.amount(image['size_bytes'])}, changed {image['changed_at']}"
    return f"{text}, digest {image['missing']}"
