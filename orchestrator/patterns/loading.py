"""TOML -> patterns; the form is told at the head of patterns.toml."""

from __future__ import annotations

import importlib.resources
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.clocks import deadlines
from orchestrator.patterns import numbers, records
from orchestrator.text import expressions
from orchestrator.toml import documents, key_paths, schema

SHIPPED = "patterns.toml"
#: A thousand ordinary lines take 1 s; a file that takes longer than this is refused.
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
_OF_FORMS = ("separator", "between", "fields", "pair", "others", "needs")
_SHORTHAND = re.compile(r"\{(?:(integer)|(number)|(thousands)|(clock)|(fixed|sci)([1-9]))\}")
_WITH_KIND = re.compile(r"\(\?P<([A-Za-z_]\w*)>\{(thousands|clock)\}")
_NOT_FINITE = r"[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)"
# Possessive, or Python's re could cut a long run of digits in two at each of them.
_NUMBER = r"(?:[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?" rf"|{_NOT_FINITE})"
_DEFAULT_REGEX: Mapping[str, str] = {
    records.Form.JSON: r"(?P<fields>\{.*\})",
    records.Form.DICT: r"(?P<fields>\{.*\})",
    records.Form.PAIRS: "(?P<fields>.*)",
}

_Problem = tuple[key_paths.KeyPath, str]


def load_shipped() -> tuple[records.Pattern, ...]:
    """Return the patterns that ship, matched by Python's re; a unit test checks them."""
    text = importlib.resources.files("orchestrator").joinpath(SHIPPED).read_text("utf-8")
    return tuple(_built(name, data, "") for name, data in tomllib.loads(text).items())


def load(text: str, source: str) -> tuple[records.Pattern, ...]:
    """Return the patterns of a TOML text; ConfigurationError with all that is wrong in it."""
    document, problems = documents.parse(text, source)
    patterns, found = check(document.data, origin=source)
    problems += [document.problem(path, message) for path, message in found]
    if problems:
        raise errors.ConfigurationError(problems)
    return patterns


def check(
    tables: Mapping[str, Any], *, origin: str
) -> tuple[tuple[records.Pattern, ...], list[tuple[key_paths.KeyPath, str]]]:
    """Return the patterns of TOML tables that are right, and what is wrong with the others.

    Problems have the path of their key below `tables`.
    """
    problems: list[_Problem] = []
    patterns = []
    until = deadlines.Deadline().within(COMPILE_SECONDS)
    for name, data in tables.items():
        if until.is_over:
            problems.append(((name,), f"is not read: those before took {COMPILE_SECONDS:g} s"))
            break
        found = list(_pattern_faults(name, data))
        problems += found
        if not found:
            patterns.append(_built(name, data, origin))
    return tuple(patterns), problems


def select(
    patterns: Sequence[records.Pattern], names: Sequence[str], *, source: str = "spec"
) -> tuple[records.Pattern, ...]:
    """Return the named patterns in the order of the names; all of them when none is named."""
    known = {pattern.name: pattern for pattern in patterns}
    problems = []
    for name in names:
        if name not in known:
            near = schema.did_you_mean(name, known)
            cure = f'Did you mean "{near}"?' if near else f"Known: {', '.join(sorted(known))}."
            message = f"no pattern {schema.as_toml(name)}. {cure}"
            problems.append(errors.Problem(source=source, key="metrics.patterns", message=message))
    if problems:
        raise errors.ConfigurationError(problems)
    return tuple(known[name] for name in names) if names else tuple(patterns)


def joined(*groups: Sequence[records.Pattern]) -> tuple[records.Pattern, ...]:
    """Return the patterns of all groups; one of an earlier group stands for those of its name."""
    found: dict[str, records.Pattern] = {}
    for group in groups:
        for pattern in group:
            found.setdefault(pattern.name, pattern)
    return tuple(found.values())


