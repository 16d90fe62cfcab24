"""TOML -> patterns; the form is told at the head of patterns.toml."""

from __future__ import annotations

import importlib
import importlib.resources
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import documents, errors, shapes, toml_lines
from orchestrator.patterns import numbers, records

SHIPPED = "patterns.toml"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PATTERN_KEYS: Mapping[str, Any] = {"description": str, "line": tuple[dict[str, Any], ...]}
_LINE_KEYS: Mapping[str, Any] = {
    "name": str,
    "contains": str,
    "regex": str,
    "metrics": Mapping[str, str],
    "keep": Mapping[str, str],
    "takes": tuple[str, ...],
    "after": tuple[str, ...],
}
_SHORTHAND = re.compile(r"\{(?:(integer)|(number)|fixed([1-9]))\}")
_NOT_FINITE = r"[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)"

_Problem = tuple[toml_lines.Path, str]


def load_shipped() -> tuple[records.Pattern, ...]:
    """Return the patterns that ship."""
    text = importlib.resources.files("orchestrator").joinpath(SHIPPED).read_text("utf-8")
    return load(text, SHIPPED)


def load(text: str, source: str) -> tuple[records.Pattern, ...]:
    """Return the patterns of a TOML text; ConfigurationError with all that is wrong in it."""
    document, problems = documents.parse(text, source)
    patterns = []
    for name, data in document.data.items():
        found: list[_Problem] = []
        pattern = _pattern(name, data, found)
        problems += [document.problem(path, message) for path, message in found]
        if pattern is not None:
            patterns.append(pattern)
    if problems:
        raise errors.ConfigurationError(problems)
    return tuple(patterns)


def select(
    patterns: Sequence[records.Pattern], names: Sequence[str], *, source: str = "spec"
) -> tuple[records.Pattern, ...]:
    """Return the named patterns in the order of the names; all of them when none is named."""
    known = {pattern.name: pattern for pattern in patterns}
    problems = []
    for name in names:
        if name not in known:
            near = shapes.did_you_mean(name, known)
            cure = f'Did you mean "{near}"?' if near else f"Known: {', '.join(sorted(known))}."
            message = f"no pattern {shapes.shown(name)}. {cure}"
            problems.append(errors.Problem(source=source, key="metrics.patterns", message=message))
    if problems:
        raise errors.ConfigurationError(problems)
    return tuple(known[name] for name in names) if names else tuple(patterns)


def _pattern(name: str, data: object, problems: list[_Problem]) -> records.Pattern | None:
    before = len(problems)
    if not _NAME.fullmatch(name):
        problems.append(((name,), "a pattern's name has small letters, digits, _ and - only"))
    if not isinstance(data, Mapping):
        problems.append(((name,), f"must be a table: [{name}] (got {shapes.shown(data)})"))
        return None
    problems += _misfits(data, _PATTERN_KEYS, (name,))
    lines = data.get("line")
    if not lines:
        problems.append(((name,), f"has no lines: write [[{name}.line]]"))
    if len(problems) > before:
        return None
    kinds: dict[str, records.LineKind] = {}
    for place, line in enumerate(data["line"]):
        path = (name, "line", place)
        kind = _line_kind(line, path, problems)
        if kind is not None and kind.name in kinds:
            problems.append(((*path, "name"), f'there is a line "{kind.name}" before'))
        elif kind is not None:
            kinds[kind.name] = kind
            for missing in set(kind.after) - kinds.keys():
                problems.append(((*path, "after"), f'there is no line "{missing}" before'))
    return records.Pattern(
        name=name, description=data.get("description", ""), lines=tuple(kinds.values())
    )


