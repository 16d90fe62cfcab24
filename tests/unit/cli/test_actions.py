"""Messages of hold, release and requeue: tasks of an array with the same result in one line."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import errors
from orchestrator.controller.actions import confirmed
from orchestrator.jobs import naming
from orchestrator.rows import action_reports
from tests import builders


def outcome(task: int, end: confirmed.End, why: str, *, sent: bool = True) -> confirmed.Outcome:
    job = builders.make_job(
        row=task + 4,
        created_at=datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC),
        array_task_id=task,
        job_id=f"41_{task}" if sent else None,
        array_job_id="41" if sent else None,
    )
    return confirmed.Outcome(job=job, end=end, why=why.format(naming.name_of(job)))


def test_tasks_with_the_same_outcome_are_one_line() -> None:
    runs = "{0} is RUNNING: only a job that waits can be held; `requeue --hold {0}` stops it"
    impossible = [outcome(task, confirmed.End.IMPOSSIBLE, runs) for task in (0, 1, 2, 4, 12)]
    with pytest.raises(errors.ConflictError) as caught:
        action_reports.of_changes(impossible, already="").raise_problems()
    assert str(caught.value) == runs.format("41_[0-2,4,12]")
    refused = [outcome(task, confirmed.End.REFUSED, "no") for task in (0, 1)]
    other = outcome(2, confirmed.End.REFUSED, "never")
    with pytest.raises(errors.SlurmError) as refusal:
        action_reports.of_changes([*refused, other], already="").raise_problems()
    assert str(refusal.value).splitlines() == [
        "Slurm refused the request for 41_[0-1]: no",
        "Slurm refused the request for 41_2: never",
    ]


def test_an_unsubmitted_array_is_named_by_its_first_row() -> None:
    never = "{0} was never submitted; `orchestrator resubmit {0}` sends it"
    unsent = [outcome(task, confirmed.End.IMPOSSIBLE, never, sent=False) for task in range(500)]
    with pytest.raises(errors.ConflictError) as caught:
        action_reports.of_changes(unsent, already="").raise_problems()
    assert str(caught.value) == never.format("@4")
    assert naming.names_of([item.job for item in unsent]) == "@4-503"
    assert naming.names_of([unsent[0].job, unsent[2].job, unsent[3].job]) == "@4,@6-7"
