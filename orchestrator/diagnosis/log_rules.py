"""Rules that map log messages to causes. causes.toml describes the format. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from orchestrator import errors
from orchestrator.diagnosis import causes
from orchestrator.diagnosis.records import Level
from orchestrator.text import expressions
from orchestrator.toml import documents, schema

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
LEVELS = {level.name.lower(): level for level in Level}
#: Texts that the log reader handles itself: tracebacks and torchrun's summaries and restarts.
_READER_TEXTS = (
    "Traceback (most",
    "above exception",
    "Root Cause",
    "Failures:",
    "Exception ignored",
    "will restart worker",
)
Regex: TypeAlias = re.Pattern[str] | expressions.Expression


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """`[[rule]]`: one log message and its meaning."""

    name: str = ""
    cause: str = ""
    level: str = "root"
    #: a line must contain at least one of them
    contains: tuple[str, ...] = ()
    regex: str = ""
    #: may use the named groups of the regex in braces; "": the title of the cause
    says: str = ""
    cures: tuple[str, ...] = ()

    def summary(self, groups: Mapping[str, str]) -> str:
        """Return `says` with the groups filled in; "" if there is nothing to fill in."""
        if not self.says or ("{" in self.says and not any(groups.values())):
            return ""
        return self.says.format_map(groups)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    rule: tuple[Rule, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules in their order of precedence."""

    rules: tuple[tuple[Rule, Regex | None], ...]
    #: every line that matches a rule contains one of them
    prefilter: tuple[str, ...]
    #: name of each rule that is no longer used because it is too slow, with a message
    slow: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rules: Sequence[tuple[Rule, Regex | None]], words: Sequence[str]) -> Rules:
        texts = [text for rule, _ in rules for text in rule.contains]
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
        for rule, regex in self.rules:
            if rule.name in self.slow or not any(part in text for part in rule.contains):
                continue
            try:
                groups = {} if regex is None else _groups(regex, text)
            except expressions.TooSlowError as error:
                self.slow[rule.name] = f"rule {rule.name} is no longer used: its regex took {error}"
                continue
            if groups is not None:
                return rule, groups
        return None


def load_shipped() -> Rules:
    """Return the rules of causes.toml, whose expressions are tested and need no time limit."""
    data = documents.shipped("causes.toml")
    file, _ = schema.build(documents.Document(data=data, origins={}), _File)
    return _compiled(file, lambda regex: re.compile(regex, re.ASCII), data["words"])


def load_rules(text: str, source: str) -> Rules:
    """Return the rules of a user's TOML text. Raises ConfigurationError with all problems."""
    document, problems = documents.parse(text, source)
    file, messages = schema.build(document, _File)
    for index, rule in enumerate(file.rule):
        for key, message in _errors(rule):
            messages.setdefault(("rule", index, key), message)
    problems += [document.problem(path, message) for path, message in messages.items()]
    if problems:
        raise errors.ConfigurationError(problems)
    return _compiled(file, expressions.Expression, ())


def _compiled(file: _File, compile_regex: Callable[[str], Regex], words: Sequence[str]) -> Rules:
    rules = [(rule, compile_regex(rule.regex) if rule.regex else None) for rule in file.rule]
    return Rules.of(rules, words)


def _groups(regex: Regex, text: str) -> Mapping[str, str] | None:
    """Return the named groups, or None if the regex does not match. Raises TooSlowError."""
    match = regex.search(text)
    if match is None:
        return None
    # A regex whose parts are all optional matches nothing at the start of the line.
    if regex.groups and match.lastgroup is None:
        match = next((m for m in regex.finditer(text) if m.lastgroup), match)
    return {name: value or "" for name, value in match.groupdict().items()}


def _errors(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the key and the message of each invalid value."""
    if not _NAME.fullmatch(rule.name):
        yield "name", "must consist of lower-case letters, digits and -"
    for key, known in {"cause": [*causes.known()], "level": [*LEVELS]}.items():
        if (word := getattr(rule, key)) not in known:
            yield key, f"no such {key}. {schema.advice(word, known)}"
    if not all(rule.contains) or not rule.contains:
        yield "contains", "must be texts, one of which each matching line contains"
    try:
        groups = expressions.Expression(rule.regex).groupindex
    except expressions.ExpressionError as error:
        yield "regex", str(error)
        return
    for name in re.findall(r"\{(.*?)\}", rule.says):
        if name not in groups:
            yield "says", f'the regex has no group "{name}"'
