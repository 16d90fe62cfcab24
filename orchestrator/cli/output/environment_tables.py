"""The environment of a job for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from orchestrator import environments, jobs
from orchestrator.cli import output
from orchestrator.cli.output import Column
from orchestrator.controller.environments import attempts
from orchestrator.jobs import naming
from orchestrator.rows import environment_rows
from orchestrator.text import escaping

PACKAGE_COLUMNS = (Column("package", "name"), Column("version", "name"))


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
    output.print_fields(environment_rows.fields(job, newest, image))
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
