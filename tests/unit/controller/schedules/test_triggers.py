"""Triggers: each planned time fires once, even if the controller is killed at any point."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.cli.output import schedule_tables
from orchestrator.controller.metrics import ingest
from orchestrator.controller.schedules import management, submit_later, triggers
from orchestrator.controller.service import health, leases
from orchestrator.controller.session import clusters, contexts, stores
from orchestrator.controller.submission import submitit
from orchestrator.controller.sweeps import queries
from orchestrator.schedules import records
from orchestrator.toml import documents
from tests import builders

HOUR = datetime.timedelta(hours=1)
BEGIN = datetime.datetime(2026, 11, 22, 8, 30, tzinfo=datetime.UTC)
SWEEP = """\
[job]
name = "two"
[launch]
launcher = "python"
command = "true"
[sweep]
kind = "grid"
axes.resources.nodes = [1, 2]
"""
JOB = '[job]\nname = "one"\n[launch]\nlauncher = "python"\ncommand = "true"\n'


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A store whose process dies in its n-th write transaction, before or after the commit."""

    def __init__(self, store: stores.Store, lives: int, *, before_commit: bool) -> None:
        self.store, self.lives, self.before_commit = store, lives, before_commit
        self.reading = store.reading

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[unit_of_work.UnitOfWork]:
        with self.store.writing(durable=durable) as work:
            yield work
            self.lives -= 1
            if self.lives == 0 and self.before_commit:
                raise Killed
        if self.lives == 0:
            raise Killed


@pytest.fixture
def store(database_file: Path) -> Iterator[stores.Store]:
    with stores.Store(database_file) as store:
        yield store