def _built(name: str, data: Mapping[str, Any], origin: str) -> records.Pattern:
    return records.Pattern(
        name=name,
        description=data.get("description", ""),
        lines=tuple(_line_kind(line, shipped=not origin) for line in data["line"]),
        generic=data.get("generic", False),
        origin=origin,
    )


def _line_kind(data: Mapping[str, Any], *, shipped: bool) -> records.LineKind:
    contains = data.get("contains", ())
    form = records.Form(data["form"]) if "form" in data else None
    written = _written(data)
    return records.LineKind(
        name=data["name"],
        contains=(contains,) if isinstance(contains, str) and contains else tuple(contains),
        source=_expanded(written, shipped=shipped),
        shipped=shipped,
        metrics={key: _value(key, told) for key, told in data.get("metrics", {}).items()},
        kinds={group: records.Kind(kind) for group, kind in _WITH_KIND.findall(written)},
        keep={key: records.Keep(how) for key, how in data.get("keep", {}).items()},
        takes=tuple(data.get("takes", ())),
        after=tuple(data.get("after", ())),
        form=form,
        separator=data.get("separator", ""),
        between=data.get("between", ":"),
        fields={
            key: records.Value(name=told) if isinstance(told, str) else _value(key, told)
            for key, told in data.get("fields", {}).items()
        },
        pair=tuple(data.get("pair", ())),
        others=data.get("others", True),
        needs=tuple(tuple(names) for names in data.get("needs", ())),
    )


def _value(key: str, told: str | Mapping[str, str]) -> records.Value:
    if isinstance(told, str):
        return records.Value(name=key, unit=told)
    return records.Value(name=told.get("name", key), unit=told.get("unit", ""))


def _pattern_faults(name: str, data: object) -> Iterator[_Problem]:
    if not _NAME.fullmatch(name):
        yield (name,), "a pattern's name has small letters, digits, _ and - only"
    if not isinstance(data, Mapping):
        yield (name,), f"must be a table: [{name}] (got {schema.as_toml(data)})"
        return
    found = list(_misfits(data, _PATTERN_KEYS, (name,)))
    yield from found
    if not data.get("line"):
        yield (name,), f"has no lines: write [[{name}.line]]"
    elif not found:
        before: list[str] = []
        for place, line in enumerate(data["line"]):
            yield from _line_faults(line, before, (name, "line", place))
            before.append(line.get("name", ""))


