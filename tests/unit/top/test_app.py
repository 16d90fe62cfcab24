"""The screen of `top`: the list, the details of a job, keys and actions, without a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from textual import pilot as pilots

from orchestrator import errors, jobs, metrics
from orchestrator.controller.metrics import curves
from orchestrator.controller.session import contexts, stores
from orchestrator.jobs import JobState
from orchestrator.top import app, background, details, listing
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
TIMEOUT_SECONDS = 60.0
KEYS = "q quit  / filter  s sort  space mark  c cancel  r requeue  l m e pane  ? help"


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    with stores.Store(database_url) as store:
        yield store
        # They have connections to the database.
        for thread in threading.enumerate():
            if thread.name == background.NAME:
                thread.join(60)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "1.out"


@pytest.fixture
def context(tmp_path: Path, store: stores.Store, log: Path) -> contexts.Context:
    """Jobs: 1 beta is running, 2 alpha failed, 3 many has tasks."""
    with store.writing() as work:
        (running,) = work.jobs.add_submission(
            builders.make_submission(1, NOW, name="beta"),
            state=JobState.RUNNING,
            started_at=NOW - datetime.timedelta(minutes=5),
            job_id="1",
            node_list="n1",
            stdout_path=str(log),
        )
        work.jobs.add_submission(
            builders.make_submission(2, NOW, name="alpha"),
            state=JobState.FAILED,
            started_at=NOW,
            ended_at=NOW,
            settled=True,
            job_id="2",
            exit_code=1,
        )
        tasks = work.jobs.add_submission(
            builders.make_submission(3, NOW, name="many"),
            array_tasks=range(4),
            state=JobState.PENDING,
            array_job_id="3",
        )
        ids = [(task.row, {"job_id": f"3_{task.array_task_id}"}, None) for task in tasks]
        work.jobs.change_many(ids)
        work.metrics.add(running.row, [_parsed(step, 10.0 - step) for step in range(8)])
    return builders.make_context(tmp_path, store, now=NOW)


def _parsed(step: int, loss: float) -> metrics.ParsedLine:
    return metrics.ParsedLine(
        path="",
        source="log:demo",
        attempt=0,
        rank=None,
        world_size=None,
        names=(("loss", ""),),
        step=step,
        epoch=0,
        time=NOW,
        line=step,
        values=(loss,),
    )


class Screen:
    """A running `top`, as a person sees it."""

    def __init__(self, running: app.Top, pilot: pilots.Pilot[None]) -> None:
        self.app = running
        self._pilot = pilot

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in "\n".join(self.lines()), text)

    async def until(self, happened: Callable[[], object], what: str = "it") -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not happened():
            assert time.monotonic() < deadline, "\n".join(
                [f"{what!r} is not in", *self.lines(), f"error: {self.app.error!r}"]
            )
            await self._pilot.pause(0.02)


class Acted:
    """What `top` did to jobs."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, list[str]]] = []
        self.error: errors.OrchestratorError | None = None

    def act(
        self, context: contexts.Context, action: str, selected: Sequence[jobs.Job]
    ) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        self.actions.append((action, [job.job_id or f"@{job.row}" for job in selected]))
        return [f"{action}: {len(selected)} done"]


@contextlib.asynccontextmanager
async def started(
    context: contexts.Context,
    acted: Acted | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    shown: listing.Filter | None = None,
    refresh: Callable[[contexts.Context], object] = lambda context: None,
    ingest: Callable[[contexts.Context, jobs.Job], object] = lambda context, job: None,
) -> AsyncIterator[Screen]:
    running = app.Top(
        context,
        shown or listing.Filter(),
        refresh=refresh,
        ingest=ingest,
        act=(acted or Acted()).act,
    )
    async with running.run_test(size=size) as pilot:
        yield Screen(running, pilot)
        assert running.error is None


