"""docs/keys.md: the keys of specs, graphs, the configuration and patterns, from their dataclasses.

A key is described by the comment `#:` above its field, otherwise by the help of its option. If that
ends with "default: ..." or "required", it replaces the field's default. `python -m tests.reference`
writes the page; tests/unit/cli/test_help.py compares it with the code.
"""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import itertools
import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import orchestrator
from orchestrator import jobs, sweeps
from orchestrator.config import file_schema, profiles
from orchestrator.graphs import parsing
from orchestrator.patterns import loading, records
from orchestrator.specs import flags, toml_tables
from orchestrator.toml import schema, values

PAGE = pathlib.Path(__file__).parents[1] / "docs/keys.md"
#: Fields that no file sets, or that have a table of their own.
_NOT_KEYS = {
    (jobs.Launch, "batch_file"),
    (profiles.Profile, "name"),
    *((jobs.Code, name) for name in jobs.SET_BY_US),
    (loading.PatternTable, "line"),
}
#: Keys of [sweep] whose fields have another type than the TOML.
_SWEEP = {"axes": "a table", **dict.fromkeys(("points", "include", "exclude"), "a list of tables")}
_HOW_TO = {
    "environment": "variables",
    "container": "containers",
    "code": "versions-of-code",
    "metrics": "metrics",
    "alerts": "efficiency",
    "retry": "recovery",
    "sweep": "sweeps",
    "notices": "notices",
    "agents": "agents",
    "nodes": "nodes",
    "hosts": "remote",
    "profiles": "profile",
}
_HELP = {flag.key: flag.help for flag in flags.FLAGS}
_DEFAULT = re.compile(r"(?:^|[;.] )(?:default: (.+)|(required.*))$", re.IGNORECASE)
_LARGEST_INTEGER = 2**31 - 1

_TITLE = """\
# Keys

Written by `python -m tests.reference` from the code. Commands and options: \
[reference.md](reference.md)."""
_SPEC = """\
## Spec

The TOML file of a job or a sweep ([tutorial](tutorial.md), \
[from a batch script](howto/from-sbatch.md)). Paths are relative to the folder in which you call \
`orchestrator`. `--set TABLE.KEY=VALUE` sets any key; `--set TABLE.KEY=` removes a
value without default, `=[]` empties a list, and `={}` a table."""
_GRAPH = """\
## Graph

The TOML file of `orchestrator graph submit` ([how-to](howto/graphs.md))."""
_CONFIGURATION = """\
## Configuration

The user's file is `~/.config/orchestrator/config.toml`, the site's file is \
`/etc/xdg/orchestrator/config.toml`, a project's file is `orchestrator.toml` in its folder. All \
have the same keys; most of them need [trust](howto/trust.md) in a project's file. Paths are \
relative to the folder of the file; `~` and `$VARIABLE` are replaced.

The variable `ORCHESTRATOR_KEY`, in upper case, sets a key outside of tables or of the profile in \
use: """
_PATTERN = """\
## Pattern

`[pattern.NAME]` in the configuration, `[metrics.pattern.NAME]` in a spec, and `[NAME]` in a file \
of `pattern_files` ([how-to](howto/metrics.md))."""


class Key(NamedTuple):
    """A row of a table."""

    name: str
    value: str
    default: str
    #: "" if the code does not describe the key
    meaning: str


class Table(NamedTuple):
    """A TOML table."""

    title: str
    text: str
    #: (): any key, or those of another table
    keys: tuple[Key, ...]


def page() -> str:
    """Return the page as it should be."""
    parts = [_TITLE]
    for introduction, tables in chapters():
        parts.append(introduction)
        for table in tables:
            parts.append(f"### {table.title}")
            if table.text:
                parts.append(f"{table.text[:1].upper()}{table.text[1:]}.")
            if table.keys:
                rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
                rows += [
                    f"| `{key.name}` | {' | '.join(map(_escaped, key[1:]))} |" for key in table.keys
                ]
                parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def chapters() -> Iterator[tuple[str, list[Table]]]:
    """Yield each chapter's introduction and tables."""
    seen: dict[Any, str] = {}
    spec: list[Table] = []
    for name, record in schema.fields_of(toml_tables.FILE).items():
        if dataclasses.is_dataclass(record):
            comments = comments_of(jobs.JobSpec if name == "job" else record)
            spec += _tables(record, (name,), comments, seen)
        else:
            spec.append(Table(f"`[{name}]`", comments_of(jobs.JobSpec)[name], ()))
    spec += _tables(sweeps.Table, ("sweep",), comments_of(sweeps.Table), seen)
    yield _SPEC, spec
    yield _GRAPH, [*_tables(parsing.Table, ("graph",), comments_of(parsing.Table), seen)]
    variables = ", ".join(f"`{key}`" for key in file_schema.variables())
    file = _tables(file_schema.File, (), comments_of(file_schema.File), seen)
    yield f"{_CONFIGURATION}{variables}.", [*file]
    texts = _texts_of_patterns()
    pattern = _tables(loading.PatternTable, ("pattern", "NAME"), texts, seen)
    line = _tables(records.LineTable, ("pattern", "NAME", "line"), texts, seen)
    yield _PATTERN, [*pattern, *line]