def _line_faults(
    data: Mapping[str, Any], before: Sequence[str], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    found = list(_misfits(data, _LINE_KEYS, path))
    yield from found
    form = data.get("form")
    if form is not None and form not in list(records.Form):
        forms = ", ".join(f'"{known}"' for known in records.Form)
        yield (*path, "form"), f"must be one of {forms} (got {schema.as_toml(form)})"
        return
    for key in ("name", "regex"):
        if key not in data and not (key == "regex" and form):
            yield path, f"has no {key}"
            found.append((path, ""))
    if found:
        return
    if data["name"] in before:
        yield (*path, "name"), f'there is a line "{data["name"]}" before'
    for missing in set(data.get("after", ())) - {data["name"], *before}:
        yield (*path, "after"), f'there is no line "{missing}" before'
    if form is None:
        for key in _OF_FORMS:
            if key in data:
                yield (*path, key), 'is for lines with a form = "json", "dict" or "pairs"'
    if len(data.get("pair", ("", ""))) != 2:
        yield (*path, "pair"), 'must be two keys: pair = ["key", "value"]'
    yield from _named(data, path)
    source = _expanded(_written(data), shipped=False)
    try:
        regex = expressions.checked(source)
        expressions.Expression(source)
    except expressions.ExpressionError as error:
        yield (*path, "regex"), str(error)
        return
    yield from _regex_faults(regex, data, path)


def _misfits(
    data: Mapping[str, Any], keys: Mapping[str, Any], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    for key, value in data.items():
        if key not in keys:
            near = schema.did_you_mean(key, keys)
            cure = f'Did you mean "{near}"?' if near else f"Known here: {', '.join(sorted(keys))}."
            yield (*path, key), f"unknown key. {cure}"
        elif key == "line":
            if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
                yield (*path, key), f"must be tables: [[{path[0]}.line]]"
        elif not schema.fits(value, keys[key]):
            told = f"{schema.describe(keys[key])} (got {schema.as_toml(value)})"
            yield (*path, key), f"must be {told}"


def _named(data: Mapping[str, Any], path: key_paths.KeyPath) -> Iterator[_Problem]:
    """Tell what is wrong with the names and units under metrics, fields, keep and takes."""
    for table in ("metrics", "fields"):
        for key, told in data.get(table, {}).items():
            is_table = isinstance(told, Mapping) and set(told) <= set(_VALUE_KEYS)
            parts = list(told.values()) if is_table else [told]
            if not all(isinstance(p, str) and len(p) <= numbers.UNIT_CHARACTERS for p in parts):
                like = 'a unit such as "seconds" or ""' if table == "metrics" else "a metric's name"
                cure = f'must be {like}, or {{ name = "...", unit = "..." }}'
                yield (*path, table, key), f"{cure} (got {schema.as_toml(told)})"
                continue
            if table == "fields" and isinstance(told, str):
                name = told
            else:
                name = told.get("name", key) if isinstance(told, Mapping) else key
            if name and not numbers.METRIC_NAME.fullmatch(name):
                yield (*path, table, key), f"no metric is called so: {schema.as_toml(name)}"
    hows = ", ".join(f'"{how}"' for how in records.Keep)
    for name, how in data.get("keep", {}).items():
        if how not in list(records.Keep):
            yield (*path, "keep", name), f"must be one of {hows} (got {schema.as_toml(how)})"
    known = (*records.CONTEXT, records.PHASE)
    for table in ("keep", "takes"):
        for name in data.get(table, ()):
            if name not in known:
                context = ", ".join(known)
                yield (*path, table), f"only {context} hold for other lines (got {name})"


def _regex_faults(
    regex: re.Pattern[str], data: Mapping[str, Any], path: key_paths.KeyPath
) -> Iterator[_Problem]:
    groups = regex.groupindex
    metrics, keep = data.get("metrics", {}), data.get("keep", {})
    has_fields = "form" in data
    if not metrics and not keep and not has_fields:
        yield path, "finds nothing: name its groups under metrics or keep"
    for table, names in (("metrics", metrics), ("keep", keep)):
        for name in names:
            if name not in groups and not (table == "keep" and has_fields):
                cure = f"write (?P<{name}>{{number}})"
                yield (*path, table, name), f'the regex has no group "{name}": {cure}'
    if has_fields and records.FIELDS not in groups:
        yield (*path, "regex"), 'has no group "fields" for the form to read: write (?P<fields>.*)'
    for name in groups:
        known = name in metrics or name in keep or name in (*records.CONTEXT, records.PHASE)
        if name == records.FIELDS:
            if not has_fields:
                yield (*path, "regex"), 'the group "fields" needs a form'
        elif not known and name.removesuffix(records.UNIT_SUFFIX) not in metrics:
            cure = "name it under metrics, or write (?:...)"
            yield (*path, "regex"), f'the group "{name}" is not used: {cure}'


def _written(data: Mapping[str, Any]) -> str:
    written = data.get("regex")
    return str(_DEFAULT_REGEX[data["form"]] if written is None else written)


def _expanded(regex: str, *, shipped: bool) -> str:
    found = _SHORTHAND.sub(_shorthand, regex)
    # RE2, which matches those of users, needs and accepts no possessive repeats.
    return (
        found if shipped else found.replace(_NUMBER, _NUMBER.replace("++", "+").replace("*+", "*"))
    )


def _shorthand(found: re.Match[str]) -> str:
    integer, number, thousands, clock, fixed, decimals = found.groups()
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
