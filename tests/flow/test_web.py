"""`orchestrator web`: who reaches it, what its pages show, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import stat
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

SPEC = """
[job]
name = "{name}"
time_limit = "10"
labels = ["team=vision", "note=<script>alert(1)</script>"]
[launch]
command = '''{command}'''
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
BANNER = "=== orchestrator demo job 1 task 0 attempt 0 on n1 at 2026-11-28T10:00:00Z ===\n"
HOSTILE = "<script>alert(1)</script>"


def submit(cli: command_line.CommandLine, name: str = "demo", command: str = "true") -> str:
    done = cli("submit", cli.spec(SPEC.format(name=name, command=command)), "--json")
    assert done.code == 0, done.err
    return done.items[0]["job_id"]


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "web.sock"


@pytest.fixture
def server(cli: command_line.CommandLine, socket_path: Path) -> Iterator[web_server.Server]:
    with web_server.started(cli, "--socket", socket_path) as started:
        yield started


def test_socket_and_the_command_that_forwards_it(
    server: web_server.Server, socket_path: Path
) -> None:
    assert server.printed == (
        "On your computer, forward the socket:\n"
        f"  ssh -N -L 8765:{socket_path} {_user()}@{socket.gethostname()}\n"
        "and open http://localhost:8765/\n"
    )
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
    answer = server.get("/")
    assert answer.status == 200
    assert "No jobs yet. Submit one: <code>orchestrator submit train.py</code>" in answer.text
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "style=" not in answer.text and "<script>" not in answer.text


def _user() -> str:
    return "alice"


@pytest.mark.parametrize(
    ("method", "headers", "status", "message"),
    [
        ("GET", {"Host": "evil.example"}, 421, "Open this server as localhost or 127.0.0.1."),
        ("GET", {"Host": "localhost.evil.example"}, 421, "Open this server as localhost"),
        ("GET", {"Host": "localhost:8765"}, 200, ""),
        ("GET", {"Host": "[::1]:99"}, 200, ""),
        ("PUT", {}, 405, "PUT is not supported."),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403, "Another page sent this request."),
        (
            "GET",
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "iframe",
            },
            403,
            "Another page sent this request.",
        ),
        (
            "GET",
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "document",
            },
            200,
            "",
        ),
        ("POST", {}, 403, "Another page sent this form."),
        ("POST", {"Origin": "http://evil.example"}, 403, "Another page sent this form."),
        # Another port of localhost may belong to someone else.
        ("POST", {"Origin": "http://localhost:1"}, 403, "Another page sent this form."),
    ],
)
def test_requests_of_foreign_pages_are_refused(
    server: web_server.Server, method: str, headers: dict[str, str], status: int, message: str
) -> None:
    answer = server.request(method, "/", {"Content-Length": "0", **headers})
    assert answer.status == status
    assert message in answer.text
    assert answer.headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static/x/..%2f..%2fjobs.html.j2",
        "/jobs/../etc/passwd",
        "/jobs/999999999999999999999/log",
        "/jobs/7/log?line=1",
    ],
)
def test_paths_that_lead_nowhere(server: web_server.Server, path: str) -> None:
    answer = server.get(path)
    assert answer.status == 404
    assert "root:" not in answer.text


def test_link_works_once(cli: command_line.CommandLine) -> None:
    with web_server.started(cli, "--port", "0") as server:
        assert server.get("/").status == 401
        assert server.get("/", Cookie=f"orchestrator-{server.port}=x").status == 401
        first = server.get(f"/?token={server.token}")
        assert (first.status, first.headers["Location"]) == (303, "./")
        cookie = first.headers["Set-Cookie"]
        assert cookie.startswith(f"orchestrator-{server.port}=")
        assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
        assert server.get("/", Cookie=cookie.partition(";")[0]).status == 200
        again = server.get(f"/?token={server.token}")
        assert (again.status, again.text) == (
            401,
            "This link was used, or is of an earlier server. Open the newest link that "
            "`orchestrator web` printed.\n",
        )
        assert server.line(server.process.stdout) == "The link was used. For another browser:\n"
        new = server.line(server.process.stdout)
        assert server.token not in new
        assert server.get(f"/?token={new.strip().partition('=')[2]}").status == 303


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_are_refused_before_http(cli: command_line.CommandLine) -> None:
    with web_server.started(cli, "--port", "0") as server:
        child = os.fork()
        if not child:
            # In the child: nothing of pytest may run.
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                # Not create_connection, which imports a module that this user may not read.
                with socket.socket() as mine:
                    mine.settimeout(30)
                    mine.connect(("127.0.0.1", server.port))
                    mine.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    code = 0 if mine.recv(100) == b"" else 2
            except ConnectionError:
                # The server may close it at any time, even before all is sent.
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.get("/").status == 401


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_with_open_streams(
    cli: command_line.CommandLine, socket_path: Path, number: signal.Signals
) -> None:
    with web_server.started(cli, "--socket", socket_path) as server:
        with server.events("/events") as events:
            events.next("hello")
            begun = time.monotonic()
            assert server.stop(number) == (0, "")
            assert time.monotonic() - begun < 20
        assert not socket_path.exists()


