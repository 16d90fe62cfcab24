"""What the screen shows, read again when the database or the log of the selected job changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from orchestrator import jobs
from orchestrator.controller.metrics import curves
from orchestrator.controller.session import contexts
from orchestrator.files import stamps
from orchestrator.top import details, listing

Pane: TypeAlias = Literal["log", "metrics", "explain"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """What the screen shows."""

    listing: listing.Listing | None = None
    #: the selected one
    job: jobs.Job | None = None
    log: details.Log = dataclasses.field(default_factory=details.Log)
    curves: Mapping[curves.Key, details.Series] = dataclasses.field(default_factory=dict)
    explanation: Sequence[str] = ()


class Reader:
    """Several threads may use it one after another."""

    def __init__(self, context: contexts.Context) -> None:
        self._context = context
        self._curves = curves.Cache()
        self._view = View()
        self._asked: object = None
        self._database: stamps.Stamp | None = None
        self._log: stamps.Stamp = ()
        self._marks: dict[str, object] = {}

    def look(self, shown: listing.Filter, row: int | None, panes: Collection[Pane]) -> View:
        """Return what is shown now; the same object if nothing has changed.

        row: of the selected job. panes: those that are visible; others stay as they were. Raises
        OrchestratorError.
        """
        file = self._context.store.file
        stamp = None if file is None else stamps.stamp([file, Path(f"{file}-wal")])
        asked = shown, row, frozenset(panes)
        if stamp is None or stamp != self._database or asked != self._asked:
            self._read_database(shown, row, panes)
            self._database, self._asked = stamp, asked
        if "log" in panes and (job := self._view.job) is not None:
            log = stamps.stamp([Path(job.stdout_path)] if job.stdout_path else [])
            if self._is_changed("log", (log, job.row, job.state, job.stdout_path)):
                known = self._view.log if self._log_row == job.row else details.Log()
                self._log_row = job.row
                self._change(log=details.read_log(self._context, job, known))
        return self._view

    _log_row = 0

    def _read_database(
        self, shown: listing.Filter, row: int | None, panes: Collection[Pane]
    ) -> None:
        context = self._context
        with context.store.reading() as work:
            if self._is_changed("list", (work.changes.of_all(), shown)):
                self._change(listing=listing.read(context, shown))
            if row is None:
                self._change(job=None)
                return
            mark = work.changes.of_jobs([row]).get(row)
            job = work.jobs.get(row)
            if job != self._view.job:
                self._change(job=job)
            if job is None or mark is None:
                return
            if "metrics" in panes and self._is_changed("metrics", (row, mark.metric, mark.version)):
                self._change(curves=details.read_curves(context, self._curves, job))
        # Reads logs: not within the transaction.
        if "explain" in panes and self._is_changed("explain", (row, mark.version)):
            self._change(explanation=details.read_explanation(context, job))

    def _is_changed(self, name: str, mark: object) -> bool:
        is_changed = self._marks.get(name) != mark
        self._marks[name] = mark
        return is_changed

    def _change(self, **fields: object) -> None:
        self._view = dataclasses.replace(self._view, **fields)  # type: ignore[arg-type]


def stamp_of_job(job: jobs.Job) -> object:
    """Return what changes when a job writes to its logs or its metrics file."""
    # The first list does not need it.
    from orchestrator.controller.metrics import ingest

    return stamps.stamp([Path(path) for path in ingest.files_of(job)])
