"""Dependents: those alone are looked at whose predecessor ended, and one failure keeps no other."""

from __future__ import annotations

import datetime
import time
import types
from pathlib import Path
from typing import Any

import pytest

from orchestrator import config, errors, jobs, specs
from orchestrator.controller import context as contexts
from orchestrator.controller import dependents, stores
from orchestrator.jobs import dependency

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)


def test_one_that_slurm_refuses_keeps_no_other_waiting(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def set_dependency(job_id: str, text: str) -> None:
        asked.append((job_id, text))
        if job_id == "4":
            raise errors.SlurmError("Job/step already completing or completed")

    facts = types.SimpleNamespace(cluster="lab")
    monkeypatch.setattr(contexts, "cluster_facts", lambda context, **options: facts)
    client: Any = types.SimpleNamespace(set_dependency=set_dependency)
    with stores.Store(database_url) as store:
        context = contexts.Context(
            configuration=config.load({"HOME": str(tmp_path)}, tmp_path),
            store=store,
            client=lambda: client,
            environ={},
            folder=tmp_path,
            say=pytest.fail,
            sleep=time.sleep,
            clock=lambda: NOW,
        )

        def add(state: jobs.JobState, on_job: int | None = None, **fields: object) -> int:
            with store.writing() as work:
                record = jobs.Submission(
                    token=f"abcd{len(numbers):08}",
                    cluster="lab",
                    scheduler="slurm",
                    name="x",
                    script="x",
                    spec=specs.to_json(jobs.JobSpec(name="x")),
                    run_dir="/r",
                    provenance="{}",
                    created_at=NOW,
                )
                job_id = str(len(numbers) + 1)
                (job,) = work.add_submission(record, state=state, job_id=job_id, **fields)
                if on_job is not None:
                    depends = dependency.Depends(kind="afterok", on_job=on_job)
                    work.dependencies.add(job.row, [depends])
            numbers.append(job.row)
            return job.row

        numbers: list[int] = []
        failed = add(jobs.JobState.FAILED, settled=True)
        runs = add(jobs.JobState.RUNNING)
        add(jobs.JobState.RUNNING, continues=failed)
        first, second = (add(jobs.JobState.PENDING, failed) for _ in range(2))
        add(jobs.JobState.PENDING, runs)
        with store.reading() as work:
            assert work.dependencies.dependents() == [first, second]
        assert dependents.turn(context) == [
            "4 x is not turned to the job that goes on: Job/step already completing or completed",
            "5 x waits for afterok:3: the job that goes on",
        ]
        assert asked == [("4", "afterok:3"), ("5", "afterok:3")]
        assert len(dependents.turn(context)) == 1, "what was turned is not asked for again"