def test_list_and_log_at_80_columns(context: contexts.Context, log: Path) -> None:
    log.write_text("step 1\nstep 2\nhalf")

    async def look() -> None:
        async with started(context) as screen:
            await screen.shows("many PENDING  [log] metrics explain")
            assert screen.lines()[:6] == [
                "1 FAILED  4 PENDING  1 RUNNING  [last day]  by submitted",
                "  JOB ▼    NAME    STATE      ELAPSED    LIMIT  GPUS  NODES    REASON",
                "  3_[0-3]  many    PENDING",
                "  2        alpha   FAILED    00:00:00",
                "  1        beta    RUNNING   00:05:00                 n1",
                "",
            ]
            assert screen.lines()[-1] == KEYS
            await screen.press("end")
            await screen.shows("1 beta RUNNING  [log] metrics explain")
            await screen.shows("step 1\nstep 2\nhalf")
            with log.open("a") as file:
                file.write(" more\nnext\n")
            await screen.shows("step 2\nhalf more\nnext")
            # More lines than fit: the last one stays visible.
            for last in (40, 80):
                with log.open("a") as file:
                    file.writelines(f"line {number}\n" for number in range(last - 40, last))
                await screen.shows(f"line {last - 1}")

    asyncio.run(look())


def test_all_panes_at_200_columns(context: contexts.Context, log: Path) -> None:
    log.write_text("step 1\n")

    async def look() -> None:
        async with started(context, size=(200, 50), shown=listing.Filter(words="beta")) as screen:
            await screen.shows("1 beta RUNNING  [log] [metrics] [explain]")
            await screen.shows("1 is RUNNING.")
            row = next(line for line in screen.lines() if "step 1" in line)
            assert row.startswith("step 1  ")
            assert row.endswith("loss            3  █▇▆▅▄▃▂▁")

    asyncio.run(look())


def test_panes_of_a_small_terminal(context: contexts.Context) -> None:
    async def look() -> None:
        async with started(context, shown=listing.Filter(words="beta")) as screen:
            await screen.shows("[log] metrics explain")
            await screen.press("m")
            await screen.shows("loss            3  █▇▆▅▄▃▂▁")
            await screen.press("e")
            await screen.shows("log metrics [explain]\n1 is RUNNING.")
            await screen.press("slash", *["backspace"] * 4, *"alpha", "enter")
            await screen.shows("Job:       2 (@2) alpha, FAILED")

    asyncio.run(look())


def test_filter_age_and_order(context: contexts.Context, store: stores.Store) -> None:
    long_ago = NOW - datetime.timedelta(days=3)
    with store.writing() as work:
        work.jobs.add_submission(
            builders.make_submission(4, long_ago, name="old"),
            state=JobState.COMPLETED,
            ended_at=long_ago,
            settled=True,
            job_id="4",
        )

    def names(screen: Screen) -> list[str]:
        rows = [line.split() for line in screen.lines()[2:7] if line]
        return [row[1] for row in rows if row[0][0].isdigit() and len(row) > 2]

    async def look() -> None:
        async with started(context) as screen:
            await screen.until(lambda: names(screen) == ["many", "alpha", "beta"])
            await screen.press("s")
            await screen.shows("NAME ▼")
            await screen.until(lambda: names(screen) == ["many", "beta", "alpha"])
            await screen.press("S")
            await screen.until(lambda: names(screen) == ["alpha", "beta", "many"])
            await screen.press("a")
            await screen.shows("[last 7 days]")
            await screen.until(lambda: names(screen) == ["alpha", "beta", "many", "old"])
            await screen.press("slash", *"bet", "enter")
            await screen.until(lambda: names(screen) == ["beta"])
            await screen.press("slash", *"x")
            await screen.shows("No job matches. escape: remove the filter")
            await screen.press("escape")
            await screen.until(lambda: names(screen) == ["alpha", "beta", "many", "old"])

    asyncio.run(look())


def test_new_states_appear_and_the_selected_job_stays(
    context: contexts.Context, store: stores.Store
) -> None:
    async def look() -> None:
        async with started(context) as screen:
            await screen.press("down")
            await screen.shows("2 alpha FAILED  [log]")
            with store.writing() as work:
                (new,) = work.jobs.add_submission(
                    builders.make_submission(5, NOW, name="newest"),
                    state=JobState.PENDING,
                    job_id="5",
                )
                event = context.event("state", "submitted")
                work.events.add_many([(new.row, event)])
            await screen.shows("  5        newest  PENDING")
            await screen.shows("2 alpha FAILED  [log]")

    asyncio.run(look())


