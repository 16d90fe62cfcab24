"""What a batch file asks of sbatch in its own #SBATCH lines, and which of it cannot be followed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from orchestrator import errors
from orchestrator.rendering import directives
from orchestrator.specs import sbatch_options
from orchestrator.text import escaping

#: Long options of sbatch that take no value, or take one only behind `=`. Source: man sbatch 24.11.
_BARE = frozenset(
    {
        *("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice"),
        *("no-kill", "no-requeue", "overcommit", "oversubscribe", "parsable", "propagate"),
        *("quiet", "reboot", "requeue", "spread-job", "stepmgr", "test-only", "usage"),
        *("use-min-nodes", "verbose", "version", "wait", "immediate"),
    }
)
#: Overridden, or without effect on us.
_HARMLESS = frozenset({"open-mode", "ignore-pbs"})
_REFUSED = {
    **{name: why for name, why in sbatch_options.REFUSED.items() if name not in _HARMLESS},
    "array": "submit an array with sbatch, and follow it with `orchestrator track JOBID`",
}
_COMPONENTS = frozenset({"hetjob", "packjob"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a batch file."""

    #: the long name, "job-name"; as written where it is not known
    name: str
    value: str | None = None
    #: from 1, in the file
    line: int
    #: the line itself
    text: str


def read(text: str, source: str) -> list[Option]:
    """Return the options in a batch file's #SBATCH lines, the later of two being the one in force.

    The rules are getopt_long's, as sbatch uses it: long options with `=` or a word behind them, any
    unambiguous beginning of one, and short ones with their value attached or not. Raises SpecError
    with every line that cannot be followed; `source` is what messages call the file.
    """
    problems: list[errors.Problem] = []

    def tell(line: int, key: str, message: str) -> None:
        told = escaping.visible(lines[line - 1])
        problem = errors.Problem(
            source=escaping.visible(source), line=line, key=key, message=message, text=told
        )
        problems.append(problem)

    lines = text.split("\n")
    words: list[tuple[str, int]] = []
    for number, line in directives.header(lines):
        if line.startswith(("#PBS", "#BSUB")):
            tell(number, "", "sbatch reads this line too, and we do not: write it as #SBATCH")
        if not line.startswith("#SBATCH"):
            continue
        try:
            words += [(word, number) for word in directives.arguments(line)]
        except errors.TemplateError as exc:
            tell(number, "", str(exc))
    found = []
    for name, value, number in _options(words):
        if name in _COMPONENTS:
            tell(number, name, "heterogeneous jobs are not supported")
            continue
        found.append(Option(name=name, value=value, line=number, text=lines[number - 1]))
        if name in _REFUSED:
            tell(number, f"--{name}", f"is refused: {_REFUSED[name]}")
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
    return found


def last(options: Sequence[Option], name: str) -> Option | None:
    """Return the option of this name that is in force."""
    return next((option for option in reversed(options) if option.name == name), None)


def _options(words: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, value and line of each option; what is no option is left to sbatch to refuse."""
    rest = iter(words)
    for word, line in rest:
        if word in _COMPONENTS:
            yield word, None, line
        elif word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            name = sbatch_options.long_name(given)
            if equals:
                yield name, value, line
            elif name in _BARE:
                yield name, None, line
            else:
                yield name, next(rest, ("", line))[0], line
        elif word.startswith("-"):
            letters = word[1:]
            while letters:
                name, letters = sbatch_options.long_name(letters[0]), letters[1:]
                if name in _BARE:
                    yield name, None, line
                    continue
                yield name, letters or next(rest, ("", line))[0], line
                break
