"""The progress bar of `wait`, on a terminal and in a notebook."""

from __future__ import annotations

import collections
import dataclasses
import html
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.rows import action_reports, job_rows, row_values

_WIDTH = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """Shows one line, which replaces the one before."""

    show: Callable[[str], None]
    close: Callable[[], None]


def default_bar(*, is_asked_for: bool) -> Bar | None:
    """Return the bar for the place where this program runs; None: a file, and not asked for."""
    if bar := notebook_bar():
        return bar
    return terminal_bar(sys.stderr) if is_asked_for or sys.stderr.isatty() else None


def terminal_bar(stream: TextIO) -> Bar:
    def show(text: str) -> None:
        # Erase to the end of the line (ECMA-48, EL).
        stream.write(f"\r{text}\x1b[K")
        stream.flush()

    def close() -> None:
        stream.write("\n")
        stream.flush()

    return Bar(show=show, close=close)


def notebook_bar() -> Bar | None:
    """Return a bar below the cell; None: this is no notebook."""
    # A program that runs in a notebook has loaded it.
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    display: Any = importlib.import_module("IPython.display")
    handle = display.display(display.HTML("<pre></pre>"), display_id=True)

    def show(text: str) -> None:
        handle.update(display.HTML(f"<pre>{html.escape(text)}</pre>"))

    return Bar(show=show, close=lambda: None)


def line(current: Sequence[jobs.Job], now: Any) -> str:
    """Return the progress of jobs: `41 RUNNING on n1 [#####     ] 00:05:00 of 00:10:00`."""
    if len(current) == 1:
        return _of_job(current[0], now)
    ended = sum(job.ended for job in current)
    counts = collections.Counter(str(job.state) for job in current)
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f"{_bar(ended / len(current))} {ended} of {len(current)} jobs ended: {states}"


def _of_job(job: jobs.Job, now: Any) -> str:
    nodes = f" on {job.node_list}" if job.node_list else ""
    text = f"{naming.name_of(job)} {action_reports.state_of(job, nodes)}"
    elapsed = job_rows.elapsed_seconds(job, now)
    if elapsed is None:
        return text
    text = f"{text} {row_values.elapsed(elapsed)}"
    if job.ended or not job.time_limit_seconds:
        return text
    limit = row_values.elapsed(job.time_limit_seconds)
    return f"{text} {_bar(min(1.0, elapsed / job.time_limit_seconds))} of at most {limit}"


def _bar(share: float) -> str:
    done = int(share * _WIDTH)
    return f"[{'#' * done}{' ' * (_WIDTH - done)}]"
