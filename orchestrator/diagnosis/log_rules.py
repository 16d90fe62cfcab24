"""Rules that map log messages to causes. causes.toml describes the format. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from orchestrator import errors
from orchestrator.diagnosis import causes
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Level
from orchestrator.text import expressions
from orchestrator.toml import documents, key_paths, schema

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
#: Texts that the log reader handles itself: tracebacks and torchrun's summaries and restarts.
_READER_TEXTS = (
    "Traceback (most",
    "above exception",
    "Root Cause",
    "Exception ignored",
    "will restart worker",
)
_Problem: TypeAlias = tuple[key_paths.KeyPath, str]
Regex: TypeAlias = re.Pattern[str] | expressions.Expression


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One log message and its meaning."""

    name: str
    cause: Cause
    level: Level = Level.ROOT
    #: a line must contain at least one of them
    contains: tuple[str, ...]
    regex: Regex | None = None
    #: may use the named groups of the regex in braces; "": the title of the cause
    says: str = ""
    cures: tuple[str, ...] = ()

    def match(self, text: str) -> Mapping[str, str] | None:
        """Return the named groups, or None if the rule does not match. Raises TooSlowError."""
        if not any(part in text for part in self.contains):
            return None
        if self.regex is None:
            return {}
        match = self.regex.search(text)
        if match is None:
            return None
        # A regex whose parts are all optional matches nothing at the start of the line.
        if self.regex.groups and match.lastgroup is None:
            match = next((m for m in self.regex.finditer(text) if m.lastgroup), match)
        return {name: value or "" for name, value in match.groupdict().items()}

    def summary(self, groups: Mapping[str, str]) -> str:
        """Return `says` with the groups filled in; "" if there is nothing to fill in."""
        if not self.says or ("{" in self.says and not any(groups.values())):
            return ""
        return self.says.format_map(groups)


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules in their order of precedence."""

    rules: tuple[Rule, ...]
    #: every line that matches a rule contains one of them
    prefilter: tuple[str, ...]
    #: name of each rule that is no longer used because it is too slow, with a message
    slow: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rules: Sequence[Rule], words: Sequence[str]) -> Rules:
        texts = [text for rule in rules for text in rule.contains]
        missing = [text for text in texts if not any(word in text for word in words)]
        return cls(tuple(rules), tuple(dict.fromkeys([*words, *missing, *_READER_TEXTS])))

    def before(self, rules: Rules) -> Rules:
        """Return these rules, followed by other ones."""
        return Rules.of([*self.rules, *rules.rules], rules.prefilter)

    def may_match(self, text: str) -> bool:
        """Return False if neither a rule nor the log reader can match the line."""
        return any(word in text for word in self.prefilter)

    def match(self, text: str) -> tuple[Rule, Mapping[str, str]] | None:
        """Return the first rule that matches a line and its named groups.

        A rule that is too slow on a line is not used again; `slow` has the reason.
        """
        for rule in self.rules:
            if rule.name in self.slow:
                continue
            try:
                groups = rule.match(text)
            except expressions.TooSlowError as error:
                self.slow[rule.name] = f"rule {rule.name} is no longer used: its regex took {error}"
                continue
            if groups is not None:
                return rule, groups
        return None


def load_shipped() -> Rules:
    """Return the rules of causes.toml, whose expressions are tested and need no time limit."""
    document = documents.Document(data=causes.shipped_document(), origins={})
    rules, problems = _rules(document, lambda regex: re.compile(regex, re.ASCII))
    assert not problems, problems
    return Rules.of(rules, document.data["words"])


def load_rules(text: str, source: str) -> Rules:
    """Return the rules of a user's TOML text. Raises ConfigurationError with all problems."""
    document, syntax_problems = documents.parse(text, source)
    rules, problems = _rules(document, expressions.Expression)
    problems += [
        ((key,), "unknown key. Known: rule, words.")
        for key in document.data
        if key not in ("rule", "words")
    ]
    if syntax_problems or problems:
        located = [document.problem(path, message) for path, message in problems]
        raise errors.ConfigurationError([*syntax_problems, *located])
    return Rules.of(rules, document.data.get("words", ()))


def _rules(
    document: documents.Document, compile_regex: Callable[[str], Regex]
) -> tuple[list[Rule], list[_Problem]]:
    rules: list[Rule] = []
    problems: list[_Problem] = []
    for index, data in enumerate(document.data.get("rule", ())):
        path = ("rule", index)
        if not isinstance(data, Mapping):
            problems.append((path, "must be a table: [[rule]]"))
            continue
        wrong = list(_wrong_keys(data, path))
        regex = None
        if isinstance(data.get("regex"), str):
            try:
                regex = compile_regex(data["regex"])
            except expressions.ExpressionError as error:
                wrong.append(((*path, "regex"), str(error)))
        if not wrong:
            groups = regex.groupindex if regex else {}
            wrong = [
                ((*path, "says"), f'the regex has no group "{name}"')
                for name in re.findall(r"\{(.*?)\}", data.get("says", ""))
                if name not in groups
            ]
        problems += wrong
        if not wrong:
            values = {
                "level": _LEVELS[data.get("level", "root")],
                "cause": Cause(data["cause"]),
                "contains": tuple(data["contains"]),
                "cures": tuple(data.get("cures", ())),
                "regex": regex,
            }
            rules.append(Rule(**{**data, **values}))
    return rules, problems


def _wrong_keys(data: Mapping[str, Any], path: key_paths.KeyPath) -> Iterator[_Problem]:
    for key, value in data.items():
        if key not in _KEYS:
            yield (*path, key), f"unknown key. {_advice(key, _KEYS)}"
        elif not schema.fits(value, _KEYS[key]):
            kind = schema.describe(_KEYS[key])
            yield (*path, key), f"must be {kind} (got {schema.as_toml(value)})"
    for key in ("name", "cause", "contains"):
        if not data.get(key):
            yield path, f"has no {key}"
    name = data.get("name")
    if isinstance(name, str) and name and not _NAME.fullmatch(name):
        yield (*path, "name"), "must consist of lower-case letters, digits and -"
    for key, known in (("cause", [*Cause]), ("level", [*_LEVELS])):
        value = data.get(key)
        if isinstance(value, str) and value and value not in known:
            yield (*path, key), f"no such {key}. {_advice(value, known)}"


def _advice(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = schema.did_you_mean(word, known)
    return f'Did you mean "{near}"?' if near else f"Known: {', '.join(known)}."
