"""Refreshes store causes within a time limit; the next refresh continues."""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.session import contexts, stores
from orchestrator.diagnosis import log_rules
from orchestrator.logs import head_and_tail, reading
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    with stores.Store(database_file) as store:
        yield builders.make_context(tmp_path, store, reporter=builders.NO_MESSAGES, now=NOW)


def test_remaining_logs_are_read_by_the_next_refresh(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [_add(context, number, "KeyError: no such key\n") for number in (1, 2)]
    now = 0.0
    read = head_and_tail.scan

    def scan(*args: Any, **options: Any) -> Iterator[reading.Line]:
        nonlocal now
        yield from read(*args, **options)
        now = explanations.READING_SECONDS

    monkeypatch.setattr(head_and_tail, "scan", scan)
    slow = dataclasses.replace(context, deadline=deadlines.Deadline(clock=lambda: now))
    assert explanations.store_causes(slow, rows) == 1
    query = jobs.JobQuery(unexplained_since=NOW, limit=None)
    with context.store.reading() as work:
        assert [job.row for job in work.jobs.find(query)] == rows[1:]
    assert explanations.store_causes(context, rows) == 1
    with context.store.reading() as work:
        assert {job.cause for job in work.jobs.find(jobs.JobQuery())} == {"python_exception"}


def _add(context: contexts.Context, number: int, log: str) -> int:
    path = context.folder / f"{number}.out"
    path.write_text(f'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n{log}')
    record = builders.make_submission(number, NOW, run_dir=str(context.folder))
    failed = {"exit_code": 1, "exit_signal": 0, "settled": True, "ended_at": NOW}
    with context.store.writing() as work:
        job = work.jobs.add_submission(
            record,
            state=jobs.JobState.FAILED,
            job_id=str(number),
            stdout_path=str(path),
            **failed,
        )[0]
    return job.row


def test_dumps_of_the_flight_recorder_name_the_rank(context: contexts.Context) -> None:
    data = Path(__file__).parents[3] / "data"
    row = _add(context, 1, (data / "failures/gloo_timeout.log").read_text())
    with context.store.reading() as work:
        job = work.jobs.by_row([row])[row]
    rules = log_rules.load_shipped()
    before = explanations.explain(context, job, rules)
    for rank in range(3):
        name = f"flight.0.0.{rank}"
        (context.folder / f"flight.0.1.{rank}").write_bytes(b"of another attempt")
        (context.folder / name).write_bytes((data / "flight" / name).read_bytes())
    after = explanations.explain(context, job, rules)
    assert after.summary.startswith("rank 1 did not call all_reduce number 3 of group default_pg")
    assert (after.cause, after.first_failing_rank) == (before.cause, 1) == ("gloo_timeout", 1)
    assert after.evidence[0].text == "flight recorder: 3 dumps"
    (context.folder / "flight.0.0.1").write_bytes(b"damaged")
    assert explanations.explain(context, job, rules).summary == before.summary


@pytest.mark.parametrize(
    ("reasons", "calls"),
    [
        ("Priority Resources", ["partition", "jobs_before"]),
        ("PartitionTimeLimit PartitionNodeLimit PartitionConfig PartitionDown", ["partition"]),
        ("PartitionInactive MaxMemPerLimit AccountNotAllowed QOSNotAllowed", ["partition"]),
        ("QOSMaxCpuPerJobLimit AssocGrpCpuLimit MaxJobsPerAccount", ["partition", "limits_of"]),
        ("ReqNodeNotAvail,UnavailableNodes:n4 NodeDown", ["unavailable_nodes"]),
        ("Reservation ReservationDeleted", ["reservation"]),
        ("BeginTime JobHeldUser Dependency Licenses BadConstraints DeadLine None", []),
    ],
)
def test_only_the_facts_of_the_reason_are_queried(reasons: str, calls: list[str]) -> None:
    for reason in reasons.split():
        asked: list[str] = []
        answers = {"reservation": None, "partition": None, "limits_of": [], "jobs_before": 3}
        answers["unavailable_nodes"] = ["n4 is down (x)"]

        def method(name: str, asked: list[str] = asked, answers: Any = answers) -> Any:
            return lambda *arguments: asked.append(name) or answers[name]

        record = {"Reason": reason, "Partition": "a", "Account": "b", "QOS": "c", "Priority": "5"}
        record |= {"ReqNodeList": "n4", "Reservation": "r", "UserId": "alice(2001)"}
        slurm = types.SimpleNamespace(show_job=lambda job_id, record=record: record)
        vars(slurm).update({name: method(name) for name in answers})
        job: Any = types.SimpleNamespace(raw_job_id=None)
        context: Any = types.SimpleNamespace(slurm=slurm)
        explanations._ask(context, job, "12")
        assert asked == calls, reason


def test_nodes_of_another_cluster_are_not_to_be_avoided(context: contexts.Context) -> None:
    with context.store.writing() as work:
        for number in (1, 2):
            record = builders.make_submission(number, NOW, cluster="lab")
            (job,) = work.jobs.add_submission(record, settled=True, node_list="n1")
            failed = jobs.JobState.NODE_FAIL
            end = jobs.Attempt(number=0, state=failed, node_list="n1", ended_at=NOW)
            work.attempts.put([(job.row, end)])
    assert explanations._without(context, job) == (
        "avoid n1: --exclude n1 (orchestrator nodes; n1: 2 node_fail)",
    )
    assert explanations._without(context, dataclasses.replace(job, cluster="other")) == ()
