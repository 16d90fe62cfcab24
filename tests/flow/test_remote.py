"""`orchestrator --host NAME`: the same output, exit codes and messages as on the host itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.remote import messages
from orchestrator.remote.framing import Message
from tests import zygote
from tests.flow import command_line
from tests.flow.remote_site import NAME, Peer, Site, run, text_of

AGENT = "sh -c 'PATH=$PATH:$HOME/.local/bin; exec orchestrator agent --stdio'"
FIRST, SECOND = "1" * 32, "2" * 32
SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nlauncher = "python"\ncommand = "true"\n'


@pytest.fixture
def site(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as made:
        yield made


def test_output_and_exit_codes_are_those_of_the_host(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    done = site("submit", "demo.toml", "--no-snapshot")
    assert (done.code, done.out, done.err) == (0, "Submitted batch job 1 (@1, demo)\n", "")
    for words in (["status"], ["status", "--json"], ["show", "77"], ["logs", "--zzz"], ["sumbit"]):
        here, there = site.host(*words), site(*words)
        # The time that has passed since the submission.
        assert (there.code, there.err) == (here.code, here.err), words
        assert re.sub(r"\d+", "0", there.out) == re.sub(r"\d+", "0", here.out), words


def test_nothing_of_the_command_is_on_the_command_line_of_ssh(site: Site) -> None:
    site.configure(address="alice@mill1", ssh_options=["-o", "ConnectTimeout=5"])
    assert site("show", "a b").code == 4
    assert site.calls == [["-T", "-o", "ConnectTimeout=5", "--", "alice@mill1", AGENT]]


def test_orchestrator_in_the_users_own_bin_folder_is_found(site: Site) -> None:
    site.set_host(PATH=os.environ["PATH"])
    (site.host.home / ".local" / "bin").mkdir(parents=True)
    program = Path(site.path.partition(":")[0], "orchestrator")
    program.rename(site.host.home / ".local" / "bin" / "orchestrator")
    assert site("status").code == 0


def test_options_of_all_commands_go_to_the_host(site: Site) -> None:
    other = site.host.home / "other"
    site.configure(profile="small")
    config = site.host.home / ".config/orchestrator/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[profiles.small]\n[profiles.large]\n")
    done = site("config", "show", "--format", "json")
    assert {item["key"]: item["value"] for item in done.items}["profile"] == "small"
    done = site.laptop(
        *("--state-dir", other, "--profile", "large", "--host", NAME, "config", "show", "--json")
    )
    values = {item["key"]: item["value"] for item in done.items}
    assert (values["state_dir"], values["profile"]) == (str(other), "large")


def test_read_only_holds_on_the_host(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    refused = re.compile(r"Error: `orchestrator submit` would change something, and --read-only ")
    done = site.laptop("--read-only", "--host", NAME, "submit", "demo.toml", "--no-snapshot")
    assert done.code == 6 and refused.match(done.err)
    done = site("submit", "demo.toml", ORCHESTRATOR_READ_ONLY="1")
    assert done.code == 6 and refused.match(done.err)
    site.configure(remote_command=["orchestrator", "--read-only", "agent", "--stdio"])
    done = site("submit", "demo.toml", "--no-snapshot")
    assert done.code == 6 and refused.match(done.err)
    assert site("status").code == 0


def test_without_a_command(site: Site) -> None:
    done = site()
    assert (done.code, done.err.splitlines()[-1]) == (2, "Error: Missing command.")


def test_the_host_need_not_be_in_the_configuration(site: Site) -> None:
    assert site.laptop("--host", "bob@other", "status").code == 0
    assert site.calls[0][-2:] == ["bob@other", AGENT]
    done = site.laptop("--host", "-oProxyCommand=x", "status")
    assert (done.code, done.err) == (
        1,
        "Error: --host -oProxyCommand=x: must be a host or a name of [hosts.NAME]\n",
    )


def test_commands_run_in_the_folder_of_the_host(site: Site) -> None:
    (site.host.folder / "demo.toml").write_text(SPEC)
    site.configure(folder=str(site.host.folder))
    assert (
        site("render", "demo.toml", "--no-snapshot").out
        == site.host("render", "demo.toml", "--no-snapshot").out
    )
    site.configure(folder="~/gone")
    done = site("status")
    assert (done.code, done.err) == (
        1,
        "Error: ~/gone: No such file or directory. Set `folder` in [hosts].\n",
    )


@pytest.mark.parametrize("words", [["status"], ["metrics", "--help"]])
def test_a_terminal_shows_what_it_shows_on_the_host(site: Site, words: list[str]) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    assert site("submit", "demo.toml", "--no-snapshot").code == 0
    here = site.host.on_terminal(*words, COLUMNS="60", LINES="20")
    there = site.laptop.on_terminal("--host", NAME, *words, COLUMNS="60", LINES="20")
    # The terminal of the test ends lines with \r\n, as both have one.
    assert re.sub(rb"\d", b"0", there[1]) == re.sub(rb"\d", b"0", here[1])
    assert there[0] == here[0] == 0


def test_start_up_files_may_print(site: Site) -> None:
    site.set_host(noise="echo Welcome; printf 'no line end'; ")
    done = site("status", "--json")
    assert (done.code, done.items, done.err) == (0, [], "")


OWN = 'set remote_command = ["/path/of/orchestrator", "agent", "--stdio"] in [hosts.mill]'
SETUP = "`orchestrator setup --host mill`"


@pytest.mark.parametrize(
    ("instead", "error"),
    [
        (
            ("", 255),
            "ssh cannot connect to mill, see its message above: `ssh mill` has to work first",
        ),
        (
            ("Welcome\n", 127),
            "orchestrator is not installed on mill, or neither in ~/.local/bin nor on PATH of a "
            f"command that ssh runs: {SETUP} installs it; if it is elsewhere, {OWN}\n"
            "mill printed:\n    Welcome",
        ),
        (
            ("", 126),
            f"orchestrator on mill cannot be executed: {SETUP} installs it anew, or {OWN}",
        ),
        (
            ("", 2),
            f"orchestrator on mill is too old to have the command `agent`: {SETUP} upgrades it",
        ),
        (
            ("", 1),
            "orchestrator on mill ended with exit code 1 before it answered, see its messages "
            "above: `orchestrator doctor --host mill` looks for the reason",
        ),
        (
            ('\norchestrator-agent: {"protocols": [7, 8], "version": "9.0", "host": "m", "store": '
             '""}\n', 0),
            "orchestrator 0.1.0 here is too old for orchestrator 9.0 on mill: upgrade it here",
        ),
        (
            ('orchestrator-agent: {"protocols": 7}\n', 0),
            "the agent on mill does not speak our protocol: the greeting has no protocols",
        ),
    ],
)  # fmt: skip
def test_a_host_without_an_agent(site: Site, instead: tuple[str, int], error: str) -> None:
    site.set_host(instead=instead)
    done = site("status")
    assert (done.code, done.out, done.err) == (255, "", f"Error: {error}\n")


def test_a_host_that_prints_without_end(site: Site) -> None:
    site.set_host(noise="yes & ")
    done = site("status")
    assert done.code == 255
    assert done.err.startswith("Error: mill printed more than 1")
    assert "KiB, but no agent answered: a start-up file of the shell there prints too" in done.err


def test_without_ssh(site: Site) -> None:
    done = site("status", PATH="/nonexistent")
    assert (done.code, done.err) == (
        255,
        "Error: ssh could not be started: No such file or directory. --host needs the OpenSSH "
        "client\n",
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("top", "top needs the terminal: ssh -t mill orchestrator top"),
        (
            "completion",
            "completion completes the commands of this computer: call it without --host",
        ),
    ],
)
def test_commands_that_cannot_run_there(site: Site, command: str, reason: str) -> None:
    done = site(command)
    assert done.code == 2
    assert done.err.endswith(f"Error: --host: {reason}\n")


def test_an_old_agent_and_this_client(site: Site, checkout: Path) -> None:
    """An agent of protocol 1 as it was recorded, which knows nothing of later ones."""
    recorded = checkout / "tests/data/remote/agent-1.py"
    site.configure(remote_command=["python3", str(recorded)])
    done = site("status", "--all")
    assert (done.code, done.out, done.err) == (3, "old: status --all\n", "to stderr\n")


def test_an_old_client_and_this_agent(site: Site, checkout: Path) -> None:
    """The bytes of a client of protocol 1, recorded."""
    peer = Peer(site)
    assert peer.greeting.keys["protocols"][0] == 1
    peer.send_bytes((checkout / "tests/data/remote/client-1.txt").read_bytes())
    assert text_of(peer.next("output").payload) == {
        2: b"Error: job '77' not found: `orchestrator status --all` lists all jobs\n"
    }
    assert peer.next("ended").keys["code"] == 4
    assert peer.close() == 0


def test_a_request_is_run_once_and_answered_twice(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    outputs = []
    for _ in range(2):
        peer = Peer(site)
        peer.send(run(FIRST, "submit", "demo.toml", "--no-snapshot", changes=True))
        outputs.append(text_of(peer.next("output").payload)[1])
        assert peer.next("ended").keys["code"] == 0
        peer.close()
    assert outputs == [b"Submitted batch job 1 (@1, demo)\n"] * 2
    assert site.host.rows("SELECT row FROM jobs") == [(1,)]


def test_a_settled_request_can_never_run(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    peer = Peer(site)
    peer.send(messages.of_request("settle", FIRST))
    assert peer.next("standing").keys["standing"] == "never"
    # It was on its way all the time.
    peer.send(run(FIRST, "submit", "demo.toml", "--no-snapshot", changes=True))
    assert peer.next("standing").keys["standing"] == "never"
    peer.close()
    assert site.host.rows() == []


def test_several_requests_at_a_time(site: Site) -> None:
    peer = Peer(site)
    peer.send(run(FIRST, "status"), run(SECOND, "show", "77"))
    ended = [peer.next("ended") for _ in range(2)]
    assert {message.keys["request"]: message.keys["code"] for message in ended} == {
        FIRST: 0,
        SECOND: 4,
    }
    peer.send(messages.of_request("done", FIRST), Message({"type": "news"}))
    assert peer.next("refused").keys["reason"] == "unknown message 'news'"
    peer.close()
    # Of a command that changed nothing there is nothing left.
    assert [path.name for path in site.requests] == [SECOND]


def test_what_is_no_message_ends_the_agent(site: Site) -> None:
    peer = Peer(site)
    peer.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert peer.next("refused").keys["reason"] == "a line is not JSON: b'GET / HTTP/1.1\\r'"
    assert peer.close() == 0


def test_a_command_that_only_reads_ends_without_its_client(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    site("submit", "demo.toml", "--no-snapshot")
    peer = Peer(site)
    peer.send(run(FIRST, "wait", "1", grace_seconds=1))
    site.host.wait_until(lambda: (site.host.state_dir / f"requests/{FIRST}/claim").exists())
    peer.close()
    site.host.wait_until(lambda: (site.host.state_dir / f"requests/{FIRST}/exit").exists())
    peer = Peer(site)
    peer.send(run(FIRST, "wait", "1"))
    assert peer.next("ended").keys["code"] == 130
    peer.close()


def test_ctrl_c_interrupts_the_command_there(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    site("submit", "demo.toml", "--no-snapshot")
    waiting = site.start("wait", "1")
    site.host.wait_until(lambda: any(path.joinpath("claim").exists() for path in site.requests[1:]))
    os.kill(waiting.pid, signal.SIGINT)
    assert command_line.finish(waiting).code == 130


def test_large_output_arrives_whole_and_is_not_kept(site: Site, tmp_path: Path) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    site("submit", "demo.toml", "--no-snapshot")
    log = Path(site.host("show", "1", "--json").items[0]["stdout_path"])
    line = b"x" * 1023 + b"\n"
    with log.open("wb") as file:
        for _ in range(100):
            file.write(line * 1024)
    shown = tmp_path / "shown"
    with shown.open("wb") as file:
        done = site.laptop.start("--host", NAME, "logs", "1", prefix=["env"])
        assert done.stdout is not None
        while data := done.stdout.buffer.read(1024 * 1024):
            file.write(data)
        assert done.wait(60) == 0
    done.stdout.close()
    assert done.stderr is not None
    done.stderr.close()
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (log, shown)]
    assert digests[0] == digests[1]
    assert len(site.requests) == 1


def test_a_closed_output_ends_the_command(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    site("submit", "demo.toml", "--no-snapshot")
    log = Path(site.host("show", "1", "--json").items[0]["stdout_path"])
    log.write_bytes(b"line\n" * 10_000_000)
    reading = site.start("logs", "1")
    assert reading.stdout is not None and reading.stderr is not None
    reading.stdout.buffer.read(1000)
    reading.stdout.close()
    assert reading.wait(60) == 141
    assert reading.stderr.read() == ""
    reading.stderr.close()
    (request,) = site.requests[1:]
    site.host.wait_until(lambda: not request.exists() or (request / "exit").exists())


def test_the_web_pages_are_forwarded(site: Site) -> None:
    (site.host.home / "demo.toml").write_text(SPEC)
    site("submit", "demo.toml", "--no-snapshot")
    runtime = site.host.home / "run"
    runtime.mkdir(mode=0o700)
    site.set_host(XDG_RUNTIME_DIR=str(runtime))
    serving = site.start("web")
    assert serving.stderr is not None
    line = command_line.read_to(serving.stderr, "Open http://localhost:")
    port = re.findall(r"localhost:(\d+)/ \(Ctrl-C ends the server\)", line)[0]

    def shown() -> bool:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/", timeout=30) as page:
                return b"demo" in page.read()
        except OSError:
            # The second ssh is about to listen.
            return False

    site.host.wait_until(shown)
    os.kill(serving.pid, signal.SIGINT)
    assert command_line.finish(serving).code in (0, 130)
    assert not list(runtime.rglob("*.sock"))
    assert "-N" in site.calls[-1]
    done = site("web", "--port", "80")
    assert done.code == 2
    assert done.err.endswith("--port: the pages are forwarded to this computer: leave it out\n")
