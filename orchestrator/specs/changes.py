"""A stored spec asked for otherwise: one key set, or multiplied where the new value is "x2"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from orchestrator import jobs
from orchestrator.specs import toml_tables
from orchestrator.text import escaping
from orchestrator.toml import schema, values

#: Keys of [job] that a next start may have otherwise.
_OF_JOB = frozenset(
    {
        *("account", "constraint", "exclude", "exclusive", "nodelist", "partition", "qos"),
        *("reservation", "signal_seconds", "time_limit"),
    }
)
_FACTOR = re.compile(r"x(?P<factor>[0-9]{1,6}(?:\.[0-9]{1,6})?)")
_SIZE = re.compile(r"(?P<number>[0-9]+)(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_UNITS = "KMGT"


class CannotChangeError(ValueError):
    """The key cannot have this value; the message says why."""


def changed(
    spec: jobs.JobSpec, key: str, value: jobs.ArgumentValue, *, task: int | None = None
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    """Return the spec with the key changed, and the key's new value.

    `key` is dotted: "resources.mem", "args.lr", "environment.variables.NAME", "job.time_limit".
    `task`: that of an array, whose own argument is meant where it has one. Raises
    CannotChangeError, also where the new value is the one that it has.
    """
    table, _, name = key.partition(".")
    if table == "environment" and name.startswith("variables."):
        return _variable(spec, name.removeprefix("variables."), value)
    if not name or table not in ("job", "resources", "args"):
        raise CannotChangeError(
            f'"{escaping.visible(key)}" cannot be changed: name a key of resources or args, '
            f"environment.variables.NAME, or one of job's {', '.join(sorted(_OF_JOB))}"
        )
    if table == "args":
        return _argument(spec, name, value, task)
    return _key(spec, table, name, value)


def _variable(
    spec: jobs.JobSpec, name: str, value: jobs.ArgumentValue
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    if told := values.variable_name_error(name):
        raise CannotChangeError(f"{escaping.visible(name)}: {told}")
    variables = spec.environment.variables
    new = str(_new(f"environment.variables.{name}", variables.get(name), value))
    environment = dataclasses.replace(spec.environment, variables={**variables, name: new})
    return dataclasses.replace(spec, environment=environment), new


def _argument(
    spec: jobs.JobSpec, name: str, value: jobs.ArgumentValue, task: int | None
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    tasks = spec.array.tasks
    if task is not None and tasks is not None and (own := _like(tasks[task], name)):
        new = _new(f"args.{name}", tasks[task][own], value)
        after = [*tasks[:task], {**tasks[task], own: new}, *tasks[task + 1 :]]
        array = dataclasses.replace(spec.array, tasks=tuple(after))
        return dataclasses.replace(spec, array=array), new
    if spec.launch.command or spec.launch.program or spec.launch.batch_file:
        raise CannotChangeError(f"args.{name}: this job has no [args], so they cannot be changed")
    known = _like(spec.args, name) or name
    new = _new(f"args.{name}", spec.args.get(known), value)
    return dataclasses.replace(spec, args={**spec.args, known: new}), new


def _like(arguments: Mapping[str, Any], name: str) -> str:
    """Return how the argument is spelt here; "": it is not here."""
    folded = name.replace("-", "_")
    return next((one for one in arguments if one.replace("-", "_") == folded), "")


def _key(
    spec: jobs.JobSpec, table: str, name: str, value: jobs.ArgumentValue
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    key = f"{table}.{name}"
    hint = schema.hint_at(toml_tables.FILE, (table, name))
    if hint is None or (table == "job" and name not in _OF_JOB):
        raise CannotChangeError(f"{escaping.visible(key)} is no key that can be changed")
    owner: Any = spec if table == "job" else spec.resources
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (table, name) in toml_tables.NUMBERS
    ):
        value = str(value)
    new = _new(key, getattr(owner, name), value)
    if not schema.fits(new, hint):
        told = f"{key} must be {schema.describe(hint)} (got {schema.as_toml(new)})"
        raise CannotChangeError(told)
    if isinstance(new, str) and (misfit := values.form_error(name, new)):
        raise CannotChangeError(f"{key} {misfit} (got {schema.as_toml(new)})")
    others = [one.partition(".")[2] for one in toml_tables.REPLACES.get(key, ())]
    owner = dataclasses.replace(owner, **{name: new, **dict.fromkeys(others)})
    return owner if table == "job" else dataclasses.replace(spec, resources=owner), new


def _new(key: str, old: jobs.ArgumentValue | None, value: jobs.ArgumentValue) -> jobs.ArgumentValue:
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    new = value if found is None else _times(key, old, float(found["factor"]))
    if new == old and type(new) is type(old):
        raise CannotChangeError(f"{key} is {schema.as_toml(old)} already")
    return new


def _times(key: str, old: jobs.ArgumentValue | None, factor: float) -> jobs.ArgumentValue:
    if old is None:
        raise CannotChangeError(f"{key} has no value that could be multiplied: give it one")
    if isinstance(old, bool) or isinstance(old, tuple):
        raise CannotChangeError(f"{key} = {schema.as_toml(old)} cannot be multiplied")
    if isinstance(old, float):
        return old * factor
    if isinstance(old, int):
        return max(1, int(old * factor))
    if key == "job.time_limit":
        seconds = values.seconds(old)
        if seconds is None:
            raise CannotChangeError(f"{key} = {schema.as_toml(old)} cannot be multiplied")
        # Slurm counts minutes.
        return values.elapsed(max(60, int(seconds * factor)))
    size = _SIZE.fullmatch(old)
    if size is None:
        raise CannotChangeError(f"{key} = {schema.as_toml(old)} cannot be multiplied")
    number, unit = int(size["number"]) * factor, size["unit"].upper()
    # Half of 3G is 1536M: Slurm takes whole numbers.
    while unit in _UNITS[1:] and unit and number != int(number):
        number, unit = number * 1024, _UNITS[_UNITS.index(unit) - 1]
    return f"{max(1, int(number))}{unit}"