def _tables(
    record: Any, path: tuple[str, ...], comments: dict[str, str], seen: dict[Any, str]
) -> Iterator[Table]:
    """Yield the table of a dataclass, then those below it. seen: titles by dataclass."""
    doc = " ".join((record.__doc__ or "").partition("\n\n")[0].split())
    match = re.match(r"(`\[.+?`)[:;] (.+?)\.?$", doc)
    own_title = f"`[{'.'.join(path)}]`" if path else "Outside of tables"
    title, text = match.groups() if match else (own_title, "")
    if record in seen:
        yield Table(own_title, f"The keys of {seen[record]}", ())
        return
    seen[record] = title
    name = next((part for part in reversed(path) if part != "NAME"), "")
    if name in _HOW_TO:
        text += f" ([how-to](howto/{_HOW_TO[name]}.md))"
    keys, below = [], []
    for field in dataclasses.fields(record):
        hint = schema.bare(schema.fields_of(record)[field.name])
        is_mapping = typing.get_origin(hint) is collections.abc.Mapping
        item = typing.get_args(hint)[1] if is_mapping else hint
        if dataclasses.is_dataclass(item):
            below.append((item, (*path, field.name, *["NAME"] * is_mapping)))
        elif (record, field.name) not in _NOT_KEYS:
            keys.append(_key(field, hint, path, comments[field.name]))
    yield Table(title, text, tuple(keys))
    for item, item_path in below:
        yield from _tables(item, item_path, comments_of(item), seen)


def _key(field: dataclasses.Field[Any], hint: Any, path: tuple[str, ...], text: str) -> Key:
    text = text or _HELP.get(".".join((*path, field.name)), "")
    text = text.rstrip(".")
    default = ""
    if match := _DEFAULT.search(text):
        default, text = match[1] or match[2], text[: match.start()]
    elif field.default not in (None, "", (), dataclasses.MISSING):
        default = f"`{schema.as_toml(field.default, max_characters=None)}`"
    value = _SWEEP.get(field.name) if path == ("sweep",) else None
    return Key(field.name, value or _value(field.name, hint, path), default, _capitalized(text))


def _value(key: str, hint: Any, path: tuple[str, ...]) -> str:
    """Return what a key can be set to, in the words of the error messages."""
    kinds = schema.kinds_of(hint)
    value, form = schema.describe(hint), values.form_error(key, "").removeprefix("must be ")
    if path[:1] == ("pattern",):
        return value
    if form and str in kinds:
        return f"{form}, or an integer" if (*path, key) in toml_tables.NUMBERS else form
    if form and hint == tuple[str, ...]:
        return f"{value}, each {form}"
    if int in kinds:
        least = values.range_error(key, -(2**64)).removeprefix("must be >= ")
        most = values.range_error(key, 2**64).removeprefix("must be <= ")
        return value if int(most) >= _LARGEST_INTEGER else f"{value} from {least} to {most}"
    return value


def comments_of(record: Any) -> dict[str, str]:
    """Return the comment `#:` above each field of a dataclass; "": none."""
    lines = inspect.getsource(record).splitlines()
    comments = {}
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = reversed(lines[: node.lineno - 1])
            comment = [*itertools.takewhile(lambda line: line.startswith("    #: "), above)]
            comments[node.target.id] = " ".join(line[7:] for line in reversed(comment))
    return comments


def _texts_of_patterns() -> dict[str, str]:
    """Return the text of each key in the comment at the top of patterns.toml."""
    file = pathlib.Path(orchestrator.__file__).with_name("patterns.toml")
    comment, _, _ = file.read_text().partition("\n\n")
    texts = re.findall(r"^# +(\w+) {2,}(.+(?:\n# {10,}.+)*)", comment, re.MULTILINE)
    return {key: re.sub(r"\n# +", " ", text) for key, text in texts}


def _capitalized(text: str) -> str:
    """Return a sentence; one that begins with a value ("strong and weak: ...") is unchanged."""
    return text if re.match(r"\w+( \w+){0,2}: ", text) else text[:1].upper() + text[1:]


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")
