"""sacct rows of Slurm 22.05 for jobs that ended while slurmdbd was down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs, tracking
from orchestrator.jobs import JobState
from orchestrator.slurm import sacct
from tests.unit.tracking import test_decide as cases

RECORDED = Path(__file__).parents[1] / "slurm/recorded/22.05"


def rows(name: str) -> dict[str, tracking.Observation]:
    """By job name; the steps are merged in."""
    lines = (RECORDED / name).read_text(encoding="utf-8").split("\n")
    return {row.name: row for row in sacct.parse(lines)}


EARLY = rows("sacct-slurmdbd-back.txt")
LATER = rows("sacct-slurmdbd-back-later.txt")


def known(row: tracking.Observation, **fields: Any) -> jobs.Job:
    return cases.job(job_id=row.job_id, raw_job_id=row.job_id, **fields)


def end(job: jobs.Job) -> tuple[object, ...]:
    return job.state, job.raw_state, job.exit_code, job.exit_signal


@pytest.mark.parametrize(
    ("name", "state", "code", "later"),
    [
        ("three", JobState.FAILED, (3, 0), (JobState.FAILED, "FAILED", 3, 0)),
        ("hog", JobState.FAILED, (1, 0), (JobState.OUT_OF_MEMORY, "FAILED", 1, 0)),
        ("ok", JobState.COMPLETED, (0, 0), (JobState.COMPLETED, "COMPLETED", 0, 0)),
        ("canc", JobState.CANCELLED, (0, 15), (JobState.CANCELLED, "CANCELLED by 2001", 0, 0)),
    ],
)
def test_a_row_without_an_end_changes_nothing_that_squeue_reported(
    name: str, state: JobState, code: tuple[int, int], later: tuple[object, ...]
) -> None:
    early = EARLY[name]
    shown = cases.row(
        state,
        job_id=early.job_id,
        raw_job_id=early.job_id,
        exit_code=code[0],
        exit_signal=code[1],
        ended_at=cases.at(50),
    )
    live = known(early, state=JobState.RUNNING)
    reported = cases.after(live, cases.decide(live, squeue=(shown,), sacct=(early,)))
    assert (end(reported), reported.settled) == ((state, str(state), *code), False)
    assert not tracking.needs_steps([early])
    # Nor once squeue has forgotten the job.
    assert cases.decide(reported, sacct=(early,)) == tracking.Transition()
    ended = cases.after(reported, cases.decide(reported, sacct=(LATER[name],)))
    assert (end(ended), ended.settled) == (later, True)


def test_a_row_without_an_end_gives_the_state_if_no_other_source_does() -> None:
    live = known(EARLY["hog"], state=JobState.RUNNING)
    reported = cases.after(live, cases.decide(live, sacct=(EARLY["hog"],)))
    assert (end(reported), reported.ended_at) == ((JobState.FAILED, "FAILED", None, None), None)
    assert not reported.settled
    # An end that never comes is not waited for.
    for now, settled in ((3600, False), (2 * 24 * 3600, True)):
        transition = cases.decide(reported, now=now, sacct=(EARLY["hog"],))
        assert cases.after(reported, transition).settled is settled
    lost = known(EARLY["ok"], state=JobState.LOST)
    result = cases.after(lost, cases.decide(lost, sacct=(EARLY["ok"],)))
    assert (result.state, result.settled) == (JobState.COMPLETED, False)
