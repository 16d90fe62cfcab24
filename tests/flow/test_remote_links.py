"""Connections of `--host` that break: nothing runs twice, nothing is lost, and the user is told."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import zygote
from tests.flow import command_line
from tests.flow.remote_site import NAME, Site
from tests.flow.test_remote import SPEC

SUBMITTED = re.compile(r"Submitted batch job (\d+) \(@\d+, demo\)\n")
BROKEN = "The connection to mill broke. Connecting again ...\n"
#: What the laptop and the host say to each other during a submission, at most.
DIALOGUE_BYTES = {"to host": 700, "from host": 600}


@pytest.fixture
def site(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as made:
        (made.host.home / "demo.toml").write_text(SPEC)
        yield made


def without_date(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", text)


def submissions(site: Site) -> int:
    with contextlib.suppress(sqlite3.OperationalError):
        return len(site.host.rows("SELECT row FROM jobs"))
    # The first submission creates the tables.
    return 0


def test_a_submission_whose_answer_is_lost_is_answered_again(site: Site) -> None:
    # After the greeting, before the first byte of the output.
    site.cut("from host 160")
    done = site("submit", "demo.toml", "--no-snapshot")
    assert (done.code, done.out, done.err) == (0, "Submitted batch job 1 (@1, demo)\n", BROKEN)
    assert submissions(site) == 1
    assert site.pending == []


def test_the_next_call_says_what_a_submission_printed(site: Site) -> None:
    site.configure(reconnect_seconds=0)
    site.cut("from host 160")
    done = site("submit", "demo.toml", "--no-snapshot", "--parsable")
    assert (done.code, done.out, done.err) == (
        255,
        "",
        "Error: the connection to mill broke (the connection is not tried again). The next "
        "`orchestrator --host mill` says what became of the command.\n",
    )
    site.host.wait_until(lambda: submissions(site) == 1)
    (request,) = site.requests
    site.host.wait_until(lambda: (request / "exit").exists())
    done = site("status", "--format", "json")
    assert [item["name"] for item in done.items] == ["demo"]
    assert without_date(done.err) == (
        "`orchestrator submit demo.toml --no-snapshot --parsable` of DATE has run on mill (exit "
        "code 0):\n1\n"
    )
    assert site("status").err == ""
    assert submissions(site) == 1


def test_the_next_call_says_that_a_submission_never_ran(site: Site) -> None:
    site.configure(reconnect_seconds=0)
    site.cut("to host 100")
    assert site("submit", "demo.toml", "--no-snapshot").code == 255
    done = site("status")
    assert without_date(done.err) == (
        "`orchestrator submit demo.toml --no-snapshot` of DATE was never run on mill: the "
        "connection broke before.\n"
    )
    assert site("status").err == ""
    assert submissions(site) == 0


def test_a_client_that_was_killed(site: Site) -> None:
    site.host.environ["ORCHESTRATOR_SUBMIT_GRACE_SECONDS"] = "1"
    waiting = site.start("submit", "demo.toml", "--no-snapshot", "--wait")
    site.host.wait_until(lambda: submissions(site) == 1 and site.pending)
    os.killpg(waiting.pid, signal.SIGKILL)
    waiting.communicate()
    done = site("status")
    assert without_date(done.err) == (
        "`orchestrator submit demo.toml --no-snapshot --wait` of DATE is still running on mill.\n"
    )
    site.host("cancel", "1")
    (request, *_) = [path for path in site.requests if (path / "claim").exists()]
    site.host.wait_until(lambda: (request / "exit").exists())
    done = site("status")
    assert "has run on mill (exit code 1):\nSubmitted batch job 1 (@1, demo)\n" in done.err
    assert site.pending == []


def test_a_keeper_that_was_killed(site: Site) -> None:
    submitting = site.start("submit", "demo.toml", "--no-snapshot", "--wait")
    site.host.wait_until(lambda: submissions(site) == 1)
    (request,) = site.requests
    claim = (request / "claim").read_text()
    pid = int(re.search(r'"pid": (\d+)', claim)[1])  # type: ignore[index]
    os.kill(pid, signal.SIGKILL)
    done = command_line.finish(submitting)
    assert done.code == 1
    assert done.err.endswith(
        "Error: the command began on mill, but the process that ran it disappeared. It submitted "
        "or changed @1. `orchestrator --host mill status @1` shows what it has done.\n"
    )
    assert site.pending == []


def test_another_login_node_with_its_own_state_settles_nothing(site: Site) -> None:
    site.configure(reconnect_seconds=0)
    site.cut("from host 160")
    assert site("submit", "demo.toml", "--no-snapshot").code == 255
    site.host.wait_until(lambda: submissions(site) == 1)
    site.set_host(ORCHESTRATOR_STATE_DIR=str(site.host.home / "of-another-node"))
    done = site("status")
    assert "was sent to " in done.err and "has another state folder. Name " in done.err
    assert len(site.pending) == 1
    site.set_host()
    assert "has run on mill" in site("status").err
    assert submissions(site) == 1


def test_a_reading_command_continues_at_its_offset(site: Site) -> None:
    site("submit", "demo.toml", "--no-snapshot")
    log = Path(site.host("show", "1", "--json").items[0]["stdout_path"])
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    for number in (1_000, 50_000, 120_000):
        site.cut(f"from host {number}")
    done = site("logs", "1")
    assert (done.code, done.out) == (0, log.read_text())
    assert done.err == 3 * BROKEN


def test_following_a_log_over_broken_connections(site: Site) -> None:
    site("submit", "demo.toml", "--no-snapshot")
    log = Path(site.host("show", "1", "--json").items[0]["stdout_path"])
    log.write_text("begin\n")
    site.cut("from host 400", "from host 300")
    following = site.start("logs", "1", "--follow")
    assert following.stdout is not None
    expected = ["begin\n"]
    for number in range(12):
        with log.open("a") as file:
            file.write(f"line {number} {'.' * 50}\n")
        expected.append(f"line {number} {'.' * 50}\n")
    seen = [following.stdout.readline() for _ in expected]
    assert seen == expected
    site.host("cancel", "1")
    done = command_line.finish(following)
    assert (done.out, done.err) == ("", 2 * BROKEN)


def cuts_of(seed: int) -> list[str]:
    """Return where the connections of one submission break, until the last one holds."""
    dice = random.Random(seed)
    directions = [dice.choice(list(DIALOGUE_BYTES)) for _ in range(dice.randint(1, 3))]
    return [f"{each} {dice.randrange(DIALOGUE_BYTES[each])}" for each in directions]


def submit_over_broken_connections(site: Site, seed: int, reconnect_seconds: int) -> None:
    before = submissions(site)
    site.configure(reconnect_seconds=reconnect_seconds)
    site.cut(*cuts_of(seed))
    done = site("submit", "demo.toml", "--no-snapshot")
    site.forget_cuts()
    answers = SUBMITTED.findall(done.out)
    assert (done.code == 255) == ("Error" in done.err) == (done.code != 0), (seed, done)

    def is_settled() -> bool:
        later = site("status").err
        answers.extend(SUBMITTED.findall(later))
        assert answers or "never run" in later or "still running" in later or not later, later
        return not site.pending

    # Its answer may have come, but not its exit code, and it may be running at this moment.
    site.host.wait_until(is_settled)
    assert len(set(answers)) == submissions(site) - before, (seed, done, answers)
    if answers:
        assert site.host.rows("SELECT max(row) FROM jobs") == [(int(answers[0]),)]


@pytest.mark.parametrize("seed", range(6))
def test_a_submission_over_connections_that_break(site: Site, seed: int) -> None:
    submit_over_broken_connections(site, seed, 0)
    submit_over_broken_connections(site, seed + 1000, 30)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_submission_cut_at_200_bytes(site: Site, part: int) -> None:
    for seed in range(20 * part, 20 * part + 20):
        submit_over_broken_connections(site, 10_000 + seed, 0 if seed % 2 else 30)


def test_no_request_is_left_on_the_laptop(site: Site) -> None:
    site("submit", "demo.toml", "--no-snapshot")
    assert site.pending == []
    assert list((site.laptop.state_dir / "remote" / NAME).iterdir()) == []


@pytest.fixture
def connected(site: Site) -> Iterator[subprocess.Popen[str]]:
    """`orchestrator connect` on the laptop."""
    site.laptop.environ["XDG_RUNTIME_DIR"] = str(site.laptop.home)
    connecting = site.laptop.start("connect", NAME)
    assert connecting.stderr is not None
    line = connecting.stderr.readline()
    assert re.fullmatch(r"Connected to \S+; Ctrl-C ends the connection.\n", line), line
    yield connecting
    if connecting.poll() is None:
        os.killpg(connecting.pid, signal.SIGKILL)
    connecting.communicate()


def test_calls_share_the_connection_of_connect(
    site: Site, connected: subprocess.Popen[str]
) -> None:
    assert site("submit", "demo.toml", "--no-snapshot").out == "Submitted batch job 1 (@1, demo)\n"
    log = Path(site.host("show", "1", "--json").items[0]["stdout_path"])
    log.write_text("begin\n")
    following = site.start("logs", "1", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == "begin\n"
    # Meanwhile, also large output that is read slowly.
    log.write_text("begin\n" + "x" * 20_000_000 + "\n")
    slow = site.start("logs", "1", "--lines", "1")
    assert slow.stdout is not None
    assert slow.stdout.read(10) == "x" * 10
    assert [item["name"] for item in site("status", "--json").items] == ["demo"]
    assert len(slow.stdout.read()) == 20_000_000 - 10 + 1
    assert command_line.finish(slow).code == 0
    site.host("cancel", "1")
    assert command_line.finish(following).code == 0
    assert len(site.calls) == 1
    done = site.laptop("connect", NAME)
    assert (done.code, done.err.partition(" on ")[0]) == (
        6,
        "Error: another `orchestrator connect` already listens",
    )
    os.kill(connected.pid, signal.SIGINT)
    done = command_line.finish(connected)
    assert (done.code, done.err) == (0, "Connection closed.\n")
    # Without it, each call has its own.
    assert site("status").code == 0
    assert len(site.calls) == 2


def test_the_socket_of_a_connect_that_was_killed(
    site: Site, connected: subprocess.Popen[str]
) -> None:
    os.killpg(connected.pid, signal.SIGKILL)
    connected.wait()
    assert list(site.laptop.home.glob("orchestrator/*.sock"))
    assert site("status").code == 0
    assert len(site.calls) == 2
