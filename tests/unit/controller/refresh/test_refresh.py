"""A refresh that skips what it knows finds the same as one that starts from nothing."""

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

from orchestrator import jobs
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import clusters, stores
from orchestrator.files import run_folder
from orchestrator.processes import process
from orchestrator.slurm.client import Client
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 4, tzinfo=datetime.UTC)
JOBS = 3
#: State and number of requeues; "": as in the last refresh; None: not listed.
Listed: TypeAlias = tuple[str, int] | Literal[""] | None
LISTED = st.none() | st.tuples(
    st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED"]), st.integers(0, 2)
)
#: Per refresh: what squeue lists, and which jobs another process changes before it.
PASSES = st.lists(
    st.tuples(
        st.tuples(*[st.just("") | st.just("") | LISTED] * JOBS), st.sets(st.integers(0, JOBS - 1))
    ),
    min_size=5,
    max_size=8,
)


class Cluster:
    """A database, and a Slurm whose squeue prints `lines`."""

    def __init__(self, folder: Path, store: stores.Store) -> None:
        self.now = NOW
        self.lines: list[str] = []
        self.context = builders.make_context(
            folder, store, slurm=self.client(), now=lambda: self.now
        )
        facts = dataclasses.replace(
            clusters.facts(self.context.with_scheduler("local")), cluster="lab", accounting=False
        )
        with store.writing() as work:
            work.settings.put("installation_id", "abcd")
            work.settings.put(clusters._key(self.context), clusters._to_json(facts))

    def client(self) -> Client:
        return Client(environ={}, run=self._run)

    def _run(self, argv: Sequence[str], limit: float, environ: object) -> process.Result:
        return process.Result(
            argv=tuple(argv),
            returncode=0,
            stdout="\n".join(self.lines),
            stderr="",
            timed_out=False,
            seconds=0.0,
        )

    def add(self, number: int) -> jobs.Job:
        token = f"abcd{number:08}"
        submission = builders.make_submission(
            1, NOW, token=token, name="x", run_dir=str(self.context.folder / token)
        )
        with self.context.store.writing() as work:
            (job,) = work.jobs.add_submission(
                submission, state=jobs.JobState.PENDING, job_id=str(number)
            )
        return job

    def stored(self, rows: Sequence[int]) -> list[object]:
        """Everything about these jobs except their folder."""
        with self.context.store.reading() as work:
            found = work.jobs.by_row(rows)
            history = [[*work.events.of_job(row), *work.attempts.of_job(row)] for row in rows]
        return [[dataclasses.replace(found[row], run_dir="") for row in rows], history]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    folder.mkdir()
    with stores.Store(folder / "x.db") as store:
        yield Cluster(folder, store)


def line(job: jobs.Job, state: str, restarts: int) -> str:
    host = "" if state == "PENDING" else "n1"
    begun, is_over = "2026-11-22T03:00:00", state not in ("PENDING", "RUNNING")
    code = "256" if state == "FAILED" else "0"
    columns = [str(job.job_id), str(job.job_id), state, code, str(restarts), begun]
    columns += [begun if host else "N/A", "2026-11-22T03:05:00" if is_over else "N/A", "N/A"]
    columns += ["1:00:00", "1", "cpu=1,node=1", "N/A", "all", "a", "normal", host, "/x/log", "None"]
    return "\x1f".join([*columns, run_folder.slurm_name(job.name, job.token)])


def test_the_same_as_a_refresh_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "JOBS_AT_ONCE", 2)
    numbers = itertools.count(1)
    with cluster(tmp_path / "new") as new, cluster(tmp_path / "same") as same:
        both = (new, same)

        @hypothesis.settings(
            max_examples=5, deadline=None, database=None, phases=[hypothesis.Phase.generate]
        )
        @hypothesis.given(PASSES)
        def check(passes: list[tuple[tuple[Listed, ...], set[int]]]) -> None:
            drawn = [next(numbers) for _ in range(JOBS)]
            own = {each: [each.add(number) for number in drawn] for each in both}
            rows = [job.row for job in own[new]]
            listed: list[tuple[str, int] | None] = [None] * JOBS
            client = same.client()
            context = dataclasses.replace(same.context, slurm_client=lambda: client)
            for news, changed in passes:
                listed = [old if now == "" else now for old, now in zip(listed, news, strict=True)]
                for each in both:
                    each.now += datetime.timedelta(minutes=1)
                    pairs = zip(own[each], listed, strict=True)
                    each.lines[:] = [line(job, *shown) for job, shown in pairs if shown]
                    with each.context.store.writing() as work:
                        for index in sorted(changed):
                            work.jobs.change(rows[index], {"reason": "of another process"})
                context_of_nothing = dataclasses.replace(
                    new.context, slurm_client=new.client, steady_jobs={}
                )
                refresh.refresh_one(context_of_nothing, floor_seconds=0)
                refresh.refresh_one(context, floor_seconds=0)
                assert same.stored(rows) == new.stored(rows)
            for each in both:
                with each.context.store.writing() as work:
                    work.jobs.change_many([(row, {"settled": True}, None) for row in rows])

        check()


def test_steady_jobs_are_neither_read_nor_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path / "lab") as lab:
        jobs_of_lab = [lab.add(number) for number in (1, 2)]
        lab.lines[:] = [line(job, "RUNNING", 0) for job in jobs_of_lab]
        client = lab.client()
        context = dataclasses.replace(lab.context, slurm_client=lambda: client)
        for _ in range(2):
            lab.now += datetime.timedelta(minutes=1)
            refresh.refresh_one(context, floor_seconds=0)
        decided: list[int] = []
        decide = refresh.tracking.decide
        monkeypatch.setattr(
            refresh.tracking,
            "decide",
            lambda job, evidence: decided.append(job.row) or decide(job, evidence),
        )
        lab.now += datetime.timedelta(minutes=1)
        refresh.refresh_one(context, floor_seconds=0)
        assert decided == []
        with context.store.reading() as work:
            seen = work.jobs.live("lab")
        assert {job.observed_at for job in seen} == {lab.now}
        lab.lines[1] = line(jobs_of_lab[1], "COMPLETING", 0)
        refresh.refresh_one(context, floor_seconds=0)
        assert decided == [jobs_of_lab[1].row]
