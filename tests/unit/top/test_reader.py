"""When `top` reads the files of a job again."""

from __future__ import annotations

from pathlib import Path

from orchestrator.top import reader
from tests import builders


def test_stamp_of_an_array_task_changes_with_its_own_metrics_file(tmp_path: Path) -> None:
    task = builders.make_job(run_dir=str(tmp_path), array_job_id="7", array_task_id=4)
    before = reader.stamp_of_job(task)

    (tmp_path / "metrics.3.jsonl").write_text('{"loss": 1}\n')
    assert reader.stamp_of_job(task) == before

    (tmp_path / "metrics.4.jsonl").write_text('{"loss": 1}\n')
    assert reader.stamp_of_job(task) != before
