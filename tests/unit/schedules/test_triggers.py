"""Decisions about planned times, with a controller that is started and stopped."""

from __future__ import annotations

import collections
import dataclasses
import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.schedules import records, triggers

UTC = datetime.UTC
#: A night with a clock change in Oslo.
BEGIN = datetime.datetime(2027, 3, 27, 20, 0, tzinfo=UTC)
MINUTE = datetime.timedelta(minutes=1)


def at(minutes: float) -> datetime.datetime:
    return BEGIN + minutes * MINUTE


def schedule(cron: str = "0 * * * *", **fields: object) -> records.Schedule:
    usual: dict[str, object] = {
        "row": 1,
        "name": "nightly",
        "state": "active",
        "cron": cron,
        "tz": "Europe/Oslo",
        "kind": "job",
        "source": "job.toml",
        "source_hash": None,
        "folder": "/home/alice",
        "profile": "default",
        "cluster": "lab",
        "scheduler": "slurm",
        "catchup": "latest",
        "grace_seconds": 6 * 3600,
        "overlap": "skip",
        "jitter_seconds": 0,
        "baseline": None,
        "created_at": BEGIN,
        "decided_until": BEGIN,
        "version": 0,
    }
    return records.Schedule(**{**usual, **fields})  # type: ignore[arg-type]


def trigger(
    planned_at: datetime.datetime,
    due_at: datetime.datetime,
    *,
    by_hand: bool = False,
    reason: str | None = None,
) -> records.Trigger:
    return records.Trigger(
        row=1,
        schedule_row=1,
        planned_at=planned_at,
        due_at=due_at,
        by_hand=by_hand,
        reason=reason,
        decided_at=due_at,
    )


def decided(one: records.Schedule, minutes: float) -> list[tuple[str, str | None]]:
    decision = triggers.decide(one, BEGIN, at(minutes))
    return [(each.state, each.reason) for each in decision.planned]


MISSED = ("skipped", "missed: no controller pass before the next planned time")


def test_catchup() -> None:
    assert decided(schedule(), 181) == [MISSED, MISSED, ("waiting", None)]
    assert decided(schedule(catchup="all"), 181) == [("waiting", None)] * 3
    assert decided(schedule(catchup="skip"), 189) == [MISSED, MISSED, ("waiting", None)]
    late = 'missed: 00:11:00 late, the limit with catchup "skip" is 00:10:00'
    assert decided(schedule(catchup="skip"), 191) == [MISSED, MISSED, ("skipped", late)]
    late = "missed: 02:30:00 late, the grace period is 02:00:00"
    every = decided(schedule(catchup="all", grace_seconds=7200), 210)
    assert every == [("skipped", late), ("waiting", None), ("waiting", None)]
    assert decided(schedule(state="paused"), 61) == [("skipped", "paused")]
    # Clocks that were set back: what was decided stays so.
    assert triggers.decide(schedule(), at(100), at(50)).planned == ()


def test_waiting_triggers() -> None:
    def step(
        one: records.Schedule,
        minutes: float,
        *,
        is_live: bool = False,
        by_hand: bool = False,
        kept: str | None = None,
    ) -> tuple[str, str | None]:
        waits = trigger(at(60), at(65), by_hand=by_hand, reason=kept)
        later = trigger(at(120), at(120))
        return triggers.next_step(one, waits, at(minutes), others=[later], is_live=is_live)

    assert step(schedule(), 64) == ("keep", None)
    assert step(schedule(), 66) == ("fire", None)
    assert step(schedule(), 66, is_live=True) == ("skip", "overlap: an earlier run has not ended")
    queued = schedule(overlap="queue")
    assert step(queued, 66, is_live=True) == ("keep", "an earlier run has not ended")
    assert step(queued, 130) == ("fire", None)
    late = "missed: 06:01:00 late, the grace period is 06:00:00"
    assert step(queued, 426) == ("skip", late)
    assert step(queued, 426, kept="Slurm is away") == (
        "skip",
        f"{late}; before that: Slurm is away",
    )
    assert step(schedule(overlap="allow"), 66, is_live=True) == ("fire", None)
    assert step(schedule(), 130) == ("skip", MISSED[1])
    came = "missed: the next planned time came; before that: Slurm is away"
    assert step(schedule(), 130, kept="Slurm is away") == ("skip", came)
    assert step(schedule(catchup="all"), 130) == ("fire", None)
    assert step(schedule(state="paused"), 66) == ("skip", "paused")
    assert step(schedule(state="paused"), 430, by_hand=True) == ("fire", None)


def test_jitter_is_the_same_after_a_restart_and_differs_between_schedules() -> None:
    one, other = schedule(jitter_seconds=600), schedule(jitter_seconds=600, name="weekly")
    drawn = [(one.due(at(n)) - at(n)).total_seconds() for n in range(0, 6000, 60)]
    assert drawn == [(one.due(at(n)) - at(n)).total_seconds() for n in range(0, 6000, 60)]
    assert drawn != [(other.due(at(n)) - at(n)).total_seconds() for n in range(0, 6000, 60)]
    assert min(drawn) >= 0 and max(drawn) <= 600 and len(set(drawn)) > 50


