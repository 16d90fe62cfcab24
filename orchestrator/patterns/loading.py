"""Loads patterns from TOML. The comment at the top of patterns.toml describes the format."""

from __future__ import annotations

import importlib.resources
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.clocks import deadlines
from orchestrator.patterns import numbers, prefilter, records
from orchestrator.text import expressions
from orchestrator.toml import documents, key_paths, schema

SHIPPED = "patterns.toml"
#: A thousand ordinary lines take 1 s. A file that takes longer than this is refused.
COMPILE_SECONDS = 5.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PATTERN_KEYS: Mapping[str, Any] = {
    "description": str,
    "generic": bool,
    "line": tuple[dict[str, Any], ...],
}
_LINE_KEYS: Mapping[str, Any] = {
    "name": str,
    "contains": str | tuple[str, ...],
    "regex": str,
    "metrics": Mapping[str, Any],
    "keep": Mapping[str, str],
    "takes": tuple[str, ...],
    "after": tuple[str, ...],
    "form": str,
    "separator": str,
    "between": str,
    "fields": Mapping[str, Any],
    "pair": tuple[str, ...],
    "others": bool,
    "needs": tuple[tuple[str, ...], ...],
}
_VALUE_KEYS = ("name", "unit")
_FORM_KEYS = ("separator", "between", "fields", "pair", "others", "needs")
_SHORTHAND = re.compile(r"\{(?:(integer)|(number)|(thousands)|(clock)|(fixed|sci)([1-9]))\}")
_WITH_FORMAT = re.compile(r"\(\?P<([A-Za-z_]\w*)>\{(thousands|clock)\}")
_NOT_FINITE = r"[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)"
# Possessive: otherwise Python's re could split a long run of digits at each of them.
_NUMBER = r"(?:[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?" rf"|{_NOT_FINITE})"
_DEFAULT_REGEX: Mapping[str, str] = {
    records.Form.JSON: r"(?P<fields>\{.*\})",
    records.Form.DICT: r"(?P<fields>\{.*\})",
    records.Form.PAIRS: "(?P<fields>.*)",
}

_Problem = tuple[key_paths.KeyPath, str]


def load_shipped() -> tuple[records.Pattern, ...]:
    """Return the patterns of this package. They are not checked here; a unit test does."""
    text = importlib.resources.files("orchestrator").joinpath(SHIPPED).read_text("utf-8")
    return tuple(_pattern(name, data, "") for name, data in tomllib.loads(text).items())


def load(text: str, source: str) -> tuple[records.Pattern, ...]:
    """Return the patterns of a TOML text; raises ConfigurationError with all its problems."""
    document, problems = documents.parse(text, source)
    patterns, pattern_problems = check(document.data, origin=source)
    problems += [document.problem(path, message) for path, message in pattern_problems]
    if problems:
        raise errors.ConfigurationError(problems)
    return patterns


def check(
    tables: Mapping[str, Any], *, origin: str
) -> tuple[tuple[records.Pattern, ...], list[_Problem]]:
    """Return the valid patterns of TOML tables, and the problems of the others.

    The path of a problem is relative to `tables`.
    """
    problems: list[_Problem] = []
    patterns = []
    deadline = deadlines.Deadline().within(COMPILE_SECONDS)
    for name, data in tables.items():
        if deadline.is_over:
            message = f"is not read: the patterns before it took {COMPILE_SECONDS:g} s"
            problems.append(((name,), message))
            break
        pattern_problems = list(_pattern_problems(name, data))
        problems += pattern_problems
        if not pattern_problems:
            patterns.append(_pattern(name, data, origin))
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
            near = schema.did_you_mean(name, by_name)
            fix = f'Did you mean "{near}"?' if near else f"Known: {', '.join(sorted(by_name))}."
            message = f"no pattern {schema.as_toml(name)}. {fix}"
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


def _pattern(name: str, data: Mapping[str, Any], origin: str) -> records.Pattern:
    return records.Pattern(
        name=name,
        description=data.get("description", ""),
        lines=tuple(_line_kind(line, shipped=not origin) for line in data["line"]),
        generic=data.get("generic", False),
        origin=origin,
    )


