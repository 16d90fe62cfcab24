"""Loads patterns from TOML. The comment at the top of patterns.toml describes the format."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.clocks import deadlines
from orchestrator.patterns import numbers, records
from orchestrator.text import expressions
from orchestrator.toml import documents, key_paths, schema

#: A thousand ordinary lines take 1 s. A file that takes longer than this is refused.
COMPILE_SECONDS = 5.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_FORM_KEYS = ("separator", "between", "fields", "pair", "others", "needs")
#: Values that can hold for later lines.
_KEPT = (*records.CONTEXT, records.PHASE)

_Problem = tuple[key_paths.KeyPath, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatternTable:
    """`[pattern.NAME]`: expressions that find metrics in the log of one program."""

    description: str = ""
    generic: bool = False
    complete: bool = False
    line: tuple[Mapping[str, Any], ...] = ()


def load_shipped() -> tuple[records.Pattern, ...]:
    """Return the patterns of this package. They are not checked here; a unit test does."""
    return tuple(
        records.Pattern(
            name=name,
            description=data.get("description", ""),
            generic=data.get("generic", False),
            complete=data.get("complete", False),
            lines=tuple(records.LineKind(**line, shipped=True) for line in data["line"]),
        )
        for name, data in documents.shipped("patterns.toml").items()
    )


def check(
    tables: Mapping[str, Any], *, origin: str
) -> tuple[tuple[records.Pattern, ...], list[_Problem]]:
    """Return the valid patterns of TOML tables, and the problems of the others.

    The path of a problem is relative to `tables`.
    """
    problems: list[_Problem] = []
    patterns: list[records.Pattern] = []
    deadline = deadlines.Deadline().within(COMPILE_SECONDS)
    for name, data in tables.items():
        if deadline.is_over:
            message = f"is not read: the patterns before it took {COMPILE_SECONDS:g} s"
            return tuple(patterns), [*problems, ((name,), message)]
        earlier = len(problems)
        if not _NAME.fullmatch(name):
            message = "a pattern name consists of lowercase letters, digits, _ and -"
            problems.append(((name,), message))
        table = _table(data, PatternTable, (name,), problems)
        if table is None:
            continue
        if not table.line:
            problems.append(((name,), f"has no lines: write [[{name}.line]]"))
        lines: list[records.LineKind] = []
        for number, line in enumerate(table.line):
            path = (name, "line", number)
            line_table = _table(line, records.LineTable, path, problems)
            needed = ("name",) if line.get("form") else ("name", "regex")
            missing = [(path, f"has no {key}") for key in needed if key not in line]
            problems += missing
            if line_table is not None and not missing:
                kind = records.LineKind(**vars(line_table))
                problems += _line_problems(kind, line, [each.name for each in lines], path)
                lines.append(kind)
        if len(problems) == earlier:
            patterns.append(
                records.Pattern(
                    name=name,
                    description=table.description,
                    generic=table.generic,
                    complete=table.complete,
                    lines=tuple(lines),
                    origin=origin,
                )
            )
    return tuple(patterns), problems


def select(
    patterns: Sequence[records.Pattern], names: Sequence[str], *, source: str = "spec"
) -> tuple[records.Pattern, ...]:
    """Return the named patterns in the order of the names, or all patterns if there are no names.

    Raises ConfigurationError.
    """
    by_name = {pattern.name: pattern for pattern in patterns}
    problems = []
    for name in names:
        if name not in by_name:
            message = f"no pattern {schema.as_toml(name)}. {schema.advice(name, by_name)}"
            problems.append(errors.Problem(source=source, key="metrics.patterns", message=message))
    if problems:
        raise errors.ConfigurationError(problems)
    return tuple(by_name[name] for name in names) if names else tuple(patterns)


def joined(*groups: Sequence[records.Pattern]) -> tuple[records.Pattern, ...]:
    """Return the patterns of all groups. If a name comes twice, the first pattern counts."""
    by_name: dict[str, records.Pattern] = {}
    for group in groups:
        for pattern in group:
            by_name.setdefault(pattern.name, pattern)
    return tuple(by_name.values())


def _table(
    data: Any, record: type[schema.Record], path: key_paths.KeyPath, problems: list[_Problem]
) -> schema.Record | None:
    """Return a table as this dataclass, or add its unknown keys and wrong types to `problems`."""
    document = documents.Document(data=data, origins={})
    table, messages = schema.build(document, record)
    problems += [((*path, *at), message) for at, message in messages.items()]
    return None if messages else table


def _line_problems(
    kind: records.LineKind, data: Mapping[str, Any], earlier: Sequence[str], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    if kind.name in earlier:
        yield (*path, "name"), f'an earlier line has the name "{kind.name}"'
    for name in set(kind.after) - {kind.name, *earlier}:
        yield (*path, "after"), f'no earlier line has the name "{name}"'
    for key in _FORM_KEYS:
        if key in data and kind.form is None:
            yield (*path, key), 'requires form = "json", "dict" or "pairs"'
    if kind.pair and len(kind.pair) != 2:
        yield (*path, "pair"), 'must be two keys: pair = ["key", "value"]'
    yield from _value_problems(kind, path)
    for table, names in (("keep", kind.keep), ("takes", kind.takes)):
        for name in set(names) - set(_KEPT):
            message = f"only {', '.join(_KEPT)} can hold for other lines (got {name})"
            yield (*path, table), message
    try:
        regex = expressions.checked(kind.source)
        expressions.Expression(kind.source)
    except expressions.ExpressionError as error:
        yield (*path, "regex"), str(error)
        return
    yield from _group_problems(regex, kind, path)


def _value_problems(kind: records.LineKind, path: key_paths.KeyPath) -> Iterator[_Problem]:
    """Check the names and units under metrics and fields."""
    for table, values in (("metrics", kind.metrics), ("fields", kind.fields)):
        for key, value in values.items():
            is_table = isinstance(value, Mapping) and set(value) <= {"name", "unit"}
            texts = list(value.values()) if is_table else [value]
            if not all(isinstance(t, str) and len(t) <= numbers.UNIT_CHARACTERS for t in texts):
                like = 'a unit such as "seconds" or ""' if table == "metrics" else "a metric's name"
                fix = f'must be {like}, or {{ name = "...", unit = "..." }}'
                yield (*path, table, key), f"{fix} (got {schema.as_toml(value)})"
                continue
            name = value.get("name", key) if is_table else value if table == "fields" else key
            if name and not numbers.METRIC_NAME.fullmatch(name):
                yield (*path, table, key), f"not a valid metric name: {schema.as_toml(name)}"


def _group_problems(
    regex: re.Pattern[str], kind: records.LineKind, path: key_paths.KeyPath
) -> Iterator[_Problem]:
    """Compare the named groups of the regex with the other keys."""
    if not kind.metrics and not kind.keep and not kind.form:
        yield path, "finds nothing: name its groups under metrics or keep"
    keys: dict[str, tuple[str, ...]] = {name: ("metrics", name) for name in kind.metrics}
    if kind.form:
        keys[records.FIELDS] = ("regex",)
    else:
        keys |= {name: ("keep", name) for name in kind.keep}
    for name, key in keys.items():
        if name not in regex.groupindex:
            text = ".*" if name == records.FIELDS else "{number}"
            fix = f"write (?P<{name}>{text})"
            yield (*path, *key), f'the regex has no group "{name}": {fix}'
    for name in regex.groupindex:
        is_used = name in keys or name in _KEPT
        if not is_used and name.removesuffix(records.UNIT_SUFFIX) not in kind.metrics:
            fix = "name it under metrics, or write (?:...)"
            yield (*path, "regex"), f'the group "{name}" is not used: {fix}'
