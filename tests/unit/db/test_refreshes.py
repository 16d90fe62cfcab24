"""One process at a time queries Slurm, and no more often than allowed."""

from __future__ import annotations

import datetime

from orchestrator.controller.session import stores
from orchestrator.tracking import records

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def test_a_claim_is_given_back_by_its_holder_only(store: stores.Store) -> None:
    with store.writing() as work:
        assert work.refreshes.claim("lab", NOW, 10, "a")
        work.refreshes.finish("lab", holder="b")
        assert not work.refreshes.claim("lab", NOW, 0, "b")
        work.refreshes.finish("lab", holder="a")
        assert work.refreshes.claim("lab", NOW, 0, "b")


def test_one_refresh_an_interval(store: stores.Store) -> None:
    def claim(seconds: float, holder: str, floor: float = 10) -> bool:
        with store.writing() as work:
            return work.refreshes.claim("lab", NOW + seconds * SECOND, floor, holder)

    def state() -> records.RefreshState:
        with store.reading() as work:
            return work.refreshes.get("lab")

    assert state() == records.RefreshState(cluster="lab")
    assert claim(0, "a")
    assert not claim(1, "b") and not claim(30, "b") and not claim(30, "b", floor=0)
    with store.writing() as work:
        work.refreshes.finish("lab", holder="a", squeue_at=NOW, sacct_at=NOW)
    assert state() == records.RefreshState(
        cluster="lab", last_good_squeue_at=NOW, last_good_sacct_at=NOW, last_tried_at=NOW
    )
    assert not claim(9, "b")
    assert claim(9, "b", floor=0)
    for seconds in (9, 10):
        with store.writing() as work:
            work.refreshes.finish("lab", holder="b", failed_at=NOW + seconds * SECOND, error="away")
    assert (state().failing_since, state().last_error) == (NOW + 9 * SECOND, "away")
    assert not claim(15, "c"), "a failed one counts as well"
    assert claim(20, "c")
    assert not claim(139, "d") and claim(140, "d"), "the holder died"
    with store.writing() as work:
        work.refreshes.finish("lab", holder="d", squeue_at=NOW + 140 * SECOND)
    assert (state().failing_since, state().last_error) == (None, None)
    assert state().last_good_sacct_at == NOW
    assert claim(-7200, "e"), "the clock was set back"