def _line_kind(data: Mapping[str, Any], *, shipped: bool) -> records.LineKind:
    contains = data.get("contains", ())
    if isinstance(contains, str):
        contains = (contains,) if contains else ()
    source = _expanded(_regex(data), shipped=shipped)
    required = tuple(contains) or (prefilter.required_text(source),)
    return records.LineKind(
        name=data["name"],
        contains=tuple(contains),
        required=required if all(required) else (),
        source=source,
        shipped=shipped,
        metrics={key: _value(key, value) for key, value in data.get("metrics", {}).items()},
        number_formats={
            group: records.NumberFormat(name) for group, name in _WITH_FORMAT.findall(_regex(data))
        },
        keep={key: records.Keep(how) for key, how in data.get("keep", {}).items()},
        takes=tuple(data.get("takes", ())),
        after=tuple(data.get("after", ())),
        form=records.Form(data["form"]) if "form" in data else None,
        separator=data.get("separator", ""),
        between=data.get("between", ":"),
        fields={
            key: records.Value(name=value) if isinstance(value, str) else _value(key, value)
            for key, value in data.get("fields", {}).items()
        },
        pair=tuple(data.get("pair", ())),
        others=data.get("others", True),
        needs=tuple(tuple(names) for names in data.get("needs", ())),
    )


def _value(key: str, value: str | Mapping[str, str]) -> records.Value:
    if isinstance(value, str):
        return records.Value(name=key, unit=value)
    return records.Value(name=value.get("name", key), unit=value.get("unit", ""))


def _pattern_problems(name: str, data: object) -> Iterator[_Problem]:
    if not _NAME.fullmatch(name):
        yield (name,), "a pattern name consists of lowercase letters, digits, _ and -"
    if not isinstance(data, Mapping):
        yield (name,), f"must be a table: [{name}] (got {schema.as_toml(data)})"
        return
    problems = list(_key_problems(data, _PATTERN_KEYS, (name,)))
    yield from problems
    if not data.get("line"):
        yield (name,), f"has no lines: write [[{name}.line]]"
    elif not problems:
        earlier: list[str] = []
        for number, line in enumerate(data["line"]):
            yield from _line_problems(line, earlier, (name, "line", number))
            earlier.append(line.get("name", ""))


