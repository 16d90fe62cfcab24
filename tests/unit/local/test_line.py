"""Whose turn it is: a pure function of the line."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.jobs import JobState
from orchestrator.local import machine, spool

GPUS = ("0", "1", "2", "3")
ENTRY = spool.Entry(
    number=1,
    task=None,
    raw_number=1,
    token="abcd00000001",
    name="x.abcd00000001",
    host="lap",
    slots=1,
    devices=GPUS,
    most_at_once=None,
    time_limit_seconds=None,
    may_requeue=True,
    stdout_path="/runs/x/local-1.out",
    stderr_path=None,
    submitted_at=0.0,
    queued_at=0.0,
)


def line(*changes: dict[str, object]) -> list[spool.Entry]:
    return [
        dataclasses.replace(ENTRY, **{"number": number, **change})  # type: ignore[arg-type]
        for number, change in enumerate(changes, 1)
    ]


def started(entries: list[spool.Entry]) -> dict[int, tuple[str, ...]]:
    return {entry.number: given for entry, given in machine.turns(entries)}


def test_in_order_and_nobody_overtakes() -> None:
    running = {"state": JobState.RUNNING, "given": ("1",)}
    assert started(line(running, {"slots": 2}, {}, {})) == {2: ("0", "2"), 3: ("3",)}
    assert started(line(running, {"slots": 4}, {})) == {}
    assert started(line({"held": True, "slots": 4}, {})) == {2: ("0",)}


def test_an_array_keeps_its_limit_and_lets_others_pass() -> None:
    task = {"number": 7, "most_at_once": 2}
    tasks = [{**task, "task": number} for number in range(4)]
    found = machine.turns(line(*tasks, {}))
    assert [(entry.number, entry.task) for entry, _ in found] == [(7, 0), (7, 1), (5, None)]


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "slots": st.integers(1, 4),
            "held": st.booleans(),
            "most_at_once": st.sampled_from([None, 1, 2]),
        }
    ),
    max_size=12,
)


@given(ENTRIES)
def test_slots_are_given_once_and_all_end_up_running(changes: list[dict[str, object]]) -> None:
    waiting = line(*changes)
    order: list[int] = []
    for _ in range(len(waiting) + 1):
        found = machine.turns(waiting)
        taken = [slot for _, given in found for slot in given]
        assert len(taken) == len(set(taken)) and set(taken) <= set(GPUS)
        assert all(len(given) == entry.slots and not entry.held for entry, given in found)
        order += [entry.number for entry, _ in found]
        done = {entry.number for entry, _ in found}
        waiting = [entry for entry in waiting if entry.number not in done]
    assert order == sorted(order)
    assert all(entry.held for entry in waiting), "all others had their turn"
