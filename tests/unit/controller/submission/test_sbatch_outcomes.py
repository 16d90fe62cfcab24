"""The outcome of a submission whose job ID cannot be stored."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.controller.session import stores
from orchestrator.controller.submission import log_paths, sbatch_outcomes
from tests import builders

NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("is_local", "job_id", "scheduler"),
    [(False, "7", "Slurm"), (True, "local-7", "This machine")],
)
def test_a_job_id_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool, job_id: str, scheduler: str
) -> None:
    def full(*arguments: object) -> None:
        raise errors.DatabaseNotWritableError("The disk is full.")

    monkeypatch.setattr(stores.Store, "writing", full)
    paths = log_paths.LogPaths.of_submission(
        builders.make_submission(1, NOW, provenance='{"folder": "/"}')
    )
    with stores.Store(tmp_path / "x.db") as store:
        context = builders.make_context(tmp_path, store, now=NOW, is_local=is_local)
        with pytest.raises(errors.DatabaseError) as raised:
            sbatch_outcomes.store_job_id(context, builders.make_job(row=3), job_id, paths)
    assert str(raised.value) == (
        f"{scheduler} accepted the job as {job_id}, but its ID could not be stored: "
        "The disk is full. Do not submit it again: it is @3, and the next refresh finds it."
    )