def _line_problems(
    data: Mapping[str, Any], earlier: Sequence[str], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    problems = list(_key_problems(data, _LINE_KEYS, path))
    yield from problems
    form = data.get("form")
    if form is not None and form not in list(records.Form):
        forms = ", ".join(f'"{known}"' for known in records.Form)
        yield (*path, "form"), f"must be one of {forms} (got {schema.as_toml(form)})"
        return
    required = ["name"] if form else ["name", "regex"]
    missing = [key for key in required if key not in data]
    for key in missing:
        yield path, f"has no {key}"
    if problems or missing:
        return
    if data["name"] in earlier:
        yield (*path, "name"), f'an earlier line has the name "{data["name"]}"'
    for name in set(data.get("after", ())) - {data["name"], *earlier}:
        yield (*path, "after"), f'no earlier line has the name "{name}"'
    if form is None:
        for key in _FORM_KEYS:
            if key in data:
                yield (*path, key), 'requires form = "json", "dict" or "pairs"'
    if len(data.get("pair", ("", ""))) != 2:
        yield (*path, "pair"), 'must be two keys: pair = ["key", "value"]'
    yield from _name_problems(data, path)
    source = _expanded(_regex(data), shipped=False)
    try:
        regex = expressions.checked(source)
        expressions.Expression(source)
    except expressions.ExpressionError as error:
        yield (*path, "regex"), str(error)
        return
    yield from _group_problems(regex, data, path)


def _key_problems(
    data: Mapping[str, Any], keys: Mapping[str, Any], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    """Check the keys of a table, and the types of their values."""
    for key, value in data.items():
        if key not in keys:
            near = schema.did_you_mean(key, keys)
            fix = f'Did you mean "{near}"?' if near else f"Known here: {', '.join(sorted(keys))}."
            yield (*path, key), f"unknown key. {fix}"
        elif key == "line":
            if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
                yield (*path, key), f"must be tables: [[{path[0]}.line]]"
        elif not schema.fits(value, keys[key]):
            description = f"{schema.describe(keys[key])} (got {schema.as_toml(value)})"
            yield (*path, key), f"must be {description}"


def _name_problems(data: Mapping[str, Any], path: key_paths.KeyPath) -> Iterator[_Problem]:
    """Check the names and units under metrics, fields, keep and takes."""
    for table in ("metrics", "fields"):
        for key, value in data.get(table, {}).items():
            is_table = isinstance(value, Mapping) and set(value) <= set(_VALUE_KEYS)
            texts = list(value.values()) if is_table else [value]
            if not all(isinstance(t, str) and len(t) <= numbers.UNIT_CHARACTERS for t in texts):
                like = 'a unit such as "seconds" or ""' if table == "metrics" else "a metric's name"
                fix = f'must be {like}, or {{ name = "...", unit = "..." }}'
                yield (*path, table, key), f"{fix} (got {schema.as_toml(value)})"
                continue
            is_name = table == "fields" and isinstance(value, str)
            name = value if is_name else _value(key, value).name
            if name and not numbers.METRIC_NAME.fullmatch(name):
                yield (*path, table, key), f"not a valid metric name: {schema.as_toml(name)}"
    valid = ", ".join(f'"{how}"' for how in records.Keep)
    for name, how in data.get("keep", {}).items():
        if how not in list(records.Keep):
            yield (*path, "keep", name), f"must be one of {valid} (got {schema.as_toml(how)})"
    known = (*records.CONTEXT, records.PHASE)
    for table in ("keep", "takes"):
        for name in data.get(table, ()):
            if name not in known:
                message = f"only {', '.join(known)} can hold for other lines (got {name})"
                yield (*path, table), message


def _group_problems(
    regex: re.Pattern[str], data: Mapping[str, Any], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    """Compare the named groups of the regex with the other keys."""
    groups = regex.groupindex
    metrics, keep = data.get("metrics", {}), data.get("keep", {})
    has_form = "form" in data
    if not metrics and not keep and not has_form:
        yield path, "finds nothing: name its groups under metrics or keep"
    for table, names in (("metrics", metrics), ("keep", keep)):
        for name in names:
            if name not in groups and not (table == "keep" and has_form):
                fix = f"write (?P<{name}>{{number}})"
                yield (*path, table, name), f'the regex has no group "{name}": {fix}'
    if has_form and records.FIELDS not in groups:
        yield (*path, "regex"), 'has no group "fields" for the form to read: write (?P<fields>.*)'
    for name in groups:
        known = name in metrics or name in keep or name in (*records.CONTEXT, records.PHASE)
        if name == records.FIELDS:
            if not has_form:
                yield (*path, "regex"), 'the group "fields" needs a form'
        elif not known and name.removesuffix(records.UNIT_SUFFIX) not in metrics:
            fix = "name it under metrics, or write (?:...)"
            yield (*path, "regex"), f'the group "{name}" is not used: {fix}'


def _regex(data: Mapping[str, Any]) -> str:
    regex = data.get("regex")
    return str(_DEFAULT_REGEX[data["form"]] if regex is None else regex)


def _expanded(regex: str, *, shipped: bool) -> str:
    """Replace the shorthands, such as {number}."""
    expanded = _SHORTHAND.sub(_shorthand, regex)
    if shipped:
        return expanded
    # RE2, which matches the regexes of users, needs and accepts no possessive repeats.
    return expanded.replace(_NUMBER, _NUMBER.replace("++", "+").replace("*+", "*"))


def _shorthand(match: re.Match[str]) -> str:
    integer, number, thousands, clock, fixed, decimals = match.groups()
    if integer:
        return "[0-9]+"
    if number:
        return _NUMBER
    if thousands:
        return r"(?:[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[-+]?[0-9]+(?:\.[0-9]+)?)"
    if clock:
        return r"(?:(?:[0-9]+ days?, )?[0-9]+:)?[0-9]{1,2}:[0-9]{2}(?:\.[0-9]+)?"
    exponent = r"[eE][-+][0-9]{2,3}" if fixed == "sci" else ""
    return rf"(?:[-+]?[0-9]+\.[0-9]{{{decimals}}}{exponent}|{_NOT_FINITE})"