@pytest.fixture
def any_store(database_url: str) -> Iterator[stores.Store]:
    """A store on SQLite and on PostgreSQL."""
    with stores.Store(database_url) as store:
        yield store


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime.datetime:
        return self.now


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the jobs that sbatch received; it accepts all."""
    names: list[str] = []
    facts = clusters.Facts(
        cluster="lab",
        slurm_version="24.11",
        message_timeout_seconds=10,
        min_job_age_seconds=300,
        max_array_size=1001,
        accounting=False,
        counts_gpus=True,
        asked_at=BEGIN,
    )

    def submit(run_dir: Path, call_sbatch: object) -> str:
        names.append(run_dir.name)
        return str(len(names))

    monkeypatch.setattr(submitit, "submit_to_slurm", submit)
    monkeypatch.setattr(clusters, "facts", lambda context, **options: facts)
    return names


def make(tmp_path: Path, store: Any, clock: Clock) -> contexts.Context:
    environ = {"HOME": str(tmp_path), "ORCHESTRATOR_SCHEDULER": "slurm"}
    context = builders.make_context(tmp_path, store, environ=environ)
    # The clock was never set: all the time that it shows has passed.
    return builders.with_clock(
        context, now=clock, boot_seconds=lambda: (clock.now - BEGIN).total_seconds()
    )


def add(
    context: contexts.Context, text: str, *, replace: bool = False, **fields: object
) -> records.Schedule:
    spec: Any
    if "[sweep]" in text:
        spec = documents.parse(text, "two.toml")[0].data
    else:
        spec = json.loads(specs.to_json(specs.build(*documents.parse(text, "x"), None)))
    usual: dict[str, Any] = {
        "cron": "@hourly",
        "tz": "UTC",
        "kind": "sweep" if "[sweep]" in text else "job",
        "source": "two.toml",
        "spec": spec,
        "inherit": (),
        "argv": ("orchestrator",),
        "catchup": "all",
        "grace_seconds": 6 * 3600,
        "overlap": "allow",
        "jitter_seconds": 0,
        "baseline": None,
    }
    return management.add(context, "hourly", replace=replace, **{**usual, **fields})


def history(context: contexts.Context) -> list[records.Trigger]:
    return management.history(context, "hourly", None)[1][::-1]


def outcomes(context: contexts.Context) -> list[tuple[str, str | None]]:
    return [(entry.state, entry.reason) for entry in history(context)]


def test_killed_in_each_transaction(tmp_path: Path, store: stores.Store, sent: list[str]) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, SWEEP)
    hours = 0
    for before_commit in (True, False):
        for lives in range(1, 7):
            clock.now += HOUR
            hours += 1
            mortal: Any = Mortal(store, lives, before_commit=before_commit)
            with contextlib.suppress(Killed):
                triggers.step(make(tmp_path, mortal, clock))
            triggers.step(context)
            assert triggers.step(context) == []
    entries = history(context)
    assert [entry.planned_at.hour for entry in entries] == [(9 + n) % 24 for n in range(hours)]
    assert {entry.state for entry in entries} == {"fired"}
    assert len({entry.sweep_row for entry in entries}) == hours
    rows = set()
    for entry in entries:
        points = queries.points(context, queries.find(context, f"@{entry.sweep_row}"))
        rows.update(point.job and point.job.row for point in points)
    assert len(rows) == 2 * hours and None not in rows
    # No submission was sent twice; after a kill before sbatch, a later refresh finds this out.
    assert len(sent) == len(set(sent)) <= 2 * hours


def test_a_job_is_fired_with_its_intent(
    tmp_path: Path, any_store: stores.Store, sent: list[str]
) -> None:
    clock, store = Clock(), any_store
    context = make(tmp_path, store, clock)
    add(context, JOB)
    clock.now += HOUR
    mortal: Any = Mortal(store, 2, before_commit=True)
    with pytest.raises(Killed):
        triggers.step(make(tmp_path, mortal, clock))
    assert outcomes(context) == [("waiting", None)] and sent == []
    (message,) = triggers.step(context)
    (fired,) = history(context)
    at = f"@{fired.job_row}, one"
    assert message == f"Schedule hourly: 2026-11-22T09:00Z submitted batch job 1 ({at})"
    assert fired.state == "fired" and len(sent) == 1


def test_a_trigger_waits_for_slurm_during_its_grace_period(
    tmp_path: Path, store: stores.Store, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, JOB)

    def away(*args: object, **options: object) -> None:
        raise errors.SlurmError("Slurm is away")

    monkeypatch.setattr(clusters, "facts", away)
    clock.now += HOUR
    assert triggers.step(context) == ["Schedule hourly: 2026-11-22T09:00Z Slurm is away"]
    assert triggers.step(context) == []
    assert outcomes(context) == [("waiting", "Slurm is away")]
    clock.now += 6 * HOUR
    triggers.step(context)
    late = "missed: 06:30:00 late, the grace period is 06:00:00; before that: Slurm is away"
    assert outcomes(context)[0] == ("skipped", late)
    assert [state for state, _ in outcomes(context)[1:]] == ["waiting"] * 6


def test_an_invalid_spec_fails(tmp_path: Path, store: stores.Store, sent: list[str]) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, SWEEP.replace("nodes = [1, 2]", "nodes = [0]"))
    clock.now += HOUR
    triggers.step(context)
    ((state, reason),) = outcomes(context)
    assert state == "failed" and "resources.nodes" in (reason or "") and sent == []


def test_an_invalid_configuration_fails_after_a_while(
    tmp_path: Path, store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, JOB)
    clock.now += HOUR
    written = tmp_path / "orchestrator.toml"
    written.write_text("[prof")
    (message,) = triggers.step(context)
    ((state, reason),) = outcomes(context)
    assert state == "waiting" and "orchestrator.toml" in (reason or "") and sent == []
    assert message == f"Schedule hourly: 2026-11-22T09:00Z {reason}"
    assert triggers.step(context) == []
    # A manual run reports the error at once and is not repeated later.
    by_hand, _ = management.run_now(context, "hourly")
    assert (by_hand.state, by_hand.reason) == ("failed", reason)
    written.write_text("")
    assert len(triggers.step(context)) == 1
    assert [entry.state for entry in history(context)] == ["fired", "failed"] and len(sent) == 1
    # A permanent error is reported soon, not after the grace period.
    written.write_text("[prof")
    for minutes, state in ((60, "waiting"), (9, "waiting"), (1, "failed")):
        clock.now += datetime.timedelta(minutes=minutes)
        triggers.step(context)
        assert [(entry.state, entry.reason) for entry in history(context)[2:]] == [(state, reason)]


def test_two_processes_decide_once(
    tmp_path: Path, any_store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, any_store, clock)
    seen = add(context, JOB)
    clock.now += 3 * HOUR
    triggers.decide(context, seen)
    # The second process reads before the first has written.
    assert triggers.decide(context, seen) == []
    assert outcomes(context) == [("waiting", None)] * 3


def test_pause_resume_replace_and_remove(
    tmp_path: Path, store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, JOB)
    with pytest.raises(errors.ConflictError, match="use --replace"):
        add(context, JOB)
    management.change_state(context, "hourly", "paused")
    clock.now += 2 * HOUR
    management.change_state(context, "hourly", "active")
    assert outcomes(context) == [("skipped", "paused")] * 2
    clock.now += HOUR
    # Replaced before the first pass: planned from now on.
    assert add(context, JOB, replace=True).decided_until == clock.now
    clock.now += HOUR
    triggers.step(context)
    assert [entry.planned_at.hour for entry in history(context)] == [9, 10, 12]
    made, _ = management.run_now(context, "hourly")
    assert (made.state, made.planned_at.second) == ("fired", 1)
    clock.now += HOUR
    schedule = management.find(context, "hourly")
    triggers.decide(context, schedule)
    management.change_state(context, "hourly", "removed")
    triggers.step(context)
    assert outcomes(context)[-1] == ("skipped", "removed")
    assert len(sent) == 2
    with pytest.raises(errors.NotFoundError):
        management.change_state(context, "hourly", "paused")


def test_a_run_with_a_pending_recovery_is_not_checked(
    tmp_path: Path, store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, JOB, overlap="skip")
    clock.now += HOUR
    triggers.step(context)
    (fired,) = history(context)
    failed = {"state": jobs.JobState.FAILED, "settled": True, "cause": "node_fail"}
    with store.writing() as work:
        # Nothing is decided of it yet: its log was not read, or more wait than one pass decides.
        work.jobs.change(fired.job_row or 0, {**failed, "recovers": True})
    clock.now += HOUR
    triggers.step(context)
    assert outcomes(context)[1:] == [("skipped", "overlap: an earlier run has not ended")]
    assert history(context)[0].verdict is None
    with store.writing() as work:
        work.jobs.change(fired.job_row or 0, {"recovers": None})
    triggers.step(context)
    assert history(context)[0].verdict == "failed"


def test_a_regression_check_does_not_warn_of_removed_files(
    tmp_path: Path, store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock).with_reporter(builders.NO_MESSAGES)
    add(context, JOB)
    clock.now += HOUR
    triggers.step(context)
    (fired,) = history(context)
    with store.writing() as work:
        row = fired.job_row or 0
        work.jobs.change(row, {"state": jobs.JobState.COMPLETED, "settled": True})
        job = work.jobs.get(row)
    assert job is not None and job.stdout_path is not None
    log = Path(job.stdout_path)
    log.write_text("epoch 1\n")
    ingest.ingest(context, [job])
    log.unlink()
    triggers.step(context)
    assert history(context)[0].verdict == "not measured"


def test_an_invalid_configuration_does_not_lose_points_of_a_sweep(
    tmp_path: Path, store: stores.Store, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, SWEEP)
    clock.now += HOUR

    def killed() -> None:
        if sent:
            raise Killed

    with pytest.raises(Killed):
        triggers.step(dataclasses.replace(context, guard=contexts.Guard(check=killed)))
    with monkeypatch.context() as patch:

        def wrong(*rest: object, **fields: object) -> None:
            raise errors.ConfigurationError(["config.toml:1: no"])

        patch.setattr(submit_later, "restore", wrong)
        why = "config.toml:1: no\n1 problem; nothing was done."
        for messages in ([f"Schedule hourly: 2026-11-22T09:00Z {why}"], []):
            assert triggers.step(context) == messages
    triggers.step(context)
    assert len(set(sent)) == len(sent) == 2


def test_a_cancelled_sweep_is_not_continued(
    tmp_path: Path, store: stores.Store, sent: list[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, SWEEP)
    clock.now += HOUR
    triggers.step(context)
    sweep = queries.find(context, f"@{history(context)[0].sweep_row}")
    with store.reading() as work:
        first, second = (job.row for job in work.sweeps.jobs(sweep.row))
    failed = {"state": jobs.JobState.FAILED, "settled": True, "cause": "node_fail"}
    with store.writing() as work:
        work.jobs.change(first, {**failed, "recovers": True})
        work.jobs.change(second, failed)
    # A requeue may be planned: cancelling revokes it.
    assert [job.row for job in queries.close(context, sweep)[1]] == [first]


def test_unreachable_slurm_is_queried_once_per_schedule(
    tmp_path: Path, store: stores.Store, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    add(context, JOB)
    asked: list[object] = []

    def away(*args: object, **options: object) -> None:
        asked.append(args)
        raise errors.SlurmError("Slurm is away")

    with monkeypatch.context() as patch:
        patch.setattr(clusters, "facts", away)
        clock.now += 5 * HOUR
        triggers.step(context)
    assert len(asked) == 1
    assert outcomes(context) == [("waiting", "Slurm is away"), *[("waiting", None)] * 4]
    triggers.step(context)
    assert [state for state, _ in outcomes(context)] == ["fired"] * 5


def test_a_missing_controller_is_reported(
    tmp_path: Path, store: stores.Store, sent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    context = make(tmp_path, store, clock)
    stored = add(context, JOB)
    cure = "Start one: `orchestrator schedule install --cron --write`, or `orchestrator serve`."

    def reported(**fields: bool) -> str:
        schedule_tables.note_controller(context, [stored], **fields)
        return capsys.readouterr().err.strip()

    assert reported() == f"No controller is running, so schedules will not fire. {cure}"
    with leases.acquire(context, command="tick", seconds=30).renewing(
        lambda text: None, lambda: None
    ):
        pass
    newest = health.Pass(
        command="tick",
        host="login1",
        pid=7,
        since=BEGIN,
        last_pass_at=BEGIN,
        took_seconds=0.5,
        steps={},
        next_pass_at=None,
        failing_since=None,
    )
    health.store(context.configuration, newest)
    last = health.last_pass_message(newest)
    assert (reported(), reported(with_last_pass=True)) == ("", last)
    # From another host's ticks no file is seen here; what they left undone is.
    clock.now += datetime.timedelta(minutes=44)
    health.store(context.configuration, dataclasses.replace(newest, last_pass_at=clock()))
    assert reported() == ""
    clock.now += datetime.timedelta(minutes=1)
    planned = f"{BEGIN.replace(hour=9, minute=0).astimezone():%Y-%m-%d %H:%M}"
    overdue = f"hourly was planned for {planned}, but no controller pass has run since."
    assert reported() == f"{overdue} {cure}"
    health.store(context.configuration, newest)
    triggers.decide(context, stored)
    stored = management.find(context, "hourly")
    assert reported(with_last_pass=True) == f"{last} {cure}"
