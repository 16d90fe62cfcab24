"""Queries of sacct for the jobs that squeue does not list any more."""

from __future__ import annotations

import datetime
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator import errors, jobs, tracking
from orchestrator.controller.refresh import slurm_queries
from orchestrator.controller.session import clusters, stores
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
FACTS = clusters.Facts(
    cluster="lab",
    slurm_version="24.11",
    message_timeout_seconds=10,
    min_job_age_seconds=300,
    max_array_size=1001,
    accounting=True,
    counts_gpus=False,
    asked_at=NOW,
)


def task(array: int, index: int) -> jobs.Job:
    job_id, row = f"{array}_{index}", array * 10 + index
    return builders.make_job(
        row=row, job_id=job_id, array_job_id=str(array), array_task_id=index, created_at=NOW
    )


def failed(job_id: str) -> tracking.Observation:
    return tracking.Observation(
        source="sacct",
        name="demo.abcd00000001",
        job_id=job_id,
        raw_job_id=job_id,
        state=jobs.JobState.FAILED,
        raw_state="FAILED",
        ended_at=NOW,
    )


def test_steps_of_failed_tasks(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queries, "SACCT_CHUNK", 1)
    tasks = [task(array, index) for array in (7, 8) for index in range(3)]
    compared: list[object] = []
    monkeypatch.setattr(jobs.Job, "__eq__", lambda *pair: compared.append(pair))

    def sacct(ids: Sequence[str], since: object) -> list[tracking.Observation]:
        return [failed(job.job_id or "") for job in tasks if job.array_job_id in ids]

    def steps(ids: Sequence[str], since: object) -> dict[str, tracking.Observation]:
        if ids == ["8"]:
            raise errors.SlurmError("slurmdbd is away")
        return {}

    slurm = types.SimpleNamespace(sacct=sacct, steps=steps)
    with stores.Store(database_url) as store:
        context = builders.make_context(tmp_path, store, now=NOW, slurm=slurm)
        rows = slurm_queries.query_sacct(
            context, FACTS, tasks, slurm_queries.SqueueRows(), NOW, good_at=None, error=""
        )
    assert rows.error == "slurmdbd is away"
    assert rows.without_steps == {80, 81, 82}
    # Each comparison reads all columns, and an array may have thousands of failed tasks.
    assert compared == []
