"""Collects what one refresh knows about each job: rows of Slurm and files of the run folder."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from pathlib import Path

from orchestrator import jobs, tracking
from orchestrator.controller.refresh import identity, slurm_queries
from orchestrator.controller.resubmission import submitters
from orchestrator.controller.session import clusters, contexts
from orchestrator.files import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collector:
    context: contexts.Context
    facts: clusters.Facts
    queue: slurm_queries.SqueueRows
    accounts: slurm_queries.SacctRows
    observed_at: datetime.datetime
    #: rows of jobs
    cancel_requested: set[int]
    #: by run folder: the attempts that started, by task. The tasks of an array share a folder
    _attempts: dict[Path, dict[int, list[int]]] = dataclasses.field(default_factory=dict)
    #: by run folder: no other user can change it
    _private: dict[Path, bool] = dataclasses.field(default_factory=dict)
    #: by job ID: the record of `scontrol show job`
    _records: dict[str, Mapping[str, str] | None] = dataclasses.field(default_factory=dict)

    def query_renamed(self, job: jobs.Job) -> None:
        """Ask Slurm about a row with the job's ID and another name; raises SlurmError."""
        row = self.queue.unidentified(job)
        if row is not None:
            self._is_renamed(job, row)

    def evidence(self, job: jobs.Job) -> tracking.Evidence:
        """Return what is known about a job, after `query_renamed` for all jobs."""
        rows, reused = self.queue.of(job), False
        unidentified = self.queue.unidentified(job)
        if unidentified is not None:
            is_renamed = self._is_renamed(job, unidentified)
            rows = (unidentified,) if is_renamed else rows
            reused = is_renamed is False
        is_ambiguous = len({row.job_id for row in rows} | {job.job_id or ""}) > 1
        may_have_ended = not rows or any(row.state in jobs.TERMINAL for row in rows)
        exit_record = owner = None
        if (is_ambiguous or may_have_ended) and self._is_private(Path(job.run_dir)):
            folder = run_folder.RunFolder(Path(job.run_dir))
            exit_record = self._exit_record(folder, job)
            # The local machine numbers its jobs itself and knows them all by their tokens.
            if not self.context.is_local:
                owner = folder.owner(job.array_task_id or 0)
        array_job_id = None
        if job.array_task_id is not None and not rows:
            array_job_id = slurm_queries.array_id(job, self.queue, self.accounts)
        now = self.context.clock.now()
        return tracking.Evidence(
            squeue=rows,
            sacct=self.accounts.of(job),
            exit_record=exit_record,
            owner=owner,
            reused=reused,
            array_job_id=array_job_id,
            cancel_requested=job.row in self.cancel_requested,
            squeue_at=self.observed_at,
            sacct_queried=job.row in self.accounts.queried,
            accounting=self.accounts.accounting,
            steps_known=job.row not in self.accounts.without_steps,
            submitter_alive=submitters.is_submitting(job, now),
            grace_seconds=clusters.grace_seconds(self.context, self.facts),
            now=now,
        )

    def _is_renamed(self, job: jobs.Job, row: tracking.Observation) -> bool | None:
        """Return whether the row with the job's ID is the job with a new name; None: unknown.

        A person may rename a pending job: only `scontrol show job` distinguishes it from another.
        """
        if job.tracked_name is not None and not identity.may_be(job, row):
            return False
        job_id = row.array_job_id or row.raw_job_id
        if job_id not in self._records:
            self._records[job_id] = self.context.scheduler.show_job(job_id)
        record = self._records[job_id]
        return None if record is None else identity.is_record_of(self.context, job, record)

    def _is_private(self, folder: Path) -> bool:
        if folder not in self._private:
            if why := contexts.run_folder_exposure(self.context, folder):
                self.context.reporter.warn(f"Its owner files and exit records are ignored: {why}")
            self._private[folder] = not why
        return self._private[folder]

    def _exit_record(
        self, folder: run_folder.RunFolder, job: jobs.Job
    ) -> tracking.Observation | None:
        if folder.path not in self._attempts:
            self._attempts[folder.path] = folder.attempts()
        attempts = self._attempts[folder.path].get(job.array_task_id or 0)
        if not attempts or attempts[-1] < job.attempt:
            # The newest attempt has not started.
            return None
        task, attempt = job.array_task_id or 0, attempts[-1]
        owner = folder.owner(task)
        record = folder.exit_record(task, attempt, token=job.token, owner=owner)
        if record is None or owner is None:
            return None
        return observation(job, record, owner, attempt)


def observation(
    job: jobs.Job,
    record: run_folder.ExitRecord,
    job_id: str,
    attempt: int,
) -> tracking.Observation:
    state = jobs.JobState.COMPLETED if record.rc == 0 else jobs.JobState.FAILED
    return tracking.Observation(
        source="record",
        name=run_folder.slurm_name(job.name, job.token),
        job_id=job_id,
        raw_job_id=job_id,
        state=jobs.JobState.REQUEUED if record.outcome == "requeue" else state,
        raw_state=f"exit record, rc {record.rc}",
        exit_code=record.rc,
        exit_signal=0,
        restart_count=attempt,
    )
