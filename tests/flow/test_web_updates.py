"""Open pages are told when something changes that they show, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

GRAPH = """
[graph]
name = "nightly"
[graph.nodes.first]
spec = "job.toml"
"""


@pytest.fixture
def server(cli: command_line.CommandLine, tmp_path: Path) -> Iterator[web_server.Server]:
    with web_server.started(cli, "--socket", tmp_path / "run" / "web.sock") as started:
        yield started


def job(cli: command_line.CommandLine) -> Path:
    return cli.spec(web_server.JOB.format(name="demo"))


def add_schedule(cli: command_line.CommandLine) -> None:
    assert cli("schedule", "add", "nightly", job(cli), "--cron", "0 2 * * *").code == 0


def submit_graph(cli: command_line.CommandLine) -> None:
    job(cli)
    assert cli("graph", "submit", cli.spec(GRAPH, "graph.toml")).code == 0


def submit(cli: command_line.CommandLine) -> None:
    assert cli("submit", job(cli)).code == 0


def tick(cli: command_line.CommandLine) -> None:
    assert cli("tick").code == 0


@pytest.mark.parametrize(
    ("page", "subject", "change", "shown"),
    [
        ("/schedules", "schedules", add_schedule, ">nightly</a>"),
        ("/graphs", "graphs", submit_graph, ">nightly</a>"),
        ("/sweeps", "jobs", submit, ""),
        ("/nodes", "jobs", submit, ""),
        ("/controller", "controller", tick, "<code>tick</code>, process"),
    ],
)
def test_a_change_reaches_the_page(
    cli: command_line.CommandLine,
    server: web_server.Server,
    page: str,
    subject: str,
    change: object,
    shown: str,
) -> None:
    text = server.get(page).text
    assert f'data-events="/events?of={subject}"' in text and "data-part" in text
    assert not shown or shown not in text
    with server.events(f"/events?of={subject}") as events:
        events.next("hello")
        # The page may be older than the stream.
        events.next("changed")
        assert callable(change)
        change(cli)
        events.next("changed")
    assert shown in server.get(f"{page}?fragment=1").text


def test_pages_of_a_sweep_follow_metrics(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    assert cli("refresh").code == 0
    log = Path(cli("logs", "1", "--path").out.strip())
    number = fake_slurm.job(1)["job_id"]
    banner = (
        f"=== orchestrator demo job {number} task 0 attempt 0 on n1 at 2026-11-28T10:00:00Z ==="
    )
    assert 'data-events="/events?of=results"' in server.get("/compare?job=1").text
    with server.events("/events?of=results") as events:
        events.next("hello")
        events.next("changed")
        log.write_text(f"{banner}\nstep 1 loss 2.5\n")
        assert cli("metrics", "1").code == 0
        events.next("changed")


def test_events_of_nothing(server: web_server.Server) -> None:
    answer = server.get("/events?of=passwords")
    assert answer.status == 404
    assert "There are no events of &#39;passwords&#39;." in answer.text
