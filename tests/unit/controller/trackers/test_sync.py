"""The step of the controller: what fails is recorded, and tried again after growing pauses."""

from __future__ import annotations

import dataclasses
import datetime
import stat
from pathlib import Path

from orchestrator import jobs, specs
from orchestrator.config import file_schema
from orchestrator.controller.session import stores
from orchestrator.controller.trackers import sync
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
#: Marks the folders that it gets as uploaded, unless it is to fail.
WANDB = """#!/bin/sh
echo "$@" >>{folder}/calls
if [ -e {folder}/down ]; then echo 'no network' >&2; exit 1; fi
shift 4
for folder; do touch "$folder/run.wandb.synced"; done
"""


def test_uploads_and_their_errors(tmp_path: Path, database_file: Path) -> None:
    python = tmp_path / "python"
    python.write_text(WANDB.format(folder=tmp_path))
    python.chmod(stat.S_IRWXU)
    run_dir = tmp_path / "run"
    folders = [run_dir / "tracking" / "wandb" / f"offline-run-{n}-abc" for n in (1, 2)]
    calls = tmp_path / "calls"
    spec = jobs.JobSpec(name="x", tracking=jobs.Tracking(trackers=("wandb",)))
    with stores.Store(database_file) as store:
        context = builders.make_context(tmp_path, store, now=NOW)
        settings = file_schema.Tracking(sync=True, python=str(python))
        configuration = dataclasses.replace(context.configuration, tracking=settings)
        context = dataclasses.replace(context, configuration=configuration)

        def called(after_minutes: float) -> list[str]:
            """Return the folders of the calls in a pass."""
            calls.unlink(missing_ok=True)
            at = NOW + datetime.timedelta(minutes=after_minutes)
            sync.step(builders.with_clock(context, now=at))
            return calls.read_text().split()[4:] if calls.exists() else []

        assert called(0) == []
        with store.writing() as work:
            submission = builders.make_submission(
                1, NOW, run_dir=str(run_dir), spec=specs.to_json(spec)
            )
            (job,) = work.jobs.add_submission(submission, state=jobs.JobState.RUNNING)
            work.events.add_many([(job.row, context.event("state", "it runs"))])
        for folder in folders:
            folder.mkdir(parents=True)
        # The newest one is still written.
        assert called(0) == [str(folders[0])]
        assert called(1) == []
        with store.writing() as work:
            work.jobs.change(job.row, {"state": jobs.JobState.COMPLETED}, version=job.version)
            work.events.add_many([(job.row, context.event("state", "it ended"))])
        down = tmp_path / "down"
        down.touch()
        minutes = [2, 2.5, 3.1, 4, 7.2, 20, 23.5, 80, 88, 500]
        tried = [minute for minute in minutes if called(minute)]
        assert tried == [2, 3.1, 7.2, 23.5, 88]
        down.unlink()
        assert called(501) == []
        with store.writing() as work:
            work.events.add_many([(job.row, context.event("note", "something changed"))])
        assert called(502) == [str(folders[1])]
        with store.reading() as work:
            events = [event.detail for event in work.events.of_job(job.row)]
    assert [detail for detail in events if "wandb" in detail] == [
        "wandb sync failed: no network",
        "wandb sync failed: no network; not tried again until the job changes",
    ]
