"""Environments of attempts as rows and as text. The JSON fields are a contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from orchestrator import environments, jobs
from orchestrator.cli import output
from orchestrator.cli.output import Column
from orchestrator.controller.environments import attempts
from orchestrator.jobs import naming
from orchestrator.text import escaping
from orchestrator.usage import efficiency

PACKAGE_COLUMNS = (Column("package", "name"), Column("version", "name"))
#: For CSV and TSV: one row for each value.
VALUE_COLUMNS = ("job_id", "attempt", "kind", "name", "value")
_LIBRARIES = {"pytorch": "PyTorch", "cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}


def environment_row(
    job: jobs.Job, each: attempts.AttemptEnvironment, image: Mapping[str, object] | None
) -> dict[str, object]:
    return {
        **output.fields_of(job, ("job_id", "row")),
        "attempt": each.attempt,
        **dataclasses.asdict(each.environment),
        "libraries": environments.versions(each.environment),
        "container": image,
        "placement": dataclasses.asdict(each.placement),
    }


def value_rows(job: jobs.Job, each: attempts.AttemptEnvironment) -> list[dict[str, object]]:
    """Return an environment as rows of VALUE_COLUMNS."""
    start = {"job_id": job.job_id, "attempt": each.attempt}
    return [
        {**start, "kind": kind, "name": name, "value": value}
        for kind, name, value in environments.flat(each.environment)
    ]


def print_environment(
    job: jobs.Job,
    known: Sequence[attempts.AttemptEnvironment],
    image: Mapping[str, Any] | None,
    others: Sequence[jobs.Job],
) -> None:
    """Print the newest environment of a job, and how earlier ones differ.

    others: tasks of the same array with another environment
    """
    newest = known[-1]
    environment = newest.environment
    output.print_fields(_fields(job, newest, image))
    variables = {**newest.placement.variables, **environment.variables}
    if variables:
        click.echo("\nVariables:")
    for name, value in variables.items():
        click.echo(f"  {escaping.one_line(f'{name}={value}')}")
    for earlier in known[:-1]:
        if changes := environments.differences(earlier.environment, environment):
            click.echo(f"\nDifferent in attempt {earlier.attempt}:")
            for kind, name, before, after in changes:
                text = (
                    f"{kind} {name}: {_value(before)} (attempt {newest.attempt}: {_value(after)})"
                )
                click.echo(f"  {escaping.one_line(text)}")
    if others:
        names = naming.names_of(others)
        click.echo(f"\nTasks with another environment: {names}")
    if environment.packages:
        click.echo(f"\nPackages ({len(environment.packages)}):")
        rows = [{"package": name, "version": each} for name, each in environment.packages.items()]
        output.print_rows("packages", rows, PACKAGE_COLUMNS, "table")


def _value(value: str | None) -> str:
    if value is None:
        return "absent"
    return value or "present"


def _fields(
    job: jobs.Job, newest: attempts.AttemptEnvironment, image: Mapping[str, Any] | None
) -> Iterator[tuple[str, object]]:
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
