"""Sweep: many jobs that were submitted from one spec."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from orchestrator import jobs, sweeps
from orchestrator.api.job_handle import Job
from orchestrator.api.records import Records, plain, table
from orchestrator.controller.actions import confirmed
from orchestrator.controller.sweeps import queries
from orchestrator.rows import action_reports, result_rows, sweep_rows
from orchestrator.rows.contract import sweeps as contract

if TYPE_CHECKING:
    import pandas
    import polars

    from orchestrator.api.sessions import Session
    from orchestrator.sweeps import results

_COLUMNS = ("row", "name", "kind", "state", "points", *sweep_rows.COUNTS)


class Sweep:
    """A sweep: its points, each with its newest job."""

    def __init__(self, session: Session, stored: sweeps.StoredSweep) -> None:
        self._session = session
        self._stored = stored

    def __repr__(self) -> str:
        return f"<Sweep {self.name!r} (@{self.row}) {self.record['state']}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sweep) and (self._session, self.row) == (
            other._session,
            other.row,
        )

    def __hash__(self) -> int:
        return hash(self.row)

    def _repr_html_(self) -> str:
        return table(_COLUMNS, [self.record])

    @property
    def row(self) -> int:
        """The number of the sweep, @3 on the command line."""
        return self._stored.row

    @property
    def name(self) -> str:
        """The name of the sweep, that of its jobs."""
        return self._stored.name

    @property
    def state(self) -> str:
        """The state: "open", "ended" (all points have ended) or "cancelled" (no more follow)."""
        return str(self.record["state"])

    @property
    def record(self) -> dict[str, Any]:
        """The fields of `orchestrator sweep list --json`: points by state, GPU-hours and more."""
        with self._session.context() as context, context.store.reading() as work:
            (summary,) = queries.summaries(work, [self._stored])
        return plain(sweep_rows.sweep_row(summary))

    @property
    def points(self) -> Records:
        """The points, as `orchestrator sweep status --points --json` prints them."""
        now = datetime.datetime.now(datetime.UTC)
        rows = (plain(sweep_rows.point_row(point, now)) for point in self._points())
        return Records(rows, item=contract.PointRow)

    @property
    def jobs(self) -> list[Job]:
        """The newest job of each point that was submitted."""
        submitted = (point.job for point in self._points() if point.job is not None)
        return [Job(self._session, [job.row], [job]) for job in submitted]

    def refresh(self, *, now: bool | None = True) -> Self:
        """Update the states of the jobs.

        Args:
            now: query Slurm now (True), not at all (False), or if the stored state is older than
                the profile's poll_floor_seconds (None).
        """
        from orchestrator.controller.refresh import on_demand

        with self._session.context() as context:
            on_demand.refresh(context, now)
        return self

    def wait(
        self, timeout: float | None = None, *, check: bool = True, progress: bool | None = None
    ) -> Self:
        """Wait until the jobs of all points have ended.

        Args:
            timeout: seconds to wait at most; None: without limit.
            check: whether a point that did not complete is an error.
            progress: whether a progress bar is shown; default: in a notebook and on a terminal.

        Raises:
            errors.JobFailedError: a point did not complete, with `check`.
            errors.NotEndedError: a job has not ended after `timeout` seconds.
            errors.ConflictError: points are not submitted; `resume` submits them.
        """
        from orchestrator.api import waiting
        from orchestrator.controller.session import selection

        with self._session.context() as context:
            chosen = selection.Selection(sweeps=[f"@{self.row}"]).find(context, with_ended=True)
            rows = [job.row for job in chosen]
            last = waiting.wait(context, rows, timeout, progress=progress)
        if timeout is not None and (error := action_reports.not_ended(last, timeout)):
            raise error
        if check:
            action_reports.raise_unless_points_completed(last, self.row)
        return self

    def results(
        self,
        *metric: str,
        direction: Literal["min", "max"] | None = None,
        over: Sequence[str] = (),
        each: bool = False,
        unfinished: bool = False,
        best: int | None = None,
    ) -> Results:
        """Return which point is best: a record for each point, the best first.

        The records are those of `orchestrator sweep results --json`. Repeats and seeds are one
        record: their mean with its 95 % confidence interval. New log lines are read first.

        Args:
            metric: "val_accuracy", with a statistic "loss:min", or its value where another metric
                is best, "loss@val_accuracy"; the first one ranks. Default: what there is.
            direction: whether a low or a high value of the first metric is better; default: by its
                name.
            over: average over the values of these parameters, as over repeats and seeds.
            each: one record for each run: no means over repeats and seeds.
            unfinished: count what runs reported that are not COMPLETED.
            best: only the best so many.

        Raises:
            errors.NotFoundError: no job reports such a metric.
            errors.RequestError: the metric or the parameter is not valid.
        """
        from orchestrator.controller.sweeps import results

        wanted = results.Wanted(
            metrics=metric, direction=direction, over=over, each=each, unfinished=unfinished
        )
        with self._session.context() as context:
            material = results.read(context, self._stored)
            return Results(results.best(results.build(context, material, wanted), best))

    def cancel(self, *, timeout: float = confirmed.CONFIRM_SECONDS) -> Self:
        """Cancel the jobs of the sweep, and submit no more points.

        Args:
            timeout: seconds to wait at most until Slurm shows that the jobs ended.

        Raises:
            errors.SlurmError: Slurm refused, or does not show the change in time.
        """
        from orchestrator.api import actions

        with self._session.context("cancel") as context:
            _, live = queries.close(context, self._stored)
            if live:
                actions.carry_out(context, "cancel", live, timeout).raise_problems()
        return self._reread()

    def resume(self) -> Self:
        """Submit the points that are not submitted yet, for example after a refusal.

        Raises:
            errors.SlurmError: Slurm refused a job or did not answer.
        """
        from orchestrator.controller.sweeps import resume

        with self._session.context("resume") as context:
            resume.resume(context, self._stored, argv=sys.argv, report=_silent)
        return self._reread()

    def rerun(
        self, *point: str | int, failed: bool | None = None, missing: bool | None = None
    ) -> Self:
        """Submit failed or missing points again, as new jobs.

        Args:
            point: these points, by number or name, however they ended.
            failed: points that failed; default: True, unless something else is chosen.
            missing: points that were cancelled, lost or never submitted; default: as `failed`.

        Raises:
            errors.NotFoundError: there is no such point.
            errors.SlurmError: Slurm refused a job or did not answer.
        """
        from orchestrator.controller.sweeps import resume

        is_default = not (failed or missing or point)
        with self._session.context("rerun") as context:
            resume.rerun(
                context,
                self._stored,
                failed=bool(failed) or is_default,
                missing=bool(missing) or is_default,
                named=[str(each) for each in point],
                argv=sys.argv,
                report=_silent,
            )
        return self._reread()

    def _points(self) -> list[sweeps.StoredPoint]:
        with self._session.context() as context:
            return queries.points(context, self._stored)

    def _reread(self) -> Self:
        with self._session.context() as context:
            self._stored = queries.find(context, f"@{self.row}")
        return self


def _silent(submitted: Sequence[jobs.Job]) -> None:
    """Report nothing: the sweep shows what was submitted."""


class Results(Records):
    """The results of a sweep: the items of `orchestrator sweep results --json`.

    As a DataFrame there is a column for each parameter and metric, as in CSV.
    """

    def __init__(self, shown: results.Results) -> None:
        super().__init__(plain(result_rows.item(row, shown)) for row in shown.rows)
        self._columns_shown = result_rows.value_columns(shown)
        self._flat = Records(plain(result_rows.value_row(row, shown)) for row in shown.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame of pandas, with a column for each parameter and metric.

        Raises:
            errors.OrchestratorError: pandas is not installed.
        """
        return self._flat.to_pandas()[self._columns_shown]

    def to_polars(self) -> polars.DataFrame:
        """Return a DataFrame of polars, with a column for each parameter and metric.

        Raises:
            errors.OrchestratorError: polars is not installed.
        """
        return self._flat.to_polars().select(self._columns_shown)

    def _repr_html_(self) -> str:
        return table(self._columns_shown, self._flat)
