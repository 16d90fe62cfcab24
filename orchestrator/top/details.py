"""What is shown of the selected job: its log, its metrics, and why it failed or is pending.

Functions import what the first list does not need.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator import errors, jobs
from orchestrator.controller.metrics import curves
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.logs import windows
from orchestrator.rows import row_values
from orchestrator.text import escaping

#: The end of a log that is shown first.
_TAIL_BYTES = 64 * 1024
MAX_LINES = 2000
_NAME_CHARACTERS = 24
#: Of a curve; a terminal has fewer columns.
_MAX_PARTS = 512
_VALUE_CHARACTERS = 11
#: as explanation_texts indents the texts of its fields
_INDENT = 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Log:
    """The end of a log."""

    #: without the unfinished last line
    lines: Sequence[str] = ()
    #: the unfinished last line
    partial: str = ""
    #: why there is no log
    problem: str = ""
    inode: int = 0
    offset_bytes: int = 0

    @property
    def text(self) -> list[str]:
        """The lines that are shown."""
        last = [self.partial] if self.partial else []
        return [self.problem] if self.problem else [*self.lines, *last]


def read_log(context: contexts.Context, job: jobs.Job, known: Log) -> Log:
    """Return the newest lines of a job's log; `known`: what was read before."""
    if job.stdout_path is None:
        return Log(problem=f"No log yet: {naming.name_of(job)} is {job.state}.")
    try:
        window = windows.added(job.stdout_path, known.inode, known.offset_bytes)
        lines = known.lines
        if window is None:
            # Another job, or the log was replaced.
            status = os.stat(job.stdout_path)
            begin = max(0, status.st_size - _TAIL_BYTES)
            window = windows.added(job.stdout_path, status.st_ino, begin)
            lines = []
            if window is not None and begin:
                # It begins within a line.
                window = window._replace(lines=window.lines[1:])
        if window is None:
            return Log()
    except (errors.OrchestratorError, OSError) as error:
        from orchestrator.controller.prune import marks

        pruned = marks.note(context, job)
        return Log(problem=f"No log: {pruned}." if pruned else f"{error}.")
    return Log(
        lines=[*lines, *window.lines][-MAX_LINES:],
        partial=window.partial,
        inode=window.inode,
        offset_bytes=window.end_bytes,
    )


class Series(NamedTuple):
    """A curve, reduced to what a sparkline can show."""

    last: float
    #: shape (parts,), at most _MAX_PARTS; means of equal parts of the curve
    means: Sequence[float]


def read_curves(
    context: contexts.Context, cache: curves.Cache, job: jobs.Job
) -> dict[curves.Key, Series]:
    """Return each metric of a job, by name and unit, of the first rank that reports it."""
    from orchestrator.controller.recovery import chains

    with context.store.reading() as work:
        rows = list(chains.owners(work, [job]))
    of_job = cache.of(context, rows, "step")
    first = {key: of_ranks[0] for key, of_ranks in of_job.items() if of_ranks and of_ranks[0].y}
    return {key: Series(curve.last, _means(curve.y, _MAX_PARTS)) for key, curve in first.items()}


def metric_lines(metrics: Mapping[curves.Key, Series], width: int) -> list[str]:
    """Return name, last value and sparkline of each metric, `x` for NaN."""
    return list(_metric_lines(metrics, width)) or ["No metrics."]


def _metric_lines(metrics: Mapping[curves.Key, Series], width: int) -> Iterator[str]:
    from orchestrator.metrics import summaries

    labels = [escaping.one_line(_label(key)) for key in metrics]
    longest = min(max(map(len, labels), default=0), _NAME_CHARACTERS)
    for label, series in zip(labels, metrics.values(), strict=True):
        label = label if len(label) <= longest else f"{label[: longest - 1]}…"
        last = row_values.number(series.last)
        means = _means(series.means, width - longest - _VALUE_CHARACTERS - 4)
        yield f"{label:<{longest}}  {last:>{_VALUE_CHARACTERS}}  {summaries.sparkline(means)}"


def _means(values: Sequence[float], parts: int) -> Sequence[float]:
    """Return the means of so many equal parts of the values."""
    parts = max(1, min(parts, len(values)))
    bounds = [part * len(values) // parts for part in range(parts + 1)]
    return [sum(values[begin:end]) / (end - begin) for begin, end in itertools.pairwise(bounds)]


def _label(key: curves.Key) -> str:
    name, unit = key
    return f"{name} ({unit})" if unit else name


def read_explanation(context: contexts.Context, job: jobs.Job) -> list[str]:
    """Return why a job failed or is pending, as `explain` prints it; Slurm is not asked."""
    from orchestrator.controller.diagnosis import explanations
    from orchestrator.diagnosis.pending import jobs as pending_jobs
    from orchestrator.rows import explanation_rows, explanation_texts

    if not explanations.is_failed(job) and not pending_jobs.is_pending(job):
        alerts = [f"{alert.rule}: {alert.detail}" for alert in job.current_alerts]
        return [*map(escaping.one_line, alerts)] or [f"{naming.name_of(job)} is {job.state}."]
    rules = explanations.rules_with(())
    explained = explanation_rows.explained(context, [job], rules, may_ask=False)
    return list(explanation_texts.lines(explained))


def wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Return the lines of an explanation, broken at `width` characters."""
    import textwrap

    indent = " " * min(_INDENT, width // 4)
    return [
        part
        for line in lines
        for part in textwrap.wrap(
            line,
            max(10, width),
            subsequent_indent=indent,
            drop_whitespace=True,
            replace_whitespace=False,
        )
        or [""]
    ]