@dataclasses.dataclass
class World:
    """A database of triggers, and a controller that is killed at any point."""

    schedule: records.Schedule
    runs_minutes: int
    decided_until: datetime.datetime = BEGIN
    rows: dict[datetime.datetime, str] = dataclasses.field(default_factory=dict)
    ends: dict[datetime.datetime, datetime.datetime] = dataclasses.field(default_factory=dict)
    due: dict[datetime.datetime, datetime.datetime] = dataclasses.field(default_factory=dict)
    fired: collections.Counter[datetime.datetime] = dataclasses.field(
        default_factory=collections.Counter
    )

    def tick(self, now: datetime.datetime, transactions: int) -> None:
        """One pass, killed after so many transactions."""
        while transactions > 0:
            decision = triggers.decide(self.schedule, self.decided_until, now, limit=7)
            if not decision.planned:
                break
            for planned in decision.planned:
                assert planned.planned_at not in self.rows, "decided twice"
                assert self.decided_until < planned.planned_at <= now
                self.rows[planned.planned_at] = planned.state
                self.due[planned.planned_at] = planned.due_at
            self.decided_until = decision.until
            transactions -= 1
        waiting = sorted(row for row, state in self.rows.items() if state == "waiting")
        for planned in waiting:
            if transactions <= 0:
                return
            others = [
                trigger(other, self.due[other])
                for other, state in self.rows.items()
                if state == "waiting" and other != planned
            ]
            is_live = any(end > now for end in self.ends.values())
            waits = trigger(planned, self.due[planned])
            step, why = triggers.next_step(
                self.schedule, waits, now, others=others, is_live=is_live
            )
            if step == "fire":
                assert self.due[planned] <= now
                assert not is_live or self.schedule.overlap == "allow"
                self.rows[planned] = "fired"
                self.fired[planned] += 1
                self.ends[planned] = now + self.runs_minutes * MINUTE
                transactions -= 1
            elif step == "skip":
                assert why
                self.rows[planned] = "skipped"
                transactions -= 1


@settings(max_examples=25)
@given(
    cron=st.sampled_from(["*/5 * * * *", "30 2 * * *", "0,30 * * * *", "10 1-4 * * *"]),
    catchup=st.sampled_from(["latest", "skip", "all"]),
    overlap=st.sampled_from(["skip", "queue", "allow"]),
    jitter=st.sampled_from([0, 120, 3600]),
    grace=st.sampled_from([60, 1800, 6 * 3600]),
    runs=st.integers(0, 90),
    looks=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 5)) | st.tuples(st.just(300), st.just(9)),
        max_size=25,
    ),
)
def test_each_planned_time_has_one_trigger(
    cron: str,
    catchup: str,
    overlap: str,
    jitter: int,
    grace: int,
    runs: int,
    looks: list[tuple[int, int]],
) -> None:
    one = schedule(
        cron, catchup=catchup, overlap=overlap, jitter_seconds=jitter, grace_seconds=grace
    )
    world = World(schedule=one, runs_minutes=runs)
    now = BEGIN
    for minutes, transactions in looks:
        now += minutes * MINUTE
        world.tick(now, transactions)
    # It stays up at last: all that waits comes to its end.
    for _ in range(16):
        now += 60 * MINUTE
        world.tick(now, 1000)
    planned = []
    for moment in one.calendar.after(BEGIN):
        if moment > now:
            break
        planned.append(moment)
    assert sorted(world.rows) == planned
    old = now - datetime.timedelta(seconds=grace + jitter) - 60 * MINUTE
    assert not [at for at, state in world.rows.items() if state == "waiting" and at < old]
    assert set(world.fired.values()) <= {1}
    assert {at for at, state in world.rows.items() if state == "fired"} == set(world.fired)
    if overlap == "allow" and catchup == "all" and not looks and jitter == 0 and grace > 3600:
        assert set(world.rows.values()) <= {"fired"}


@pytest.mark.parametrize("catchup", ["latest", "all"])
def test_a_controller_that_stays_up_fires_each(catchup: str) -> None:
    world = World(schedule=schedule("*/10 * * * *", catchup=catchup), runs_minutes=3)
    for minutes in range(0, 8 * 60):
        world.tick(at(minutes + 0.5), 1000)
    assert collections.Counter(world.rows.values()) == {"fired": 6 * 8 - 1}


def test_a_long_gap_is_one_entry_and_the_last_hundred() -> None:
    month = 30 * 24 * 60
    for fields, last in [
        ({}, ("waiting", None)),
        ({"state": "paused"}, ("skipped", "paused")),
    ]:
        one = schedule("* * * * *", **fields)
        decision = triggers.decide(one, BEGIN, at(month))
        first, *others = decision.planned
        assert (len(others), decision.until, decision.more) == (100, at(month), False)
        assert (first.planned_at, first.first_at) == (at(month - 100), at(1))
        assert first.state == "skipped" and first.reason is not None
        assert first.reason.endswith("; so are all planned times since 2027-03-27T20:01Z")
        assert [each.planned_at for each in others] == [at(month - 99 + n) for n in range(100)]
        assert all(each.first_at is None for each in others)
        assert (others[-1].state, others[-1].reason) == last
    # A gap of hours has an entry for each.
    hours = triggers.decide(schedule("* * * * *"), BEGIN, at(101))
    assert [each.first_at for each in hours.planned] == [None] * 101


def test_entries_that_may_still_fire_are_not_merged() -> None:
    one = schedule("* * * * *", catchup="all", grace_seconds=3600)
    decision = triggers.decide(one, BEGIN, at(5000))
    assert decision.planned[0].first_at == at(1) and not decision.more
    waiting = [each.planned_at for each in decision.planned if each.state == "waiting"]
    assert waiting == [at(5000 - 60 + n) for n in range(61)]
    assert len(decision.planned) == 1 + 100 + 61