def test_confirmation_names_the_jobs_and_marks_are_used(context: contexts.Context) -> None:
    acted = Acted()

    async def look() -> None:
        async with started(context, acted) as screen:
            await screen.shows("many PENDING  [log]")
            # The array, and the last job.
            await screen.press("space", "down", "space", "c")
            await screen.shows("Cancel 5 jobs?")
            text = "\n".join(screen.lines())
            assert "3_[0-3]  many  PENDING" in text and "1  beta  RUNNING" in text
            assert "y: cancel   n: go back" in text
            await screen.press("enter", "n")
            await screen.shows("* 3_[0-3]  many")
            assert acted.actions == []
            await screen.press("c")
            await screen.shows("Cancel 5 jobs?")
            await screen.press("y")
            await screen.shows("\ncancel: 5 done\n")
            assert acted.actions == [("cancel", ["3_0", "3_1", "3_2", "3_3", "1"])]
            assert "*" not in "\n".join(screen.lines())
            # Without marks the selected job.
            await screen.press("home", "down", "r")
            await screen.shows("Requeue 1 job?")
            await screen.press("y")
            await screen.until(lambda: len(acted.actions) == 2)
            assert acted.actions[1] == ("requeue", ["2"])

    asyncio.run(look())


def test_a_filter_limits_what_is_done(context: contexts.Context, store: stores.Store) -> None:
    acted = Acted()
    with store.writing() as work:
        tasks = work.jobs.of_submissions(["abcd00000003"])
        on_n7 = [(task.row, {"node_list": "n7"}, None) for task in tasks[1:3]]
        work.jobs.change_many(on_n7)

    async def look() -> None:
        async with started(context, acted, shown=listing.Filter(words="n7")) as screen:
            await screen.shows("3_[1-2]  many")
            await screen.press("c")
            await screen.shows("Cancel 2 jobs?")
            await screen.press("y")
            await screen.shows("cancel: 2 done")
            assert acted.actions == [("cancel", ["3_1", "3_2"])]

    asyncio.run(look())


def test_what_cannot_be_done_is_reported(context: contexts.Context) -> None:
    acted = Acted()

    async def look() -> None:
        async with started(context, acted) as screen:
            await screen.press("down")
            await screen.shows("2 alpha FAILED  [log]")
            await screen.press("c")
            await screen.shows("Nothing to cancel: 2 FAILED")
            acted.error = errors.SlurmError("slurmctld does not respond\n(nothing was changed)")
            await screen.press("down", "r")
            await screen.shows("Requeue 1 job?")
            await screen.press("y")
            await screen.shows("slurmctld does not respond (nothing was changed)")
            assert acted.actions == []

    asyncio.run(look())


def test_what_changes_while_a_question_is_open(
    context: contexts.Context, store: stores.Store
) -> None:
    refreshing = threading.Event()

    def refresh(given: contexts.Context) -> None:
        refreshing.wait(TIMEOUT_SECONDS)
        given.reporter.warn("Not refreshed: disk full")

    async def look() -> None:
        async with started(context, refresh=refresh) as screen:
            await screen.press("c")
            await screen.shows("Cancel 4 jobs?")
            with store.writing() as work:
                (new,) = work.jobs.add_submission(
                    builders.make_submission(5, NOW, name="newest"),
                    state=JobState.PENDING,
                    job_id="5",
                )
                work.events.add_many([(new.row, context.event("state", "submitted"))])
            refreshing.set()
            await screen.until(lambda: screen.app._view.listing.total == 4)
            await screen.press("n")
            await screen.shows("  5        newest  PENDING")
            await screen.shows("Not refreshed: disk full")

    asyncio.run(look())


def test_a_long_curve_with_nan(context: contexts.Context, store: stores.Store) -> None:
    with store.writing() as work:
        (row,) = work.jobs.find_rows(jobs.JobQuery(names=["beta"]))
        work.metrics.add(row, [_parsed(step, 2.0) for step in range(8, 3000)])
        work.metrics.add(row, [_parsed(3000, float("nan"))])
    (job,) = _found(store, "beta")
    found = details.read_curves(context, curves.Cache(), job)
    (line,) = details.metric_lines(found, 60)
    assert line == f"loss          nan  █{'▁' * 39}x"
    assert details.metric_lines({}, 60) == ["No metrics."]


def _found(store: stores.Store, name: str) -> list[jobs.Job]:
    with store.reading() as work:
        return work.jobs.find(jobs.JobQuery(names=[name]))


