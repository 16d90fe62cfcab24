"""A clock that is set: which actions of passes and commands are suspended."""

from __future__ import annotations

import dataclasses
import datetime
import math
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.controller.resubmission import deferred_jobs
from orchestrator.controller.schedules import management, triggers
from orchestrator.controller.service import controller_process, health, passes
from orchestrator.controller.session import clock_check, clusters, contexts, stores
from orchestrator.processes import process
from orchestrator.schedules import records
from orchestrator.slurm.client import Client
from tests import builders

BEGIN = datetime.datetime(2026, 11, 22, 8, 30, 30, tzinfo=datetime.UTC)
MONTH = 30 * 86400.0


class Host:
    """A host whose clock can be set: `up` seconds have passed, and it shows `ahead` more."""

    def __init__(self) -> None:
        self.up = 0.0
        self.ahead = 0.0
        #: offset of the clock of Slurm's host; None: no reply
        self.slurm_ahead: float | None = None
        self.slurm_host = "ctl"

    def clock(self) -> datetime.datetime:
        return BEGIN + datetime.timedelta(seconds=self.up + self.ahead)

    def run(self, argv: object, limit: float, environ: object, **fields: object) -> process.Result:
        at = BEGIN + datetime.timedelta(seconds=self.up + (self.slurm_ahead or 0.0))
        return process.Result(
            argv=("scontrol", "show", "config"),
            returncode=0 if self.slurm_ahead is not None else 1,
            stdout=(
                f"Configuration data as of {at.timestamp():.0f}\nClusterName = lab\n"
                f"SLURM_VERSION = 24.11.5\nSlurmctldHost[0] = {self.slurm_host}(10.0.0.1)\n"
            ),
            stderr="",
            timed_out=False,
            seconds=0.0,
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(clock_check, "is_synchronized", lambda: False)
    return Host()


@pytest.fixture
def context(tmp_path: Path, database_file: Path, host: Host) -> Iterator[contexts.Context]:
    environ = {"HOME": str(tmp_path), "ORCHESTRATOR_SCHEDULER": "slurm"}
    with stores.Store(database_file) as store:
        context = builders.make_context(
            tmp_path, store, environ=environ, slurm=Client(environ={}, run=host.run)
        )
        yield builders.with_clock(context, now=host.clock, boot_seconds=lambda: 1000 + host.up)


def tick(context: contexts.Context) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the steps of a pass, and its log messages about the clock."""
    log: list[controller_process.LogLine] = []
    outcomes = controller_process.tick(context, log.append)
    of_clock = [(line.level, line.text) for line in log if line.event == "clock"]
    return [outcome.step for outcome in outcomes], of_clock


ALL = [step.name for step in passes.steps(None)]


def add(context: contexts.Context, monkeypatch: pytest.MonkeyPatch) -> records.Schedule:
    local = clusters.facts(context.with_scheduler("local"))
    facts = dataclasses.replace(local, cluster="lab")
    monkeypatch.setattr(clusters, "facts", lambda context, **options: facts)
    return management.add(
        context,
        "often",
        cron="* * * * *",
        tz="UTC",
        kind="job",
        source="job.toml",
        spec={},
        inherit=(),
        argv=(),
        catchup="latest",
        grace_seconds=6 * 3600,
        overlap="skip",
        jitter_seconds=0,
        baseline=None,
    )


@pytest.mark.parametrize("seconds", [MONTH, -MONTH, 7200.0])
def test_a_pass_with_a_wrong_clock_looks_and_decides_nothing(
    context: contexts.Context, host: Host, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = add(context, monkeypatch)
    assert tick(context)[0] == ALL
    host.up, host.ahead = 60, seconds
    steps, reported = tick(context)
    assert steps == ["refresh", "logs"]
    (level, text), *_ = reported
    assert level == "warning" and text.startswith(f"The clock of {socket.gethostname()} jumped ")
    result = health.examine(context.store, context.configuration.state_dir, context.clock.now())
    assert text in result.problems
    # It is a warning once.
    assert tick(context) == (["refresh", "logs"], [("info", text)])
    with pytest.raises(errors.ConflictError) as refused:
        management.add(context, "often", spec={}, inherit=(), argv=(), replace=True)
    assert str(refused.value) == text
    with context.store.reading() as work:
        assert work.schedules.triggers(stored.row) == []
    # Set right again it is trusted at once.
    host.ahead = 0
    steps, reported = tick(context)
    assert steps == ALL
    assert reported == [("info", "The clock is trusted again; deferred work resumes.")]


def test_confirmation_of_a_changed_clock(context: contexts.Context, host: Host) -> None:
    def leap() -> None:
        clock_check.trust(context)
        host.ahead += MONTH

    def steps() -> list[str]:
        return tick(context)[0]

    leap()
    host.slurm_ahead = 0.0
    assert steps() == ["refresh", "logs"]
    host.slurm_ahead = host.ahead
    assert steps() == ALL
    # Slurm on this host has this host's clock.
    leap()
    host.slurm_ahead, host.slurm_host = host.ahead, socket.gethostname()
    assert steps() == ["refresh", "logs"]
    # An hour without another change.
    host.up += 3600
    assert steps() == ALL
    leap()
    assert steps() == ["refresh", "logs"]
    clock_check.trust(context)
    assert steps() == ALL


def test_ntp_confirms_a_leap(
    context: contexts.Context, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick(context)
    host.ahead = MONTH
    assert tick(context)[0] == ["refresh", "logs"]
    monkeypatch.setattr(clock_check, "is_synchronized", lambda: True)
    assert tick(context)[0] == ALL


def test_a_command_of_a_person_gives_nothing_up_either(
    context: contexts.Context, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = clusters.facts(context.with_scheduler("local"))
    facts = dataclasses.replace(local, cluster="lab")
    assert clusters.grace_seconds(clock_check.checked(context), facts) == 120.0
    tick(context)
    host.ahead = MONTH
    there = clock_check.checked(context)
    assert there.clock.doubt and clusters.grace_seconds(there, facts) == math.inf
    monkeypatch.setattr(deferred_jobs, "_send_group", pytest.fail)
    deferred_jobs.refresh_and_send(context)
    # Other clocks are not queried again for each command.
    monkeypatch.setattr(Client, "config", pytest.fail)
    assert clock_check.checked(context).clock.doubt == there.clock.doubt


def test_clock_leap_during_a_pass_is_handled_by_the_next_pass(
    context: contexts.Context, host: Host
) -> None:
    there = clock_check.check_pass(context).context
    host.up, host.ahead = 5, MONTH
    assert there.clock.now() == BEGIN + datetime.timedelta(seconds=5)
    assert clock_check.check_pass(context).is_new


def test_a_machine_that_was_off_for_a_month_catches_up(
    context: contexts.Context, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = add(context, monkeypatch)
    tick(context)
    host.up = MONTH
    triggers.decide(clock_check.check_pass(context).context, stored)
    with context.store.reading() as work:
        newest, *others = work.schedules.triggers(stored.row)
    assert newest.state == "waiting"
    assert len(others) == 100 and {other.state for other in others} == {"skipped"}


def test_schedule_added_with_a_wrong_clock_continues_from_now(
    context: contexts.Context, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.ahead = MONTH
    stored = add(context, monkeypatch)
    host.ahead, host.up = 0, 100
    triggers.decide(context, stored)
    with context.store.reading() as work:
        schedule = work.schedules.get(stored.row)
        assert schedule.decided_until == context.clock.now()
    host.up = 160
    triggers.decide(context, schedule)
    with context.store.reading() as work:
        (one,) = work.schedules.triggers(stored.row)
    assert one.state == "waiting"


def test_a_database_on_this_host_is_no_other_clock(database_url: str) -> None:
    with stores.Store(database_url) as store, store.reading() as work:
        assert work.leases.server_time() is None
