"""A spec as the text of a file, with a comment for each key: what was typed, to be kept."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import errors, jobs
from orchestrator.specs import arguments, flags, loading, programs, toml_tables
from orchestrator.toml import documents

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT_COLUMN = 32
#: Comments of keys that no flag sets.
_COMMENTS = {
    "launch.script": "Relative to job.chdir, else to the folder where you submit.",
    "launch.module": "Python module.",
    "code.snapshot": "Run the code as it is when the job is submitted.",
    "launch.program": "The program and its arguments.",
}
#: Keys that most jobs need sooner or later, with an example of a value.
_SUGGESTED: Mapping[str, Mapping[str, object]] = {
    "job": {"time_limit": "1:00:00"},
    "resources": {"nodes": 1, "gpus_per_node": 1, "cpus_per_task": 8, "mem": "32G"},
    "environment": {"modules": ["PyTorch"], "venv": "/path/to/venv"},
    "launch": {"launcher": "auto"},
}


class ArgumentsError(ValueError):
    """Arguments cannot be added to a job; the message says why."""


def text(
    document: documents.Document, commands: Sequence[str], origin: str = "a command line"
) -> str:
    """Return a TOML file that describes the same job as a document.

    commands: that submit it, and origin: where it comes from, for the comment at its top. The
    document must be valid (specs.build).
    """
    data = with_arguments(document)
    lines = [
        f"# Written by orchestrator from {origin}. Submit it with:",
        *(f"#   {command}" for command in commands),
        "# A line that begins with # is a key that was not given. docs/keys.md lists all keys.",
    ]
    for table in toml_tables.TABLES:
        if table in data or table in _SUGGESTED:
            lines += ["", *_table((table,), data.get(table, {}))]
    return "\n".join(lines) + "\n"


def of_spec(spec: jobs.JobSpec, source: str) -> documents.Document:
    """Return the keys of a spec that do not have their defaults, without those that we set."""
    of_snapshot = {name: getattr(jobs.Code(), name) for name in jobs.SET_BY_US}
    spec = dataclasses.replace(spec, code=dataclasses.replace(spec.code, **of_snapshot))
    data, usual = (json.loads(toml_tables.to_json(each)) for each in (spec, jobs.JobSpec(name="")))
    return documents.of(_differing(data, usual), source)


def _differing(data: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in data.items():
        default = usual.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            if inner := _differing(value, default):
                kept[key] = inner
        elif value is not None and value != default:
            kept[key] = value
    return kept


def with_more_arguments(document: documents.Document, words: Sequence[str]) -> documents.Document:
    """Return a valid document whose program gets further arguments.

    Options in `[args]` are replaced, other arguments follow those that are there. Raises
    ArgumentsError.
    """
    data = with_arguments(document)
    launch = data.get("launch", {})
    if not words:
        return dataclasses.replace(document, data=data)
    if "command" in launch:
        raise ArgumentsError("launch.command is a shell line, which takes no arguments")
    if "program" in launch or "batch_file" in launch:
        program = [*launch.get("program", ()), *words]
        return dataclasses.replace(
            document, data={**data, "launch": {**launch, "program": program}}
        )
    given = arguments_of(words)
    if given is None:
        raise ArgumentsError("write each argument as `--NAME VALUE` once, or use --set args.NAME")
    flags_ = {arguments.flag(key) for key in given}
    kept = {k: v for k, v in data.get("args", {}).items() if arguments.flag(k) not in flags_}
    return dataclasses.replace(document, data={**data, "args": {**kept, **given}})


def with_arguments(document: documents.Document) -> Mapping[str, Any]:
    """Return the tables with a script and `[args]`, which sweeps can vary, for a program."""
    data = document.data
    launch = data.get("launch", {})
    words: Sequence[str] = launch.get("program", ())
    program = programs.python_program(jobs.Launch(program=tuple(words)))
    if program is None or program.interpreter is not None or program.options:
        return data
    given = arguments_of(program.arguments)
    if given is None or data.get("args"):
        return data
    rest = {key: value for key, value in launch.items() if key != "program"}
    key = "script" if program.module is None else "module"
    tables = {**data, "launch": {key: program.shown, **rest}}
    if given:
        tables["args"] = given
    try:
        spec = loading.build(dataclasses.replace(document, data=tables), (), None)
    except errors.SpecError:
        return data  # Python accepts more names of modules than a spec
    is_same = programs.python_program(spec.launch) == dataclasses.replace(program, arguments=())
    return tables if is_same else data


def arguments_of(words: Sequence[str]) -> dict[str, jobs.ArgumentValue] | None:
    """Return the words as values of `[args]`; None if these would become other words."""
    values: dict[str, list[jobs.ArgumentValue]] = {}
    key = ""
    for word in words:
        if word.startswith("--"):
            key = word[2:].replace("-", "_")
            values.setdefault(key, [])
        elif not key:
            return None
        else:
            values[key].append(_value(word))
    found: dict[str, jobs.ArgumentValue] = {}
    for key, several in values.items():
        own = tuple(value for value in several if isinstance(value, str | int | float))
        found[key] = own if len(own) > 1 else own[0] if own else True
    # Not `--x=1`, `--a_b`, `--x 1 2` and an option that is given again later.
    is_same = [word for each in arguments.words(found) for word in each] == list(words)
    return found if is_same and all(map(_BARE_KEY.fullmatch, found)) else None


def _value(word: str) -> jobs.ArgumentValue:
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        # A TOML integer has 64 bits.
        is_number = math.isfinite(value) and -(2**63) <= value < 2**63
        if is_number and str(value) == word:
            return value
    return word


def _table(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{documents.dotted(path)}]"
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) and value}
    for key, value in table.items():
        # An empty table is not the same as none: `environment.variables`.
        if not isinstance(value, Mapping) or not value:
            yield _line((*path, key), value)
    taken = {*table, *(str(other[1]) for key in table for other in _replaced(path, key))}
    for key, value in _SUGGESTED.get(".".join(path), {}).items():
        if key not in taken:
            yield _line((*path, key), value, prefix="# ")
    for key, value in inner.items():
        yield ""
        yield from _table((*path, key), value)


def _replaced(path: tuple[str, ...], key: str) -> Sequence[tuple[str | int, ...]]:
    return toml_tables.replaced_by((*path, key)) if len(path) == 1 else ()


def _line(path: tuple[str, ...], value: object, *, prefix: str = "") -> str:
    line = f"{prefix}{documents.dotted(path[-1:])} = {_toml(value)}"
    key = documents.dotted(path)
    comment = next((flag.help for flag in flags.FLAGS if flag.key == key), _COMMENTS.get(key, ""))
    if not comment or "\n" in line:
        return line
    return f"{line:<{_COMMENT_COLUMN}}# {comment}"


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            if "\n" in value and "'''" not in value and not value.endswith("'"):
                return f"'''\n{value}'''"
            # JSON escapes all that TOML forbids, except for DEL.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            pairs = (f"{documents.dotted((key,))} = {_toml(inner)}" for key, inner in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            return str(value)