def _line_kind(
    data: Mapping[str, Any], path: toml_lines.Path, problems: list[_Problem]
) -> records.LineKind | None:
    found = list(_misfits(data, _LINE_KEYS, path))
    for key in ("name", "regex"):
        if key not in data:
            found.append((path, f"has no {key}"))
    if found:
        problems += found
        return None
    try:
        regex = re.compile(_SHORTHAND.sub(_shorthand, data["regex"]), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        # Not its position: that counts in the text with the shorthands written out.
        told = getattr(error, "msg", str(error))
        problems.append(((*path, "regex"), f"not a regular expression: {told}"))
        return None
    metrics, keep = data.get("metrics", {}), data.get("keep", {})
    takes = tuple(data.get("takes", ()))
    found = list(_faults(regex, metrics, keep, takes, path))
    if found:
        problems += found
        return None
    return records.LineKind(
        name=data["name"],
        contains=data.get("contains", ""),
        regex=regex,
        metrics=dict(metrics),
        keep={key: records.Keep(how) for key, how in keep.items()},
        takes=takes,
        after=tuple(data.get("after", ())),
    )


def _misfits(
    data: Mapping[str, Any], keys: Mapping[str, Any], path: toml_lines.Path
) -> Iterator[_Problem]:
    for key, value in data.items():
        if key not in keys:
            near = shapes.did_you_mean(key, keys)
            cure = f'Did you mean "{near}"?' if near else f"Known here: {', '.join(sorted(keys))}."
            yield (*path, key), f"unknown key. {cure}"
        elif key == "line":
            if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
                yield (*path, key), f"must be tables: [[{path[0]}.line]]"
        elif not shapes.fits(value, keys[key]):
            told = f"{shapes.describe(keys[key])} (got {shapes.shown(value)})"
            yield (*path, key), f"must be {told}"


def _faults(
    regex: re.Pattern[str],
    metrics: Mapping[str, Any],
    keep: Mapping[str, Any],
    takes: Sequence[str],
    path: toml_lines.Path,
) -> Iterator[_Problem]:
    groups = regex.groupindex
    if not metrics and not keep:
        yield path, "finds nothing: name its groups under metrics or keep"
    for table, names in (("metrics", metrics), ("keep", keep)):
        for name in names:
            if name not in groups:
                cure = f"write (?P<{name}>{{number}})"
                yield (*path, table, name), f'the regex has no group "{name}": {cure}'
    for name, unit in metrics.items():
        if not isinstance(unit, str) or len(unit) > numbers.UNIT_CHARACTERS:
            got = shapes.shown(unit)
            yield (*path, "metrics", name), f'must be a unit such as "seconds" or "" (got {got})'
    hows = ", ".join(f'"{how}"' for how in records.Keep)
    for name, how in keep.items():
        if how not in list(records.Keep):
            yield (*path, "keep", name), f"must be one of {hows} (got {shapes.shown(how)})"
    context = ", ".join(records.CONTEXT)
    for table, others in (("keep", list(keep)), ("takes", list(takes))):
        for name in others:
            if name not in records.CONTEXT:
                yield (*path, table), f"only {context} hold for other lines (got {name})"
    for name in groups:
        known = name in metrics or name in keep or name in records.CONTEXT
        if not known and name.removesuffix(records.UNIT_SUFFIX) not in metrics:
            cure = "name it under metrics, or write (?:...)"
            yield (*path, "regex"), f'the group "{name}" is not used: {cure}'
    if _may_explode(regex):
        message = (
            "a repeat of nothing but repeats, such as (a+)*, can take for ever on a long line: "
            "put a fixed text between them, or write a possessive one, (a++)*"
        )
        yield (*path, "regex"), message


def _shorthand(found: re.Match[str]) -> str:
    integer, number, decimals = found.groups()
    if integer:
        return "[0-9]+"
    if number:
        return rf"(?:[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|{_NOT_FINITE})"
    return rf"(?:[-+]?[0-9]+\.[0-9]{{{decimals}}}|{_NOT_FINITE})"


def _may_explode(regex: re.Pattern[str]) -> bool:
    """Tell whether there is an endless repeat whose body is made of endless repeats alone.

    Such a body can be cut up in exponentially many ways (measured: (a+)+b takes 2 s for 25
    characters). Python's re has no time limit, and gives its parse tree only through a private
    module, whose forms a unit test holds on to.
    """
    parser: Any = importlib.import_module("re._parser")
    return _explosive(parser.parse(regex.pattern, regex.flags))


def _explosive(sequence: Any) -> bool:
    for operator, argument in sequence:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT") and _endless(argument) and _loose(argument[2]):
            return True
        if any(_explosive(inner) for inner in _inside(name, argument)):
            return True
    return False


def _endless(repeat: Any) -> bool:
    # Whatever its exact limit: a{0,1000} is as slow as a*.
    return int(repeat[1]) > 20


def _loose(sequence: Any) -> bool:
    """Tell whether a sequence holds an endless repeat, and nothing that has to be there."""
    endless = False
    for operator, argument in sequence:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            endless = endless or _endless(argument) or _loose(argument[2])
            if not _endless(argument) and int(argument[0]) > 0 and not _loose(argument[2]):
                return False
        elif name == "AT":
            continue
        else:
            inner = _inside(name, argument)
            if name not in ("SUBPATTERN", "BRANCH") or not any(_loose(part) for part in inner):
                return False
            endless = True
    return endless


def _inside(name: str, argument: Any) -> list[Any]:
    """Return the sequences within an element of the parse tree."""
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part is not None]
    return []
