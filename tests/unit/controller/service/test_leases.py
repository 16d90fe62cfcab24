"""The lease: one controller acts at a time, and a controller that lost it cannot write."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies

from orchestrator import errors, jobs
from orchestrator.controller.service import leases
from orchestrator.controller.session import contexts, stores
from orchestrator.local import processes
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
SECONDS = 30.0


@dataclasses.dataclass
class World:
    """Hosts whose clocks differ, and the processes on them that live."""

    context: contexts.Context
    #: seconds since the beginning
    now: float = 0.0
    alive: set[int] = dataclasses.field(default_factory=set)

    def process(self, pid: int) -> jobs.Submitter:
        """The even ones are on one host, the odd ones on another, ten minutes ahead."""
        host = f"login{pid % 2}"
        return jobs.Submitter(host=host, boot_id=f"boot of {host}", pid=pid, start_ticks=1)

    def take(self, pid: int, *, stand_by: bool = False) -> leases.HeldLease:
        """Acquire the lease as this process would; to wait for it lets the time go by."""
        me = self.process(pid)
        self.alive.add(pid)
        ahead = datetime.timedelta(minutes=10 * (pid % 2))

        def pause(seconds: float) -> None:
            self.now += seconds

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processes, "this_process", lambda: me)
            patch.setattr(processes, "boot_id", lambda: me.boot_id)
            patch.setattr(
                processes,
                "is_alive",
                lambda who: who.pid in self.alive if who.host == me.host else None,
            )
            return leases.acquire(
                builders.with_clock(
                    self.context,
                    now=lambda: NOW + ahead + datetime.timedelta(seconds=self.now),
                ),
                command="serve",
                seconds=SECONDS,
                stand_by=stand_by,
                pause=pause,
                monotonic=lambda: self.now,
                boot_clock=lambda: self.now,
            )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("leases")
    with stores.Store(folder / "x.db") as store:
        yield World(builders.make_context(folder, store))


def write(holding: leases.HeldLease, text: str) -> None:
    with holding.store.writing() as work:
        work.settings.put("by", text)


def free(world: World) -> None:
    """Release the lease."""
    world.now += 10_000
    world.alive.clear()
    world.take(99, stand_by=True).release()
    world.alive.clear()


def test_no_writes_after_the_lease_is_lost(world: World) -> None:
    free(world)
    first = world.take(2)
    write(first, "first")
    world.now += SECONDS
    since = (NOW + datetime.timedelta(seconds=world.now + SECONDS)).astimezone()
    second = world.take(4)
    with pytest.raises(errors.FencedError) as refused:
        write(first, "first again")
    assert str(refused.value) == (
        "Another controller took over: `serve` (process 4 on login0, since "
        f"{since:%Y-%m-%d %H:%M:%S}). This controller stops."
    )
    with pytest.raises(errors.FencedError):
        first.confirm()
    with pytest.raises(errors.FencedError):
        first.check()
    write(second, "second")
    # People's own commands go on beside any controller.
    with world.context.store.writing() as work:
        assert work.settings.get("by") == "second"
        work.settings.put("by", "a person")


def test_a_process_that_ended_is_replaced_at_once_on_its_host(world: World) -> None:
    free(world)
    world.take(2)
    with pytest.raises(leases.HeldError, match=r"process 2 on login0.*add --wait"):
        world.take(4)
    world.alive.remove(2)
    before = world.now
    world.take(4)
    assert world.now == before


def test_another_host_waits_for_the_lease_and_trusts_no_clock(world: World) -> None:
    free(world)
    first = world.take(2)
    # This clock is a day ahead, so each renewal looks old, but is recognized nevertheless.
    renewed_at: list[float] = []
    message: list[str] = []
    context = world.context

    def pause_and_renew(seconds: float) -> None:
        world.now += seconds
        first.renew()
        renewed_at.append(world.now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "this_process", lambda: world.process(3))
        patch.setattr(processes, "boot_id", lambda: "boot of login1")
        patch.setattr(processes, "is_alive", lambda who: None)
        with pytest.raises(leases.HeldError, match=r"this host is .* is in PostgreSQL"):
            leases.acquire(
                builders.with_clock(context, now=NOW + datetime.timedelta(days=1)),
                command="serve",
                seconds=SECONDS,
                stand_by=True,
                pause=pause_and_renew,
                inform=message.append,
                monotonic=lambda: world.now,
            )
    assert len(renewed_at) == 1
    began = world.now
    world.take(3)
    assert SECONDS <= world.now - began < SECONDS * 1.5


ACTS = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["take", "take", "stand by", "renew", "write", "kill", "time"]),
        strategies.integers(0, 3),
    ),
    max_size=25,
)


@hypothesis.given(ACTS)
@hypothesis.settings(max_examples=20)
def test_one_writes_at_a_time(world: World, acts: list[tuple[str, int]]) -> None:
    free(world)
    # By position in ACTS; a process that starts there has its own number.
    held: dict[int, tuple[int, leases.HeldLease]] = {}
    numbers = {path: itertools.count(100 + path, 4) for path in range(4)}
    newest: int | None = None
    renewed = world.now
    for act, position in acts:
        if act in ("take", "stand by") and position not in held:
            pid = next(numbers[position])
            dead_here = newest is not None and newest not in world.alive and newest % 2 == pid % 2
            try:
                held[position] = (pid, world.take(pid, stand_by=act == "stand by"))
            except leases.HeldError:
                assert newest is not None and not dead_here
            else:
                # In real time, independent of the clocks of the hosts.
                assert newest is None or dead_here or world.now - renewed >= SECONDS
                newest, renewed = pid, world.now
        elif act == "kill" and position in held:
            world.alive.discard(held.pop(position)[0])
        elif act == "time":
            world.now += SECONDS / 2
        elif act in ("renew", "write") and position in held:
            pid, mine = held[position]
            change = mine.renew if act == "renew" else functools.partial(write, mine, act)
            if pid == newest:
                change()
                renewed = world.now if act == "renew" else renewed
            else:
                with pytest.raises(errors.FencedError):
                    change()
