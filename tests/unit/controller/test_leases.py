"""The lease: one acts at a time, and whoever lost it cannot write any more."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from orchestrator.controller import stores

NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)


def holder(pid: int, host: str = "login1") -> jobs.Submitter:
    return jobs.Submitter(host=host, boot_id="b", pid=pid, start_ticks=1)


def take(store: stores.Store, who: jobs.Submitter) -> int:
    with store.writing() as work:
        seen = work.leases.read(NOW)
        if seen is None:
            work.leases.add()
            seen = work.leases.read(NOW)
        assert seen is not None
        fence = work.leases.take(seen, who, command="serve", seconds=30, here=NOW)
    assert fence is not None
    return fence


def test_who_lost_the_lease_writes_no_more(tmp_path: Path) -> None:
    with stores.Store(tmp_path / "x.db") as store:
        first = store.fenced(take(store, holder(1)))
        with first.writing() as work:
            work.put_setting("by", "first")
        second = store.fenced(take(store, holder(2)))
        with pytest.raises(errors.FencedError) as refused, first.writing() as work:
            work.put_setting("by", "first again")
        assert str(refused.value) == (
            "Another controller took over: `serve` (process 2 on login1, since "
            f"{NOW.astimezone():%Y-%m-%d %H:%M:%S}); this one does nothing more."
        )
        with second.writing() as work:
            assert work.setting("by") == "first"
        # People's own commands go on beside any controller.
        with store.writing() as work:
            work.put_setting("by", "a person")
