"""Environments as names and values, and where two of them differ."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from orchestrator.environments import libraries, records

#: Variables that follow from the resources that a job has.
_OF_RESOURCES = "SLURM_"
#: Fields with one value.
_FIELDS = ("python", "python_version", "driver", "cpu", "kernel", "os", "libc")


def comparable(environment: records.Environment) -> records.Environment:
    """Return what jobs share that ran in the same environment with other resources."""
    variables = {
        name: value
        for name, value in environment.variables.items()
        if not name.startswith(_OF_RESOURCES)
    }
    return dataclasses.replace(environment, variables=variables)


def flat(environment: records.Environment) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name, value) for all that is recorded; kind and name are unique together.

    Kinds are `system`, `library`, `module`, `gpu`, `variable` and `package`. A module or GPU has no
    value.
    """
    for name in _FIELDS:
        if value := getattr(environment, name):
            yield "system", name, value
    for name, version in libraries.versions(environment).items():
        yield "library", name, version
    yield from (("module", name, "") for name in environment.modules)
    yield from (("gpu", name, "") for name in environment.gpus)
    yield from (("variable", *pair) for pair in environment.variables.items())
    yield from (("package", *pair) for pair in environment.packages.items())


def differences(
    first: records.Environment, second: records.Environment
) -> list[tuple[str, str, str | None, str | None]]:
    """Return (kind, name, value in the first, value in the second) where they differ.

    None: absent. Versions of libraries are left out: they follow from packages and variables.
    """
    values = [{each[:2]: each[2] for each in flat(environment)} for environment in (first, second)]
    keys = dict.fromkeys(itertools.chain(*values))
    return [
        (kind, name, values[0].get((kind, name)), values[1].get((kind, name)))
        for kind, name in keys
        if kind != "library" and values[0].get((kind, name)) != values[1].get((kind, name))
    ]
