"""When `top` reads the files of a job again."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.controller.session import stores
from orchestrator.top import listing, reader
from tests import builders


def test_stamp_of_an_array_task_changes_with_its_own_metrics_file(tmp_path: Path) -> None:
    task = builders.make_job(run_dir=str(tmp_path), array_job_id="7", array_task_id=4)
    before = reader.stamp_of_job(task)

    (tmp_path / "metrics.3.jsonl").write_text('{"loss": 1}\n')
    assert reader.stamp_of_job(task) == before

    (tmp_path / "metrics.4.jsonl").write_text('{"loss": 1}\n')
    assert reader.stamp_of_job(task) != before


def test_after_an_error_the_next_look_reads_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = listing.read

    def fail(*_: object) -> listing.Listing:
        monkeypatch.setattr(listing, "read", read)
        raise errors.DatabaseError("the database is locked")

    monkeypatch.setattr(listing, "read", fail)
    with stores.Store(f"sqlite:///{tmp_path}/orchestrator.db") as store:
        looked = reader.Reader(builders.make_context(tmp_path, store))
        with pytest.raises(errors.DatabaseError, match="locked"):
            looked.look(listing.Filter(), None, ())
        view = looked.look(listing.Filter(), None, ())
        assert view.listing is not None and view.listing.is_empty
        assert looked.look(listing.Filter(), None, ()) is view
