"""orchestrator patterns."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from orchestrator import files, jobs, patterns
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.metrics import job_patterns
from orchestrator.logs import lines
from orchestrator.rows import row_values

_BLOCK_BYTES = 256 * 1024
#: Rows that are kept in memory at a time.
_PAGE_ROWS = 1000
_PATTERN_COLUMNS = (
    Column("pattern", "name"),
    Column("origin", "parts", drop=1),
    Column("metrics", "parts", drop=2),
    Column("description", "text"),
)
_MATCH_COLUMNS = (
    Column("line"),
    Column("name", "name"),
    Column("value"),
    Column("unit", drop=2),
    Column("step", drop=4),
    Column("epoch", drop=3),
    Column("pattern", drop=1),
)
#: Lines that are shown if no line matches.
_MAX_CANDIDATES = 5
_NUMBER = re.compile(r"(?<![\w.])[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
_METRIC_WORDS = re.compile(
    r"loss|\bacc|epoch|\bstep(?:s|\b)|\biter|\blr\b|/s\b|per.?sec|throughput|\bmfu", re.IGNORECASE
)

_pattern_files = option(
    "--patterns-file",
    "TOML file with more patterns.",
    click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
)


pattern_commands = commands.Group(
    "patterns", help="List and test the patterns that find metrics in logs."
)


@pattern_commands.command(
    "list",
    "orchestrator patterns list",
    table=_PATTERN_COLUMNS,
    changes="nothing",
    prints=("patterns",),
)
def list_patterns(
    ctx: click.Context, pattern_files: tuple[Path, ...] = _pattern_files, form: str = options.form
) -> None:
    """List all patterns, configured and built-in."""
    known = job_patterns.configured(session.configuration_of(ctx), pattern_files)
    rows = [
        {
            "pattern": pattern.name,
            "origin": pattern.origin or "ships",
            "generic": pattern.generic,
            "metrics": _metric_names(pattern),
            "description": pattern.description,
            "lines": [
                {"name": kind.name, "contains": list(kind.texts), "regex": kind.source}
                for kind in pattern.lines
            ],
        }
        for pattern in known
    ]
    output.print_rows("patterns", rows, _PATTERN_COLUMNS, form)


def _metric_names(pattern: patterns.Pattern) -> list[str]:
    names = [
        value.name
        for kind in pattern.lines
        for value in (*kind.groups.values(), *kind.renamed.values())
        if value.name
    ]
    return list(dict.fromkeys(names))


class _LogFile(click.File):
    """A file or pipe; opening a FIFO does not wait for a writer."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" or not isinstance(value, str):
            return super().convert(value, param, ctx)
        try:
            file = files.open_regular(value, is_given=True)
        except (OSError, ValueError) as exc:
            self.fail(f"{value!r}: {getattr(exc, 'strerror', None) or exc}", param)
        if ctx is not None:
            ctx.call_on_close(file.close)
        return file


_LOG_FILE = _LogFile()


@pattern_commands.command(
    "test",
    "orchestrator patterns test train.log",
    "orchestrator logs 123 | orchestrator patterns test - --pattern olivia --json",
    table=_MATCH_COLUMNS,
    changes="nothing",
    prints=("matches",),
)
def test_patterns(
    ctx: click.Context,
    log: IO[bytes] = argument(metavar="FILE", type=_LOG_FILE),
    names: tuple[str, ...] = option(
        "--pattern", "Only this pattern. Default: all.", "NAME", multiple=True
    ),
    pattern_files: tuple[Path, ...] = _pattern_files,
    form: str = options.form,
) -> None:
    """Show the metrics that patterns find in a log.

    FILE is a log, or - for stdin. Nothing is stored. If no line matches, the lines that look most
    like metrics are printed.
    """
    known = job_patterns.configured(session.configuration_of(ctx), pattern_files)
    matcher = patterns.Matcher(patterns.select(known, names, source="--pattern"))
    trial = _Trial(matcher)
    output.print_pages("matches", trial.pages(log), _MATCH_COLUMNS, form)
    for reason in matcher.slow:
        output.note(reason)
    if trial.matches:
        counts = ", ".join(f"{count} by {name}" for name, count in trial.matches.most_common())
        output.note(f"{trial.lines} lines, {trial.matching_lines} with metrics: {counts}")
        return
    output.note(f"{trial.lines} lines; no pattern matches any of them.")
    if trial.candidates:
        output.note("These lines look most like metrics:")
        for _, number, text in sorted(trial.candidates, key=lambda candidate: candidate[1]):
            output.note(f"{number:>7}  {text.strip()[:160]}")
        output.note("docs/howto/metrics.md explains how to write a pattern for them.")


class _Trial:
    """What patterns find in a log; the lines are not kept."""

    def __init__(self, matcher: patterns.Matcher) -> None:
        self._matcher = matcher
        self.lines = 0
        self.matching_lines = 0
        #: pattern -> matches
        self.matches: collections.Counter[str] = collections.Counter()
        #: negative score, line number, text
        self.candidates: list[tuple[int, int, str]] = []

    def pages(self, log: IO[bytes]) -> Iterator[list[dict[str, object]]]:
        """Yield the metrics as pages of rows."""
        rows: list[dict[str, object]] = []
        last_match = 0
        for self.lines, text in _read_lines(log):
            metrics = self._matcher.metrics_of_line(text, line=self.lines)
            self.matches.update({_pattern_of(metric) for metric in metrics})
            if metrics and last_match != self.lines:
                self.matching_lines += 1
                last_match = self.lines
            if not self.matches:
                self._add_candidate(text)
            rows += map(_row, metrics)
            if len(rows) >= _PAGE_ROWS:
                yield rows
                rows = []
        yield rows

    def _add_candidate(self, text: str) -> None:
        words = len(set(_METRIC_WORDS.findall(text.lower())))
        numbers = len(_NUMBER.findall(text))
        if words and numbers:
            score = 4 * words + min(numbers, 8)
            best = sorted([*self.candidates, (-score, self.lines, text)])
            self.candidates = best[:_MAX_CANDIDATES]


def _pattern_of(metric: jobs.Metric) -> str:
    return metric.source.partition(":")[2]


def _row(metric: jobs.Metric) -> dict[str, object]:
    names = ("line", "name", "value", "unit", "step", "epoch", "rank", "time")
    return {**row_values.fields_of(metric, names), "pattern": _pattern_of(metric)}


def _read_lines(log: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines; text after a carriage return is a line with the same number."""
    rest, line, skipping = b"", 0, False
    while True:
        block = log.read(_BLOCK_BYTES)
        part = lines.split(rest + block, line=line, skipping=skipping, flush=not block)
        for number, raw in part.segments:
            yield number, lines.clean(raw)
        if not block:
            return
        rest, line, skipping = (rest + block)[part.consumed_bytes :], part.line, part.skipping
