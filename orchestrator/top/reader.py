"""What the screen shows, read again when the database or the log of the selected job changes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
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
        self._database = stamps.Watch()
        self._log_row = 0
        self._marks: dict[str, object] = {}

    def look(self, shown: listing.Filter, row: int | None, panes: Collection[Pane]) -> View:
        """Return what is shown now; the same object if nothing has changed.

        row: of the selected job. panes: those that are visible; others stay as they were. Raises
        OrchestratorError.
        """
        file = self._context.store.file
        may_have_changed = file is None or self._database.may_have_changed(
            stamps.stamp([file, Path(f"{file}-wal")])
        )
        asked = shown, row, frozenset(panes)
        if may_have_changed or asked != self._asked:
            self._asked = None
            self._read_database(shown, row, panes)
            self._asked = asked
        if "log" in panes and (job := self._view.job) is not None:
            log = stamps.stamp([Path(job.stdout_path)] if job.stdout_path else [])
            mark = log, job.row, job.state, job.stdout_path
            self._update("log", mark, lambda: self._read_log(job))
        return self._view

    def _read_database(
        self, shown: listing.Filter, row: int | None, panes: Collection[Pane]
    ) -> None:
        context = self._context
        with context.store.reading() as work:
            all_jobs = work.changes.of_all(), shown
            self._update("listing", all_jobs, lambda: listing.read(context, shown))
            mark = None if row is None else work.changes.of_jobs([row]).get(row)
            job = None if row is None else work.jobs.get(row)
            if job != self._view.job:
                self._change(job=job)
            if job is None or mark is None:
                return
            if "metrics" in panes:
                values = row, mark.metric, mark.version
                read = functools.partial(details.read_curves, context, self._curves, job)
                self._update("curves", values, read)
        # Reads logs: not within the transaction.
        if "explain" in panes:
            read_explanation = functools.partial(details.read_explanation, context, job)
            self._update("explanation", (row, mark.version), read_explanation)

    def _read_log(self, job: jobs.Job) -> details.Log:
        known = self._view.log if self._log_row == job.row else details.Log()
        self._log_row = job.row
        return details.read_log(self._context, job, known)

    def _update(self, field: str, mark: object, read: Callable[[], object]) -> None:
        """Read a field of the view if its mark is new; after an error the next look tries again."""
        if self._marks.get(field) != mark:
            self._change(**{field: read()})
            self._marks[field] = mark

    def _change(self, **fields: object) -> None:
        self._view = dataclasses.replace(self._view, **fields)  # type: ignore[arg-type]


def stamp_of_job(job: jobs.Job) -> object:
    """Return what changes when a job writes to its logs or its metrics file."""
    # The first list does not need it.
    from orchestrator.controller.metrics import ingest

    return stamps.stamp([Path(path) for path in ingest.files_of(job)])
