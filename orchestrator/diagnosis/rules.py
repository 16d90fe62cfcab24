"""TOML -> rules for lines of logs; the form is told at the head of causes.toml. Pure."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from orchestrator import errors
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Level
from orchestrator.text import expressions
from orchestrator.toml import documents, key_paths, schema

SHIPPED = "causes.toml"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_KEYS: Mapping[str, Any] = {
    "name": str,
    "cause": str,
    "level": str,
    "contains": tuple[str, ...],
    "regex": str,
    "says": str,
    "cures": tuple[str, ...],
}
_LEVELS = {level.name.lower(): level for level in Level}
#: What a reader looks for besides: tracebacks, chains of them, torchrun's summary and restarts.
_FRAMES = (
    *("Traceback (most", "above exception", "Root Cause"),
    *("Exception ignored", "will restart worker"),
)
_Problem = tuple[key_paths.KeyPath, str]
Regex: TypeAlias = re.Pattern[str] | expressions.Expression


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One message, and what it tells."""

    name: str
    cause: Cause
    level: Level = Level.ROOT
    #: a line has at least one of them
    contains: tuple[str, ...]
    regex: Regex | None = None
    #: with the regex's groups in braces; "": the cause's title
    says: str = ""
    cures: tuple[str, ...] = ()

    def match(self, text: str) -> Mapping[str, str] | None:
        """Return the groups found in a line; None where the rule does not fit.

        Raises TooSlowError for an expression of a user.
        """
        # Each line meets all rules: measured, a fifth faster than any() with a generator.
        for part in self.contains:
            if part in text:
                break
        else:
            return None
        if self.regex is None:
            return {}
        found = self.regex.search(text)
        if found is None:
            return None
        # A regex that is wholly optional fits at the line's beginning, before what it looks for.
        if self.regex.groups and found.lastgroup is None:
            found = next((m for m in self.regex.finditer(text) if m.lastgroup), found)
        return {name: value or "" for name, value in found.groupdict().items()}

    def summary(self, groups: Mapping[str, str]) -> str:
        """Return what the rule says with the line's own words; "" where it says nothing."""
        if not self.says or ("{" in self.says and not any(groups.values())):
            return ""
        return self.says.format_map(groups)


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules in their order, and the words of which a line of interest has one."""

    rules: tuple[Rule, ...]
    words: tuple[str, ...]
    #: rules that are not used any more, by their names: why
    slow: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rules: Sequence[Rule], words: Sequence[str]) -> Rules:
        missing = [
            part
            for rule in rules
            for part in rule.contains
            if not any(word in part for word in words)
        ]
        return cls(tuple(rules), tuple(dict.fromkeys([*words, *missing, *_FRAMES])))

    def before(self, others: Rules) -> Rules:
        """Return these rules, and the others where none of these fits."""
        return Rules.of([*self.rules, *others.rules], others.words)

    def may_match(self, text: str) -> bool:
        """Tell whether a line has one of the words; measured, as fast as a regex of them."""
        for word in self.words:
            if word in text:
                return True
        return False

    def match(self, text: str) -> tuple[Rule, Mapping[str, str]] | None:
        """Return the first rule that fits a line, and what it found there.

        A rule that is too slow on a line is not used any more; `slow` says why.
        """
        for rule in self.rules:
            if self.slow and rule.name in self.slow:
                continue
            try:
                groups = rule.match(text)
            except expressions.TooSlowError as error:
                self.slow[rule.name] = (
                    f"rule {rule.name} is not used any more: its regex took {error}"
                )
                continue
            if groups is not None:
                return rule, groups
        return None


def load_shipped() -> Rules:
    """Return the rules that ship, whose expressions are tested and matched by Python's re."""
    text = importlib.resources.files("orchestrator").joinpath(SHIPPED).read_text("utf-8")
    return load_rules(text, SHIPPED, compiled=lambda regex: re.compile(regex, re.ASCII))


def load_rules(
    text: str,
    source: str,
    *,
    compiled: Callable[[str], Regex] = expressions.Expression,
) -> Rules:
    """Return the rules of a TOML text; ConfigurationError with all that is wrong in it.

    `compiled` compiles their expressions; those of users are matched in bounded time.
    """
    document, problems = documents.parse(text, source)
    found: list[_Problem] = []
    rules = []
    for place, data in enumerate(document.data.get("rule", ())):
        rule = _rule(data, ("rule", place), found, compiled)
        if rule is not None:
            rules.append(rule)
    for key in document.data:
        if key not in ("rule", "words"):
            found.append(((key,), "unknown key. Known here: rule, words."))
    problems += [document.problem(path, message) for path, message in found]
    if problems:
        raise errors.ConfigurationError(problems)
    return Rules.of(rules, document.data.get("words", ()))


def _rule(
    data: object,
    path: key_paths.KeyPath,
    problems: list[_Problem],
    compiled: Callable[[str], Regex],
) -> Rule | None:
    if not isinstance(data, Mapping):
        problems.append((path, "must be a table: [[rule]]"))
        return None
    found = list(_faults(data, path))
    regex = None
    if "regex" in data and isinstance(data["regex"], str):
        try:
            regex = compiled(data["regex"])
        except expressions.ExpressionError as error:
            found.append(((*path, "regex"), str(error)))
    says = data.get("says", "")
    if not found:
        groups = regex.groupindex if regex else {}
        for name in re.findall(r"\{(.*?)\}", says):
            if name not in groups:
                found.append(((*path, "says"), f'the regex has no group "{name}"'))
    if found:
        problems += found
        return None
    return Rule(
        name=data["name"],
        cause=Cause(data["cause"]),
        level=_LEVELS[data.get("level", "root")],
        contains=tuple(data["contains"]),
        regex=regex,
        says=says,
        cures=tuple(data.get("cures", ())),
    )


def _faults(data: Mapping[str, Any], path: key_paths.KeyPath) -> Iterator[_Problem]:
    for key, value in data.items():
        if key not in _KEYS:
            near = schema.did_you_mean(key, _KEYS)
            cure = f'Did you mean "{near}"?' if near else f"Known here: {', '.join(_KEYS)}."
            yield (*path, key), f"unknown key. {cure}"
        elif not schema.fits(value, _KEYS[key]):
            told = f"{schema.describe(_KEYS[key])} (got {schema.as_toml(value)})"
            yield (*path, key), f"must be {told}"
    for key in ("name", "cause", "contains"):
        if not data.get(key):
            yield path, f"has no {key}"
    name, cause, level = data.get("name"), data.get("cause"), data.get("level", "root")
    if isinstance(name, str) and name and not _NAME.fullmatch(name):
        yield (*path, "name"), "has small letters, digits and - only"
    for key, value, known in (("cause", cause, list(Cause)), ("level", level, list(_LEVELS))):
        if isinstance(value, str) and value and value not in known:
            near = schema.did_you_mean(value, known)
            cure = f'Did you mean "{near}"?' if near else f"Known: {', '.join(known)}."
            yield (*path, key), f"no such {key}. {cure}"
