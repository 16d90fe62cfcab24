"""Who keeps what it heard finds the same as who asks anew each time."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import jobs, specs
from orchestrator.controller.refresh import cache, refresh
from orchestrator.controller.session import clusters, contexts, stores
from orchestrator.slurm import process
from orchestrator.slurm.client import Client
from orchestrator.tracking import run_folder
from tests import builders

# Later than what squeue's rows are stamped with, so that each row counts as of the refresh.
NOW = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
JOBS = 3
Shown: TypeAlias = tuple[str, int] | Literal[""] | None
#: What squeue shows of a job: its state and how often it was requeued; none: nothing.
SHOWN = st.none() | st.tuples(
    st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED"]), st.integers(0, 2)
)
#: One refresh: what is shown of each job ("": the same as before), and whose row another process
#: changes before it.
PASSES = st.lists(
    st.tuples(
        st.tuples(*[st.just("") | st.just("") | SHOWN] * JOBS), st.sets(st.integers(0, JOBS - 1))
    ),
    min_size=5,
    max_size=8,
)


@dataclasses.dataclass
class World:
    """One database, and what its squeue says."""

    context: contexts.Context
    lines: list[str]
    now: datetime.datetime = NOW


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    folder.mkdir()
    lines: list[str] = []

    def squeue(argv: Sequence[str], limit: float, environ: object) -> process.Result:
        return process.Result(
            argv=tuple(argv),
            returncode=0,
            stdout="\n".join(lines),
            stderr="",
            timed_out=False,
            seconds=0.0,
        )

    with stores.Store(folder / "x.db") as store:
        context = builders.make_context(
            folder, store, slurm=Client(environ={}, run=squeue), now=lambda: found.now
        )
        found = World(context, lines)
        facts = dataclasses.replace(
            clusters.machine_facts(context), cluster="lab", accounting=False
        )
        with store.writing() as work:
            work.settings.put("installation_id", "abcd")
            work.settings.put(clusters._key(context), clusters._to_json(facts))
        yield found


def add(one: World, number: int) -> jobs.Job:
    token = f"abcd{number:08}"
    record = jobs.Submission(
        token=token,
        cluster="lab",
        scheduler="slurm",
        name="x",
        script="",
        spec=specs.to_json(jobs.JobSpec(name="x")),
        run_dir=str(one.context.folder / token),
        provenance="{}",
        created_at=NOW,
    )
    with one.context.store.writing() as work:
        (job,) = work.jobs.add_submission(record, state=jobs.JobState.PENDING, job_id=str(number))
    return job


def line(job: jobs.Job, state: str, restarts: int) -> str:
    host = "" if state == "PENDING" else "n1"
    begun, over = "2026-11-22T03:00:00", state not in ("PENDING", "RUNNING")
    code = "256" if state == "FAILED" else "0"
    columns = [str(job.job_id), str(job.job_id), state, code, str(restarts), begun]
    columns += [begun if host else "N/A", "2026-11-22T03:05:00" if over else "N/A", "1:00:00", "1"]
    columns += ["cpu=1,node=1", "N/A", "all", "a", "normal", host, "/x/log", "None"]
    return "\x1f".join([*columns, run_folder.slurm_name(job.name, job.token)])


def said(one: World, rows: Sequence[int]) -> list[object]:
    """All that is stored of these jobs; the two databases number and place them alike."""
    with one.context.store.reading() as work:
        found = [work.jobs.get(row) for row in rows]
        told = [[*work.events.of_job(row), *work.attempts.of_job(row)] for row in rows]
    return [[dataclasses.replace(job, run_dir="") for job in found if job], told]


def test_it_finds_the_same_as_a_refresh_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "PORTION", 2)
    monkeypatch.setattr(cache, "READ_AT_ONCE", 2)
    numbers = itertools.count(1)
    with world(tmp_path / "plain") as plain, world(tmp_path / "keeps") as keeps:

        @hypothesis.settings(
            max_examples=12, deadline=None, database=None, phases=[hypothesis.Phase.generate]
        )
        @hypothesis.given(PASSES)
        def check(passes: list[tuple[tuple[Shown, ...], set[int]]]) -> None:
            memory = cache.Heard()
            context = dataclasses.replace(keeps.context, refresh_cache=memory)
            drawn = [next(numbers) for _ in range(JOBS)]
            mine = {one: [add(each, number) for number in drawn] for one, each in worlds.items()}
            rows = [job.row for job in mine["plain"]]
            shown: list[tuple[str, int] | None] = [None] * JOBS
            for told, changed in passes:
                shown = [old if new == "" else new for old, new in zip(shown, told, strict=True)]
                for name, each in worlds.items():
                    each.now += datetime.timedelta(minutes=1)
                    each.lines[:] = [
                        line(job, *one) for job, one in zip(mine[name], shown, strict=True) if one
                    ]
                    with each.context.store.writing() as work:
                        for place in sorted(changed):
                            work.jobs.change(rows[place], {"reason": "of another process"})
                refresh.refresh_one(plain.context, floor_seconds=0)
                refresh.refresh_one(context, floor_seconds=0)
                assert said(keeps, rows) == said(plain, rows)
            for each in worlds.values():
                with each.context.store.writing() as work:
                    work.jobs.change_many([(row, {"settled": True}, None) for row in rows])

        worlds = {"plain": plain, "keeps": keeps}
        check()
