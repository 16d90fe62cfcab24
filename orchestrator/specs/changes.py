"""Changes of a stored spec: one key gets a new value, or is multiplied if that is "x2"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from orchestrator import jobs
from orchestrator.specs import toml_tables
from orchestrator.text import escaping
from orchestrator.toml import schema, values

#: Keys of [job] that may be changed.
_JOB_KEYS = frozenset(
    "account constraint exclude exclusive nodelist partition qos reservation signal_seconds "
    "time_limit".split()
)
_FACTOR = re.compile(r"x([0-9]{1,6}(?:\.[0-9]{1,6})?)")
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_UNITS = "KMGT"


class CannotChangeError(ValueError):
    """The key cannot have this value; the message says why."""


def changed(
    spec: jobs.JobSpec, key: str, value: jobs.ArgumentValue, *, task: int | None = None
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    """Return the spec with the changed key, and the key's new value.

    key: "resources.mem", "args.lr", "environment.variables.NAME", "job.time_limit".
    task: of an array; its own argument is changed if it has one.

    Raises CannotChangeError, also if the key has this value already.
    """
    table, _, name = key.partition(".")
    if table == "environment" and name.startswith("variables."):
        name = name.removeprefix("variables.")
        if error := values.variable_name_error(name):
            raise CannotChangeError(f"{escaping.visible(name)}: {error}")
        variables = spec.environment.variables or {}
        new = str(_new_value(key, variables.get(name), value))
        environment = dataclasses.replace(spec.environment, variables={**variables, name: new})
        return dataclasses.replace(spec, environment=environment), new
    if name and table == "args":
        return _change_argument(spec, name, value, task)
    if name and table in ("job", "resources"):
        return _change_key(spec, table, name, value)
    raise CannotChangeError(
        f'"{escaping.visible(key)}" cannot be changed: use a key of resources or args, '
        f"environment.variables.NAME, or one of job's {', '.join(sorted(_JOB_KEYS))}"
    )


def _change_argument(
    spec: jobs.JobSpec, name: str, value: jobs.ArgumentValue, task: int | None
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    tasks = spec.array.tasks
    if task is not None and tasks is not None and (own := _spelling(tasks[task], name)):
        new = _new_value(f"args.{name}", tasks[task][own], value)
        new_tasks = (*tasks[:task], {**tasks[task], own: new}, *tasks[task + 1 :])
        array = dataclasses.replace(spec.array, tasks=new_tasks)
        return dataclasses.replace(spec, array=array), new
    if spec.launch.command or spec.launch.program or spec.launch.batch_file:
        raise CannotChangeError(f"args.{name}: this job has no [args]")
    key = _spelling(spec.args, name) or name
    new = _new_value(f"args.{name}", spec.args.get(key), value)
    return dataclasses.replace(spec, args={**spec.args, key: new}), new


def _spelling(arguments: Mapping[str, Any], name: str) -> str:
    """Return the argument as it is spelled here, with - or _; "" if it is missing."""
    folded = name.replace("-", "_")
    return next((key for key in arguments if key.replace("-", "_") == folded), "")


def _change_key(
    spec: jobs.JobSpec, table: str, name: str, value: jobs.ArgumentValue
) -> tuple[jobs.JobSpec, jobs.ArgumentValue]:
    key = f"{table}.{name}"
    hint = schema.hint_at(toml_tables.FILE, (table, name))
    if hint is None or (table == "job" and name not in _JOB_KEYS):
        raise CannotChangeError(f"{escaping.visible(key)} cannot be changed")
    record: Any = spec if table == "job" else spec.resources
    if type(value) is int and (table, name) in toml_tables.NUMBERS:
        value = str(value)
    new = _new_value(key, getattr(record, name), value)
    if not schema.fits(new, hint):
        raise CannotChangeError(
            f"{key} must be {schema.describe(hint)} (got {schema.as_toml(new)})"
        )
    if error := schema.value_error(name, new):
        raise CannotChangeError(f"{key} {error}")
    replaced = [str(other[1]) for other in toml_tables.replaced_by((table, name))]
    record = dataclasses.replace(record, **{name: new, **dict.fromkeys(replaced)})
    return record if table == "job" else dataclasses.replace(spec, resources=record), new


def _new_value(
    key: str, old: jobs.ArgumentValue | None, value: jobs.ArgumentValue
) -> jobs.ArgumentValue:
    factor = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    new = value if factor is None else _multiplied(key, old, float(factor[1]))
    if new == old and type(new) is type(old):
        raise CannotChangeError(f"{key} is {schema.as_toml(old)} already")
    return new


def _multiplied(key: str, old: jobs.ArgumentValue | None, factor: float) -> jobs.ArgumentValue:
    if old is None:
        raise CannotChangeError(f"{key} has no value that could be multiplied: set one")
    if isinstance(old, float):
        return old * factor
    if type(old) is int:
        return max(1, int(old * factor))
    if isinstance(old, str) and key == "job.time_limit" and (seconds := values.seconds(old)):
        # Slurm counts minutes.
        return values.elapsed(max(60, int(seconds * factor)))
    size = _SIZE.fullmatch(old) if isinstance(old, str) and key != "job.time_limit" else None
    if size is None:
        raise CannotChangeError(f"{key} = {schema.as_toml(old)} cannot be multiplied")
    number, unit = int(size[1]) * factor, size[2].upper()
    # Half of 3G is 1536M: Slurm accepts only whole numbers.
    while unit in _UNITS[1:] and unit and number != int(number):
        number, unit = number * 1024, _UNITS[_UNITS.index(unit) - 1]
    return f"{max(1, int(number))}{unit}"
