"""Which jobs may be removed: for any jobs and links nothing goes that something else needs."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import jobs, prune
from orchestrator.jobs import JobState
from tests import builders

NOW = datetime.datetime(2026, 11, 27, 12, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def member(row: int, **fields: Any) -> prune.Member:
    return prune.Member(**{"row": row, "token": f"t{row}", "is_selected": True, **fields})


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[prune.Member], dict[int, set[int]]]:
    """Jobs with arrays, chains, groups, and dependencies of later jobs on earlier ones."""
    count = draw(st.integers(1, 12))
    members = [
        member(
            row,
            token=f"t{draw(st.integers(1, count))}",
            continues=draw(st.one_of(st.none(), st.integers(1, row - 1))) if row > 1 else None,
            groups=draw(st.frozensets(st.sampled_from(["sweep 1", "sweep 2", "graph 1"]))),
            is_selected=draw(st.booleans()),
            keep=draw(st.sampled_from(["", "", "", "live"])),
        )
        for row in range(1, count + 1)
    ]
    rows = st.integers(1, count + 2)
    dependents = draw(st.dictionaries(st.integers(1, count), st.sets(rows, min_size=1)))
    return members, dependents


@given(histories())
def test_nothing_goes_that_is_needed(
    history: tuple[list[prune.Member], dict[int, set[int]]],
) -> None:
    members, dependents = history
    units = prune.units(members, dependents)
    goes = {row for unit in units if not unit.keep for row in unit.rows}
    by_row = {each.row: each for each in members}
    followers: dict[int, list[int]] = {}
    for each in members:
        if each.continues is not None:
            followers.setdefault(each.continues, []).append(each.row)
    for each in members:
        if each.row not in goes:
            continue
        assert not each.keep
        # Its last follower, or the job itself, was selected.
        assert each.is_selected or followers.get(each.row)
        related = {
            other.row
            for other in members
            if other.token == each.token
            or other.groups & each.groups
            or each.row == other.continues
            or other.row == each.continues
        }
        assert related <= goes
        assert dependents.get(each.row, set()) <= goes
    assert goes <= by_row.keys()


@given(histories())
def test_each_selected_job_is_in_one_unit(
    history: tuple[list[prune.Member], dict[int, set[int]]],
) -> None:
    members, dependents = history
    units = prune.units(members, dependents)
    rows = [row for unit in units for row in unit.rows]
    assert len(rows) == len(set(rows))
    ends_chain = {each.row for each in members} - {each.continues for each in members}
    selected = {each.row for each in members if each.is_selected and each.row in ends_chain}
    assert selected <= {row for unit in units for row in unit.selected}


def test_jobs_without_links_go_alone() -> None:
    units = prune.units([member(1), member(2, keep="live"), member(3, is_selected=False)])
    assert units == [
        prune.Unit(rows=(1,), selected=(1,)),
        prune.Unit(rows=(2,), selected=(2,), keep="live"),
    ]


def test_the_last_job_of_a_chain_decides() -> None:
    chain = [member(1, is_selected=False), member(4, continues=1, is_selected=False)]
    last = member(6, continues=4)
    assert prune.units([*chain, last]) == [prune.Unit(rows=(1, 4, 6), selected=(1, 4, 6))]
    # The first one alone was selected by its state or age.
    first, live = member(1), member(4, continues=1, is_selected=False)
    assert prune.units([first, live]) == []


def test_an_array_goes_as_a_whole() -> None:
    tasks = [member(1, token="t"), member(2, token="t", is_selected=False)]
    (unit,) = prune.units(tasks)
    assert (unit.rows, unit.selected, unit.keep) == ((1, 2), (1,), prune.UNSELECTED)


def test_rows_stay_while_a_dependent_stays() -> None:
    members = [member(1), member(2), member(3, keep="live")]
    # 3 depends on 2, and 2 on 1.
    reasons = [unit.keep for unit in prune.units(members, {2: {3}, 1: {2}})]
    assert reasons == ["jobs that depend on them stay"] * 2 + ["live"]
    assert [unit.keep for unit in prune.units(members[:2], {1: {2}})] == ["", ""]


ENDED: dict[str, Any] = {"state": JobState.FAILED, "settled": True, "ended_at": NOW - 2 * HOUR}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (ENDED, ""),
        ({**ENDED, "state": JobState.COMPLETED, "recovers": True}, ""),
        ({"state": JobState.RUNNING}, "not ended"),
        ({"state": JobState.PENDING}, "not ended"),
        ({"state": JobState.SUBMITTING}, "not ended"),
        ({"state": JobState.SUBMIT_UNKNOWN}, "not ended"),
        ({"state": JobState.REQUEUE_HOLD}, "not ended"),
        ({**ENDED, "state": JobState.LOST}, "LOST: they may still be running"),
        ({**ENDED, "settled": False}, "their end is not confirmed yet"),
        ({**ENDED, "recovers": True}, "[retry] may continue them"),
        (
            {"state": JobState.NOT_SUBMITTED, "settled": True, "resend_at": NOW},
            "deferred: they will be submitted later",
        ),
        (
            {**ENDED, "ended_at": NOW - HOUR / 2},
            "ended less than an hour ago: Slurm may start them again",
        ),
        ({**ENDED, "ended_at": NOW - HOUR / 2, "scheduler": "local"}, ""),
        # A clock that was wrong.
        (
            {**ENDED, "ended_at": NOW + HOUR},
            "ended less than an hour ago: Slurm may start them again",
        ),
    ],
)
def test_own_reason(fields: dict[str, Any], reason: str) -> None:
    job: jobs.Job = builders.make_job(**fields)
    assert prune.own_reason(job, NOW) == reason


@pytest.mark.parametrize(
    ("name", "token"),
    [
        (".pruned.demo.abcd00000001", "abcd00000001"),
        (".pruned.checkpoints-0a1b2c3d.my.job.abcd00000001", "abcd00000001"),
        ("demo.abcd00000001", None),
        (".pruned.abcd00000001", None),
        (".pruned.demo.ABCD00000001", None),
    ],
)
def test_names_of_leftovers(name: str, token: str | None) -> None:
    assert prune.leftover_token(name) == token


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("41_0.out", "log"),
        ("7.out.1", "log"),
        ("7.err", "log"),
        ("checkpoints", "checkpoints"),
        ("checkpoints.3", "checkpoints"),
        ("code", "code"),
        ("code.tar", "code"),
        ("metrics.3.jsonl", "metrics"),
        ("torchrun", "torchrun"),
        ("error.0.0.1.json", "torchrun"),
        ("script.sbatch", "other"),
        ("codes", "other"),
    ],
)
def test_kind_of_file(name: str, kind: str) -> None:
    assert prune.kind_of_file(name) == kind