def test_hostile_text_is_escaped(context: contexts.Context, store: stores.Store, log: Path) -> None:
    evil = "\x1b]0;EVIL\x07\u202e[bold]x"
    shown = r"\x1b]0;EVIL\x07\u202e[bold]x"
    log.write_text("\x1b[31mred\x1b]0;EVIL\x07\n")
    with store.writing() as work:
        rows = work.jobs.find_rows(jobs.JobQuery(names=["beta"]))
        work.jobs.change_many([(row, {"node_list": evil}, None) for row in rows])
        (named,) = work.jobs.add_submission(
            builders.make_submission(6, NOW, name=evil), state=JobState.PENDING, job_id="6"
        )
        work.metrics.add(named.row, [_parsed(1, 1.0)._replace(names=((evil, evil),))])

    async def look() -> None:
        async with started(context, size=(200, 50)) as screen:
            await screen.shows(f"6 {shown} PENDING")
            await screen.press("c")
            await screen.shows(f"6  {shown}  PENDING")
            await screen.press("n", "end")
            await screen.shows("1 beta RUNNING")
            await screen.until(lambda: any(line.startswith("red ") for line in screen.lines()))
            text = "\n".join(screen.lines())
            assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text

    asyncio.run(look())


def test_help_and_quit(context: contexts.Context) -> None:
    async def look() -> None:
        async with started(context) as screen:
            await screen.press("question_mark")
            await screen.shows("requeue the marked jobs, or the selected one")
            await screen.press("escape")
            await screen.shows(KEYS)
            await screen.press("q")
            await screen.until(lambda: not screen.app.is_running)

    asyncio.run(look())


def test_quitting_during_an_action_needs_a_second_key(context: contexts.Context) -> None:
    release = asyncio.Event()

    class Slow(Acted):
        def act(
            self, context: contexts.Context, action: str, selected: Sequence[jobs.Job]
        ) -> Sequence[str]:
            while not release.is_set():
                time.sleep(0.01)
            return ["done"]

    async def look() -> None:
        async with started(context, Slow()) as screen:
            await screen.press("r")
            await screen.shows("Requeue 4 jobs?")
            await screen.press("y")
            await screen.shows("requeue of 4 jobs ...")
            await screen.press("q")
            await screen.shows("requeue of 4 jobs is not confirmed yet. q: quit anyway")
            await screen.press("q")
            await screen.until(lambda: not screen.app.is_running)
            release.set()

    asyncio.run(look())


def test_problems_are_shown(context: contexts.Context) -> None:
    def refresh(given: contexts.Context) -> None:
        given.reporter.warn("Not refreshed: database is locked")

    def ingest(given: contexts.Context, job: jobs.Job) -> None:
        raise errors.DatabaseError("cannot write")

    async def look() -> None:
        async with started(context, refresh=refresh) as screen:
            await screen.shows("Not refreshed: database is locked")
        async with started(context, ingest=ingest) as screen:
            await screen.shows("cannot write")

    asyncio.run(look())


def test_an_unexpected_exception_ends_it(context: contexts.Context) -> None:
    def refresh(given: contexts.Context) -> None:
        raise ZeroDivisionError("bug")

    async def look() -> None:
        running = app.Top(
            context,
            listing.Filter(),
            refresh=refresh,
            ingest=lambda given, job: None,
            act=Acted().act,
        )
        async with running.run_test() as pilot:
            await Screen(running, pilot).until(lambda: not running.is_running)
        assert isinstance(running.error, ZeroDivisionError)

    asyncio.run(look())


def test_a_replaced_log_is_read_anew(tmp_path: Path, context: contexts.Context) -> None:
    log = tmp_path / "a.out"
    job = builders.make_job(stdout_path=str(log))
    missing = details.read_log(context, job, details.Log())
    expected = f"no log yet: {log} appears when the job starts."
    assert missing.text == [expected]
    log.write_text("".join(f"line {number}\n" for number in range(20_000)) + "end")
    first = details.read_log(context, job, missing)
    assert len(first.text) == details.MAX_LINES + 1
    assert first.text[-2:] == ["line 19999", "end"]
    log.unlink()
    log.write_text("new\x1b[2J\n")
    assert details.read_log(context, job, first).text == ["new"]
