"""Graphs and retries: a continuation job belongs to the node of the job that it continues."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import errors, jobs
from orchestrator.controller.actions import cancel
from orchestrator.controller.graphs import graphs
from orchestrator.controller.recovery import continuation, recover_jobs
from orchestrator.controller.refresh import refresh
from orchestrator.controller.schedules import submit_later
from orchestrator.controller.session import contexts, stores
from orchestrator.controller.submission import dependencies, intents, submit
from orchestrator.controller.sweeps import queries, submit_points
from orchestrator.graphs import records
from orchestrator.jobs import dependency
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)
ENVIRON = {
    "PATH": "/usr/bin:/bin",
    "ORCHESTRATOR_SCHEDULER": "local",
    "WANDB_API_KEY": "wanted",
    "MAIL_PASSWORD": "hidden",
    "ORCHESTRATOR_DATABASE": "sqlite:////of/this/host.db",
}
LAUNCH = '[launch]\nlauncher = "python"\ncommand = "true"\n'
FILES = {
    "prep.toml": '[job]\nname = "prep"\nrequeue = false\n[retry]\nmax_retries = 2\n'
    f"backoff_seconds = 0\n{LAUNCH}",
    "train.toml": f'[job]\nname = "train"\n{LAUNCH}[environment]\ninherit = ["WANDB_API_KEY"]\n',
    "g.toml": '[graph]\nname = "g"\n[graph.nodes.prep]\nspec = "prep.toml"\n'
    '[graph.nodes.train]\nspec = "train.toml"\nafter_ok = ["prep"]\n',
}


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with stores.Store(database_url) as store:
        yield builders.make_context(tmp_path, store, environ=ENVIRON, now=NOW, is_local=True)


@pytest.fixture
def graph(context: contexts.Context, monkeypatch: pytest.MonkeyPatch) -> records.StoredGraph:
    """Two nodes; this machine has the job of each, the first has failed and may go on."""

    def send(context: Any, stored: intents.Stored, **fields: Any) -> jobs.Job:
        job = stored.job
        with context.store.writing() as work:
            seen = {"state": jobs.JobState.PENDING, "job_id": f"local-{job.row}"}
            work.jobs.change(job.row, seen)
        return job

    monkeypatch.setattr(submit, "send", send)
    # The local queue is empty: a refresh would report the jobs as missing.
    monkeypatch.setattr(refresh, "refresh", lambda context: None)
    made, problems = graphs.submit_graph(
        context, context.folder / "g.toml", ("orchestrator",), lambda text: None
    )
    assert problems == []
    with context.store.writing() as work:
        failed = {"state": jobs.JobState.FAILED, "cause": "node_fail", "settled": True}
        work.jobs.change(1, failed)
    return made


def rows_of(context: contexts.Context, graph: records.StoredGraph) -> list[list[int]]:
    with context.store.reading() as work:
        nodes = work.graphs.nodes(graph.row)
        return [[job.row for job in submit_later.jobs_of(work, node)] for node in nodes]


def test_only_inherited_variables_are_stored(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    with context.store.reading() as work:
        stored = work.graphs.environment(graph.row)
    left_out = {"MAIL_PASSWORD", "ORCHESTRATOR_DATABASE"}
    assert stored == {name: text for name, text in ENVIRON.items() if name not in left_out}


def test_another_cluster_cannot_submit_the_nodes(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    own, foreign = graph.cluster, dataclasses.replace(graph, cluster="lab")
    with pytest.raises(errors.ConflictError) as raised:
        submit_later.restore(context, foreign, ENVIRON, is_code_stored=False)
    assert str(raised.value) == f"its cluster is lab, and this host belongs to {own}"


def test_only_nodes_without_a_stored_snapshot_need_the_folder(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    moved = dataclasses.replace(graph, folder="/nonexistent/x")
    there = submit_later.restore(context, moved, ENVIRON, is_code_stored=True)
    assert str(there.folder) == "/nonexistent/x"
    with pytest.raises(errors.ConflictError) as raised:
        submit_later.restore(context, moved, ENVIRON, is_code_stored=False)
    assert str(raised.value) == "its folder /nonexistent/x does not exist on this host"


def test_node_has_the_continuation_job(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    assert rows_of(context, graph) == [[1], [2]]
    recover_jobs.step(context)
    assert rows_of(context, graph) == [[3], [2]]
    assert [job.row for job in graphs.close(context, graph) or []] == [3, 2]


def test_cancelled_graph_is_not_retried(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    with context.store.writing() as work:
        work.jobs.change(2, {"state": jobs.JobState.CANCELLED, "settled": True})
        assert not graphs.has_ended(work, graph), "a rule may go on with prep"
    live = graphs.close(context, graph)
    assert live and [job.row for job in live] == [1]
    (outcome,) = cancel.cancel(context, live)
    assert outcome.withdrawn
    assert recover_jobs.step(context) == []
    assert rows_of(context, graph) == [[1], [2]]
    with context.store.reading() as work:
        assert graphs.has_ended(work, graph)


def test_ended_graph_cannot_be_cancelled(
    context: contexts.Context, graph: records.StoredGraph
) -> None:
    with context.store.writing() as work:
        for row in (1, 2):
            done = {"state": jobs.JobState.COMPLETED, "settled": True, "cause": None}
            work.jobs.change(row, {**done, "recovers": None})
    assert graphs.close(context, graph) is None
    assert graphs.find(context, "g").state == "open"


def test_planned_retry_of_a_cancelled_graph(
    context: contexts.Context, graph: records.StoredGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    result: list[jobs.Job] = []

    def cancelled(*_: Any, **__: Any) -> None:
        result.extend(graphs.close(context, graph))

    monkeypatch.setattr(continuation, "_close", cancelled)
    message = "local-1 is not continued: its graph g was cancelled"
    assert recover_jobs.step(context)[1:] == [message]
    assert [job.row for job in result] == [1, 2] and rows_of(context, graph) == [[1], [2]]
    assert recover_jobs.step(context) == []


def test_cancelled_sweep_of_a_graph(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*rest: Any, **fields: Any) -> None:
        raise errors.SlurmError("gone")

    monkeypatch.setattr(submit_points, "submit_prepared", away)
    swept = FILES["train.toml"] + '[sweep]\nkind = "grid"\naxes.job.comment = ["a", "b"]\n'
    (context.folder / "prep.toml").write_text(swept)
    made, problems = graphs.submit_graph(
        context, context.folder / "g.toml", ("orchestrator",), lambda text: None
    )
    assert problems[0] == "prep: gone"
    with context.store.reading() as work:
        (node, train) = work.graphs.nodes(made.row)
        assert work.graphs.unfinished() == [made.row]
        depends = [dependency.Dependency(kind="afterany", on_sweep=node.sweep_row)]
        assert dependencies.status(work, depends).unsent
    queries.close(context, queries.find(context, f"@{node.sweep_row}"))
    with context.store.writing() as work:
        assert work.graphs.give_up(made.row, train.name, "for the test")
        assert work.graphs.unfinished() == []
        assert dependencies.status(work, depends).never == (
            "afterany: 2 points of sweep train were never submitted, and the sweep was cancelled",
        )
