"""Job: a submitted job or job array, to be followed and controlled."""

from __future__ import annotations

import datetime
import html
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from orchestrator import errors, jobs
from orchestrator.api.descriptions import check_count
from orchestrator.api.records import Records, plain, table
from orchestrator.controller.actions import confirmed
from orchestrator.controller.session import queries
from orchestrator.rows import action_reports, job_rows
from orchestrator.rows.contract import jobs as contract

if TYPE_CHECKING:
    from orchestrator.api import actions
    from orchestrator.api.sessions import Session

#: Columns of a job in a notebook.
_COLUMNS = ("job_id", "row", "name", "state", "reason", "elapsed", "nodes", "gpus", "node_list")
_SHOWN_TASKS = 20


class Job:
    """A job, or a job array with all its tasks.

    Its fields are those of the last look at the database; `refresh` and every method that waits or
    acts update them. A job that Slurm requeues stays the same job. `wait` follows a job with retry
    rules to its newest continuation job.
    """

    def __init__(self, session: Session, rows: Sequence[int], known: Sequence[jobs.Job]) -> None:
        self._session = session
        self._rows = tuple(rows)
        self._known = list(known)

    def __repr__(self) -> str:
        return f"<Job {self.id or '-'} (@{self.row}) {self.name!r} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self._session, self._rows) == (
            other._session,
            other._rows,
        )

    def __hash__(self) -> int:
        return hash(self._rows)

    def _repr_html_(self) -> str:
        now = self._now()
        lines = [job_rows.job_line(job_rows.job_row(job, now)) for job in self._known]
        more = len(lines) - _SHOWN_TASKS
        note = f"<p>... and {more} more tasks</p>" if more > 0 else ""
        return table(_COLUMNS, lines[:_SHOWN_TASKS]) + note

    @property
    def id(self) -> str | None:
        """The job ID: "123", of one array task "123_4", without Slurm "local-7".

        None: the job has none yet, because it is deferred or was never submitted.
        """
        first = self._known[0]
        return first.job_id if len(self._known) == 1 else first.array_job_id

    @property
    def row(self) -> int:
        """The number of the job here, @7 on the command line; of an array, of its first task."""
        return self._rows[0]

    @property
    def name(self) -> str:
        """The name of the job, without the token that Slurm's job name ends with."""
        return self._known[0].name

    @property
    def state(self) -> jobs.JobState:
        """The state, such as RUNNING: a string, and a member of the enumeration JobState.

        Of an array: RUNNING if a task runs, otherwise the state of the first task that has not
        ended; when all have ended, COMPLETED if all completed, otherwise the state of the first
        task that did not.
        """
        states = [job.state for job in self._known]
        live = [job.state for job in self._known if not job.ended]
        if live:
            return jobs.JobState.RUNNING if jobs.JobState.RUNNING in live else live[0]
        failed = [state for state in states if state is not jobs.JobState.COMPLETED]
        return failed[0] if failed else jobs.JobState.COMPLETED

    @property
    def ended(self) -> bool:
        """Whether nothing more happens automatically, of an array to any task."""
        return all(job.ended for job in self._known)

    @property
    def tasks(self) -> list[Job]:
        """The tasks of an array as jobs; a job alone is its only task."""
        return [Job(self._session, [job.row], [job]) for job in self._known]

    @property
    def record(self) -> dict[str, Any]:
        """The fields that `orchestrator status --json` prints; of an array, of its first task."""
        return self.records[0]

    @property
    def records(self) -> Records:
        """The fields that `orchestrator status --json` prints, for each task of an array."""
        now = self._now()
        rows = (plain(job_rows.job_row(job, now)) for job in self._known)
        return Records(rows, item=contract.JobRow)

    def read(self) -> list[jobs.Job]:
        """Read the job from the database, without asking Slurm.

        Raises:
            errors.NotFoundError: its rows were pruned.
        """
        with self._session.context() as context:
            known, _ = queries.with_staleness(context, confirmed.stored(context, self._rows))
        if len(known) < len(self._rows):
            raise errors.NotFoundError(f"@{self.row} ({self.name}) was pruned")
        self._known = known
        return known

    def refresh(self, *, now: bool | None = True) -> Self:
        """Update the state.

        Args:
            now: query Slurm now (True), not at all (False), or if the stored state is older than
                the profile's poll_floor_seconds (None).

        Raises:
            errors.SlurmError: Slurm does not respond, with `now=True`.
        """
        from orchestrator.controller.refresh import on_demand

        with self._session.context() as context:
            fresh = on_demand.refresh(context, now)
        if now and fresh is not None and fresh.failing_since is not None:
            since = fresh.failing_since.astimezone().isoformat(timespec="seconds")
            raise errors.SlurmError(f"Slurm has not responded since {since}: {fresh.last_error}")
        self.read()
        return self

    def wait(
        self, timeout: float | None = None, *, check: bool = True, progress: bool | None = None
    ) -> Self:
        """Wait until the job has ended, of an array all its tasks.

        However many processes wait, squeue runs once per interval. Recovery rules of the spec are
        applied meanwhile, as by `orchestrator wait`.

        Args:
            timeout: seconds to wait at most; None: without limit.
            check: whether a job that did not complete is an error.
            progress: whether a progress bar is shown; default: in a notebook and on a terminal.

        Raises:
            errors.JobFailedError: the job did not complete, with `check`.
            errors.NotEndedError: the job has not ended after `timeout` seconds.
        """
        from orchestrator.api import waiting

        with self._session.context() as context:
            last = waiting.wait(context, self._rows, timeout, progress=progress)
        self._rows, self._known = tuple(job.row for job in last), last
        if timeout is not None and (error := action_reports.not_ended(last, timeout)):
            raise error
        if check:
            action_reports.raise_unless_completed(last)
        return self

    def logs(
        self,
        *,
        follow: bool = False,
        lines: int | None = None,
        stderr: bool = False,
        attempt: int | None = None,
    ) -> Iterator[str]:
        """Yield the lines of the log, without line ends; bytes that are not UTF-8 become U+FFFD.

        Args:
            follow: also yield new lines, until the job has ended; of an array, each task's lines as
                they come.
            lines: of the existing lines only the last so many; None: all.
            stderr: the error log, if it is a separate file.
            attempt: only this attempt, from 0; not with `follow` or `stderr`.

        Raises:
            errors.NotFoundError: there is no log, with the reason.
            errors.RequestError: `attempt` with `follow` or `stderr`.
        """
        from orchestrator.api import log_lines

        check_count("lines", lines)
        if attempt is not None and (follow or stderr):
            raise errors.RequestError("attempt cannot be combined with follow or stderr")
        selected = self.read()
        if follow:
            return log_lines.followed(self._session, selected, lines=lines, stderr=stderr)
        return log_lines.existing(
            self._session, selected, lines=lines, stderr=stderr, attempt=attempt
        )

    def metrics(
        self,
        *name: str,
        last: int | None = None,
        attempt: int | None = None,
        rank: int | None = None,
    ) -> Records:
        """Return the metrics in the job's logs and metrics.jsonl, the oldest first.

        New log lines are read first. Each record has the fields of `orchestrator metrics --json`:
        name, value, unit, step, epoch, rank, time (ISO 8601) and where it was read.

        Args:
            name: only these metrics: "loss", "val_*".
            last: only the last so many of each name and rank.
            attempt: only this attempt, from 0.
            rank: only this rank.
        """
        from orchestrator import metrics
        from orchestrator.controller.metrics import ingest
        from orchestrator.controller.metrics import queries as metric_queries
        from orchestrator.rows import metric_rows
        from orchestrator.rows.contract import results

        check_count("last", last)
        selected = self.read()
        by_row = {job.row: job for job in selected}
        query = metrics.MetricQuery(
            job_rows=self._rows,
            names=name,
            last=last,
            attempt=attempt,
            rank=rank,
            prefer_jsonl=True,
        )
        with self._session.context() as context:
            ingest.ingest_for_command(context, selected)
            rows = (
                plain(metric_rows.metric_row(row, by_row[row.job_row]))
                for page in metric_queries.pages(context, query)
                for row in page
            )
            return Records(rows, item=results.MetricRow)

    def explain(self, *, attempt: int | None = None) -> Explanation:
        """Explain why the job failed or is pending, and how to fix it; of an array, failed tasks.

        Args:
            attempt: explain this attempt, from 0; default: the newest.

        Raises:
            errors.NotFoundError: the job has no such attempt.
        """
        from orchestrator.controller.diagnosis import explanations
        from orchestrator.controller.refresh import on_demand
        from orchestrator.rows import explanation_rows, explanation_texts

        with self._session.context() as context:
            on_demand.refresh(context, None)
            explained = explanation_rows.explained(
                context,
                explanations.to_explain(self.read()),
                explanations.rules_with(()),
                attempt,
            )
        return Explanation(
            map(plain, map(explanation_rows.row, explained)),
            text="\n".join(explanation_texts.lines(explained)),
        )

    def cancel(self, *, timeout: float = confirmed.CONFIRM_SECONDS) -> Self:
        """Cancel the job, and wait until Slurm shows that it ended.

        Args:
            timeout: seconds to wait at most until Slurm shows the change.

        Raises:
            errors.SlurmError: Slurm refused, or does not show the change in time.
        """
        return self._act("cancel", timeout)

    def requeue(self, *, hold: bool = False, timeout: float = confirmed.CONFIRM_SECONDS) -> Self:
        """Requeue the job under the same job ID, and wait until Slurm shows it.

        A running job is stopped, and its script starts again as the next attempt.

        Args:
            hold: hold the job, so that it starts when it is released.
            timeout: seconds to wait at most until Slurm shows the change.

        Raises:
            errors.SlurmError: Slurm refused, or does not show the change in time.
            errors.ConflictError: Slurm does not know the job any more: use `resubmit`.
        """
        return self._act("requeue-hold" if hold else "requeue", timeout)

    def hold(self, *, timeout: float = confirmed.CONFIRM_SECONDS) -> Self:
        """Prevent the pending job from starting.

        Args:
            timeout: seconds to wait at most until Slurm shows the change.

        Raises:
            errors.SlurmError: Slurm refused, or does not show the change in time.
            errors.ConflictError: the job is not pending.
        """
        return self._act("hold", timeout)

    def release(self, *, timeout: float = confirmed.CONFIRM_SECONDS) -> Self:
        """Allow the held job to start.

        Args:
            timeout: seconds to wait at most until Slurm shows the change.

        Raises:
            errors.SlurmError: Slurm refused, or does not show the change in time.
        """
        return self._act("release", timeout)

    def resubmit(self, *, fresh: bool = False, queue: bool | None = None) -> Job:
        """Submit the job again that has ended or was never submitted, and return the new job.

        Args:
            fresh: render the stored spec with the current templates; default: the same script.
            queue: whether it is deferred if Slurm refuses it for now; default: as the profile says.

        Raises:
            errors.ConflictError: the job has not ended.
            errors.SlurmError: Slurm refused the job or did not answer.
        """
        from orchestrator.controller.resubmission import resubmit
        from orchestrator.controller.submission import submit

        with self._session.context("resubmit") as context:
            first = resubmit.resubmit(context, self.read(), fresh=fresh, queue=queue, argv=sys.argv)
            tasks = submit.tasks_of(context, first)
        return Job(self._session, [job.row for job in tasks], tasks)

    def _act(self, action: actions.Action, timeout_seconds: float) -> Self:
        from orchestrator.api import actions as acting

        with self._session.context(action) as context:
            report = acting.carry_out(context, action, self.read(), timeout_seconds)
        self.read()
        report.raise_problems()
        return self

    def _now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)


class Explanation(Records):
    """Why jobs failed or are pending: the items of `explain --json`. `str()` is the text."""

    def __init__(self, items: Iterable[dict[str, Any]], *, text: str) -> None:
        super().__init__(items, item=contract.ExplanationRow)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"
