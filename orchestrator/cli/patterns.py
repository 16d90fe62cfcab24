"""orchestrator patterns."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click

from orchestrator import files as opening
from orchestrator import jobs, logs, patterns
from orchestrator.cli import output, settings
from orchestrator.controller.metrics import job_patterns

_BLOCK_BYTES = 256 * 1024
#: Rows that are printed together: memory stays small, whatever the size of the log.
_PAGE_ROWS = 1000
_COLUMNS = ("line", "name", "value", "unit", "step", "epoch", "pattern")
#: Lines that are shown when none matched.
_NEAREST = 5
_NUMBER = re.compile(r"(?<![\w.])[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
_WORDS = re.compile(
    r"loss|\bacc|epoch|\bstep(?:s|\b)|\biter|\blr\b|/s\b|per.?sec|throughput|\bmfu", re.IGNORECASE
)

_file_option = click.option(
    "--patterns-file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file of patterns, besides those of the configuration.",
)


@click.group(name="patterns", short_help="List patterns, and try them on a log.")
def command() -> None:
    """List the patterns that find numbers in logs, and try them on a log."""


@command.command(name="list", short_help="Print every pattern.")
@_file_option
@output.format_option
@click.pass_context
def list_(ctx: click.Context, files: tuple[Path, ...], format_: str | None, as_json: bool) -> None:
    """Print every pattern: those of the configuration, and those that ship.

    \b
    Example:
      orchestrator patterns list
    """
    known = job_patterns.configured(settings.configuration_of(ctx), files)
    rows = [
        {
            "pattern": pattern.name,
            "origin": pattern.origin or "ships",
            "generic": pattern.generic,
            "metrics": _names(pattern),
            "description": pattern.description,
            "lines": [
                {"name": kind.name, "contains": list(kind.contains), "regex": kind.source}
                for kind in pattern.lines
            ],
        }
        for pattern in known
    ]
    columns = ("pattern", "origin", "metrics", "description")
    output.items("patterns", rows, columns, output.chosen(format_, as_json))


class _Log(click.File):
    """A file, also a pipe; of a FIFO to which nobody writes the end is not waited for."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" or not isinstance(value, str):
            return super().convert(value, param, ctx)
        try:
            found = opening.open_given(value)
        except (OSError, ValueError) as exc:
            told = getattr(exc, "strerror", None) or exc
            self.fail(f"{value!r}: {told}", param, ctx)
        if ctx is not None:
            ctx.call_on_close(found.close)
        return found


@command.command(name="test", short_help="Print what patterns find in a log.")
@click.argument("log", metavar="FILE", type=_Log())
@click.option("--pattern", "names", multiple=True, help="Only this pattern; default: all.")
@_file_option
@output.format_option
@click.pass_context
def test(
    ctx: click.Context,
    log: IO[bytes],
    names: tuple[str, ...],
    files: tuple[Path, ...],
    format_: str | None,
    as_json: bool,
) -> None:
    """Print each number that patterns find in FILE, with its line; - is stdin.

    Nothing is stored. Where nothing matches, the lines that look most like numbers are told.

    \b
    Examples:
      orchestrator patterns test train.log
      orchestrator logs 123 | orchestrator patterns test - --pattern olivia --json
    """
    known = job_patterns.configured(settings.configuration_of(ctx), files)
    chosen = patterns.select(known, names, source="--pattern")
    matcher = patterns.Matcher(chosen)
    trial = _Trial(matcher)
    form = output.chosen(format_, as_json)
    if form == "table":
        rows = list(itertools.chain.from_iterable(trial.pages(log)))
        output.items("matches", rows, _COLUMNS, form)
    else:
        for text in output.texts("matches", trial.pages(log), _COLUMNS, form):
            click.echo(text, nl=False)
    for reason in matcher.slow:
        output.say(reason)
    told = ", ".join(f"{count} by {name}" for name, count in trial.matched.most_common())
    if told:
        output.say(f"{trial.last} lines, of which {trial.telling} tell numbers: {told}")
        return
    output.say(f"{trial.last} lines, and no pattern knows one of them.")
    if trial.nearest:
        output.say("These look most like numbers:")
        for _, number, text in sorted(trial.nearest, key=lambda one: one[1]):
            output.say(f"{number:>7}  {text.strip()[:160]}")
        output.say("docs/howto/metrics.md tells how to write a pattern for such lines.")


class _Trial:
    """What patterns find in a log; its lines are not kept."""

    def __init__(self, matcher: patterns.Matcher) -> None:
        self._matcher = matcher
        #: the number of the last line
        self.last = 0
        #: lines that tell numbers
        self.telling = 0
        #: pattern -> lines, or parts of lines between carriage returns
        self.matched: Counter[str] = Counter()
        #: (score, number, text)
        self.nearest: list[tuple[int, int, str]] = []

    def pages(self, log: IO[bytes]) -> Iterator[list[dict[str, object]]]:
        """Yield the rows of some lines at a time."""
        rows: list[dict[str, object]] = []
        newest = 0
        for self.last, text in _lines(log):
            found = self._matcher.match(text, line=self.last)
            self.matched.update({metric.source.partition(":")[2] for metric in found})
            if found and newest != self.last:
                self.telling += 1
                newest = self.last
            if not self.matched:
                self.nearest = _nearer(self.nearest, self.last, text)
            rows += map(_row, found)
            if len(rows) >= _PAGE_ROWS:
                yield rows
                rows = []
        yield rows


def _row(metric: jobs.Metric) -> dict[str, object]:
    return {
        "line": metric.line,
        "name": metric.name,
        "value": metric.value,
        "unit": metric.unit,
        "step": metric.step,
        "epoch": metric.epoch,
        "rank": metric.rank,
        "time": metric.time,
        "pattern": metric.source.partition(":")[2],
    }


def _lines(log: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the lines, and the parts of lines between carriage returns, with their numbers."""
    held, line, skipping = b"", 0, False
    while True:
        block = log.read(_BLOCK_BYTES)
        part = logs.split(held + block, line=line, skipping=skipping, flush=not block)
        for number, _, raw in part.segments:
            yield number, logs.clean(raw)
        if not block:
            return
        held, line, skipping = (held + block)[part.consumed_bytes :], part.line, part.skipping


def _names(pattern: patterns.Pattern) -> list[str]:
    found = [
        value.name
        for kind in pattern.lines
        for value in (*kind.metrics.values(), *kind.fields.values())
        if value.name
    ]
    return list(dict.fromkeys(found))


def _nearer(
    nearest: Sequence[tuple[int, int, str]], number: int, text: str
) -> list[tuple[int, int, str]]:
    """Return the lines that look most like metrics, this one among them if it does."""
    words = len(set(_WORDS.findall(text.lower())))
    numbers = len(_NUMBER.findall(text))
    if not words or not numbers:
        return list(nearest)
    score = 4 * words + min(numbers, 8)
    return sorted([*nearest, (score, number, text)], key=lambda one: -one[0])[:_NEAREST]