def test_second_server_and_a_killed_one(
    cli: command_line.CommandLine, server: web_server.Server, socket_path: Path
) -> None:
    second = cli("web", "--socket", socket_path)
    assert (second.code, second.err) == (
        6,
        f"Error: Another server uses {socket_path} (process {server.process.pid}). Open that one, "
        "or choose another socket: --socket PATH\n",
    )
    server.process.kill()
    server.process.wait()
    assert socket_path.exists()
    with web_server.started(cli, "--socket", socket_path) as third:
        assert third.get("/").status == 200


def test_socket_is_created_again(server: web_server.Server, socket_path: Path) -> None:
    # As logind does at the last logout.
    for path in socket_path.parent.iterdir():
        path.unlink()
    socket_path.parent.rmdir()
    assert server.line(server.process.stderr) == (
        f"The socket {socket_path} was removed; it was created again.\n"
    )
    assert server.get("/").status == 200
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600


def test_sockets_and_ports_that_cannot_be_used(
    cli: command_line.CommandLine, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    done = cli("web", "--socket", long)
    assert (done.code, done.err) == (
        1,
        f"Error: The path {long} is too long for a socket (at most 107 bytes). Choose another: "
        "--socket PATH\n",
    )
    plain = tmp_path / "plain"
    plain.write_text("mine")
    done = cli("web", "--socket", plain)
    assert (done.code, plain.read_text()) == (1, "mine")
    assert done.err == (
        f"Error: The socket {plain} cannot be created (a file that is not a socket has its name). "
        "Choose another: --socket PATH\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("web", "--port", str(port))
    assert (done.code, done.err) == (
        6,
        f"Error: Port {port} is in use by another program. Choose another, or a free one: "
        "--port 0\n",
    )


def test_jobs_are_folded_filtered_and_sorted(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "alpha")
    submit(cli, "beta")
    array = cli.spec(SPEC.format(name="many", command="true") + "[array]\nsize = 3\n")
    assert cli("submit", array).code == 0
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    assert cli("refresh").code == 0
    page = server.get("/").text
    assert _cells(page, "c-job") == ["3_[0-2]", "2", "1"]
    assert "note=&lt;script&gt;alert(1)&lt;/script&gt;" in page and "<script>alert" not in page
    assert '<a class="count" href="/?q=3&amp;fold=0" title="Show each task">3 tasks</a>' in page
    assert _cells(server.get("/?q=3&fold=0").text, "c-job") == ["3_2", "3_1", "3_0"]
    assert _cells(server.get("/?order=name&dir=asc").text, "c-name") == ["alpha", "beta", "many"]
    assert _cells(server.get("/?state=failed").text, "c-job") == ["1"]
    assert _cells(server.get("/?state=waiting&q=MAN").text, "c-job") == ["3_[0-2]"]
    assert _cells(server.get("/?label=team%3Dvision&q=alpha").text, "c-job") == ["1"]
    assert "No job matches." in server.get("/?q=nothing").text
    for strange in ("?page=-1", "?page=9e9", "?age=x&order=y&state=z&dir=%00", "?q=%25%5C_'%22"):
        assert server.get(f"/{strange}").status == 200


def _cells(page: str, name: str) -> list[str]:
    cells = re.findall(rf'<td class="{name}"><a href="[^"]*">(.*?)</a>', page)
    return [re.sub(r"<.*?>", "", cell) for cell in cells]


def test_state_metrics_and_log_lines_arrive(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    assert cli("refresh").code == 0
    log = Path(cli("logs", "1", "--path").out.strip())
    log.write_text(f"{BANNER}{HOSTILE}\nstep 1 loss 2.5\n")
    page = server.get("/jobs/1").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    position = re.search(r'data-position="(.*?)"', page)
    assert position is not None
    with server.events(f"/jobs/1/events?log&from={position[1]}") as events:
        events.next("hello")
        with log.open("a") as out:
            out.write("step 2 loss 1.5\n 10 %\r\x1b[31mdone\x1b[0m\nhalf")
        event = events.next("log")
        assert json.loads(event.data) == {
            "first_line": None,
            "lines": ["step 2 loss 1.5", "done"],
            "partial": "half",
        }
        # There may be an event for each step, or one for both.
        while _losses(server) != [2.5, 1.5]:
            events.next("metrics")
        fake_slurm.set_state(1, "FAILED", exit="3:0")
        events.next("state", lambda event: json.loads(event.data) == {"state": "FAILED"})
    # What was written while the connection was broken.
    with log.open("a") as out:
        out.write(" and half\nlast\n")
    headers = {"Last-Event-ID": event.id}
    with server.events(f"/jobs/1/events?log&from={position[1]}", **headers) as events:
        assert json.loads(events.next("log").data)["lines"] == ["half and half", "last"]
    # A log that begins anew.
    log.write_text("new\n")
    with server.events("/jobs/1/events?log", **headers) as events:
        assert json.loads(events.next("log-reset").data) == {
            "first_line": 1,
            "lines": ["new"],
            "partial": "",
        }


def _losses(server: web_server.Server) -> list[float]:
    curves = json.loads(server.get("/curves.json?job=1&name=loss").text)
    return [
        value for figure in curves["figures"] for line in figure["lines"] for value in line["y"]
    ]


def test_a_rank_that_is_alone_is_not_named(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    record = {"name": "loss", "value": 2.5, "unit": "", "step": 1}
    for ranks in (1, 2):
        job_id = submit(cli)
        fake_slurm.set_state(job_id, "RUNNING")
        (folder,) = (each for each in cli.run_folders() if not (each / "metrics.jsonl").exists())
        lines = (json.dumps({**record, "rank": rank, "world_size": ranks}) for rank in range(ranks))
        (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        assert cli("metrics", job_id).code == 0
    curves = json.loads(server.get("/curves.json?job=1&job=2").text)
    labels = [line["label"] for figure in curves["figures"] for line in figure["lines"]]
    assert labels == ["1 demo", "2 demo rank 0", "2 demo rank 1"]


def test_log_of_one_long_line_and_a_search(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "COMPLETED")
    assert cli("refresh").code == 0
    log = Path(cli("logs", "1", "--path").out.strip())
    lines = [f"line {number}" for number in range(1, 1001)]
    log.write_bytes("\n".join(lines).encode() + b"\n" + b"x" * 100_000_000 + b"\nend\n")
    around = server.get("/jobs/1/log?line=500").text
    assert '<li id="L500" class="hit"><span class="n">500</span>line 500</li>' in around
    assert len(server.get("/jobs/1/log?line=1001").text) < 400_000
    assert '<span class="n">1002</span>end</li>' in server.get("/jobs/1/log").text
    found = server.get("/jobs/1/log?find=line+77%24").text
    assert '<a class="n" href="/jobs/1/log?line=77#L77">77</a>line 77</li>' in found
    assert "is not a regular expression" in server.get("/jobs/1/log?find=(").text


def test_viewers_ask_slurm_no_more_than_the_refresh(
    cli: command_line.CommandLine, socket_path: Path, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    cli.environ["ORCHESTRATOR_POLL_FLOOR_SECONDS"] = "600"
    assert cli("refresh").code == 0
    with web_server.started(cli, "--socket", socket_path) as server:
        calls = len(fake_slurm.calls())
        for _ in range(5):
            assert server.get("/").status == 200
            assert "Why it is pending" in server.get("/jobs/1").text
        with server.events("/jobs/1/events") as events:
            events.next("state")
        assert len(fake_slurm.calls()) == calls


def test_database_that_cannot_be_read(cli: command_line.CommandLine, socket_path: Path) -> None:
    cli.database.parent.mkdir(parents=True, mode=0o700)
    cli.database.write_bytes(b"not a database" * 1000)
    with web_server.started(cli, "--socket", socket_path) as server:
        answer = server.get("/jobs/1")
        assert answer.status == 503
        assert "This page cannot be shown now" in answer.text
        assert "is damaged" in answer.text


def test_pages_of_sweeps_comparisons_schedules_nodes_and_the_controller(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    assert "No sweeps yet." in server.get("/sweeps").text
    assert "No schedules yet." in server.get("/schedules").text
    assert "No attempt has ended in this time." in server.get("/nodes").text
    assert "No controller has run here." in server.get("/controller").text
    (cli.folder / "train.py").touch()
    spec = cli.spec(web_server.SWEEP.format(values=[0.1, 0.2]))
    assert cli("sweep", "submit", spec).code == 0
    job = cli.spec(SPEC.format(name="nightly", command="true"), "nightly.toml")
    assert cli("schedule", "add", "nightly", job, "--cron", "0 2 * * *").code == 0
    for task, state in (("1_0", "RUNNING"), ("1_1", "FAILED")):
        fake_slurm.set_state(task, state)
    assert cli("refresh").code == 0
    log = Path(cli("logs", "1_0", "--path").out.strip())
    banner = BANNER.replace("demo job 1", f"grid job {fake_slurm.job('1_0')['job_id']}")
    log.write_text(f"{banner}step 1 loss 2.5\nstep 2 loss 1.25\n")
    fake_slurm.set_state("1_0", "COMPLETED")
    assert cli("refresh").code == 0
    assert cli("tick").code == 0
    assert '<a href="/sweeps/1">grid</a>' in server.get("/sweeps").text
    sweep = server.get("/sweeps/1").text
    assert "<b>1</b> completed" in sweep and "<b>1</b> failed" in sweep
    assert re.findall(r'<td class="mono">(0\.\d|[\d.]+)</td>', sweep)[:2] == ["0.1", "1.25"]
    assert server.get("/sweeps/1?sort=lr&reverse=1").status == 200
    assert "there is no column" in server.get("/sweeps/1?sort=nothing").text
    assert "nothing" in server.get("/sweeps/1?metric=nothing").text
    assert server.get("/sweeps/2").status == 404
    compared = server.get("/compare?job=1&job=2").text
    assert '<td class="mono">lr=0.1</td>' in compared and '<td class="mono">lr=0.2</td>' in compared
    assert '<td class="number">1.25 <span class="soft">lowest 1.25</span></td>' in compared
    assert server.get("/compare?job=1&job=x&job=77").status == 404
    table = server.get("/curves?job=1&name=loss").text
    assert '<td class="number">2</td><td class="number">1.25</td>' in table
    schedules = server.get("/schedules").text
    assert ">nightly</a>" in schedules
    assert server.get("/schedules/1").text.count("T02:00:00Z") == 5
    nodes = server.get("/nodes?age=1d").text
    assert '<td class="mono"><a href="/?q=n1&amp;age=all&amp;fold=0">n1</a></td>' in nodes
    assert "<code>tick</code>, process" in server.get("/controller").text


def test_pages_of_graphs(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, server: web_server.Server
) -> None:
    assert "No graphs yet." in server.get("/graphs").text
    cli.spec(SPEC.format(name="demo", command="true"), "demo.toml")
    graph = cli.spec(
        '[graph]\nname = "nightly"\n[graph.nodes.first]\nspec = "demo.toml"\n'
        '[graph.nodes.second]\nspec = "demo.toml"\nafter_ok = ["first"]\n',
        "graph.toml",
    )
    assert cli("graph", "submit", graph).code == 0
    assert '<a href="/graphs/1">nightly</a>' in server.get("/graphs").text
    page = server.get("/graphs/1").text
    assert '<td class="mono"><a href="/jobs/1">1</a></td>' in page
    assert "<td>afterok:first</td>" in page
    assert 'class="edge afterok"' in page
    assert "<span>open</span>" in page
    for job_id in (1, 2):
        fake_slurm.set_state(job_id, "COMPLETED")
    assert cli("refresh").code == 0
    assert "<span>ended</span>" in server.get("/graphs/1").text
    assert server.get("/graphs/2").status == 404


def test_slurm_that_does_not_respond(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    assert cli("refresh").code == 0
    message = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    fake_slurm.fail("squeue", stderr=message, times=1000)
    with server.events("/events") as events:
        while "Unable to contact slurm controller" not in (page := server.get("/").text):
            events.next("changed")
    assert ">RUNNING</span> <span" in page and ">stale</span>" in page
    assert "not confirmed by Slurm since" in server.get("/jobs/1").text


def test_damaged_row(cli: command_line.CommandLine, server: web_server.Server) -> None:
    submit(cli)
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        connection.execute("UPDATE submissions SET provenance = '{' WHERE id = 1")
    answer = server.get("/jobs/1")
    assert answer.status == 503
    assert "is damaged" in answer.text and "Traceback" not in answer.text
    assert server.get("/").status == 200
