"""A host that sends what no agent of ours sends: a message, and nothing else happens."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.remote import messages
from tests import zygote
from tests.flow import command_line, hostile_agent
from tests.flow.remote_site import Peer, Site

ENDED = '{"type": "ended", "request": "REQUEST", "code": 0}\n'
DOCTOR = "`orchestrator doctor --host mill` looks for the reason."
SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nlauncher = "python"\ncommand = "true"\n'
DAMAGED = '{"host": 5, "pid": null}'
NO_MESSAGE = "Error: mill sent what is no message of orchestrator"


class Hostile:
    """A site whose host answers what it is told to answer."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.script = folder / "answers.json"
        agent = [sys.executable, "-S", hostile_agent.__file__, str(self.script)]
        site.configure(remote_command=agent, reconnect_seconds=0)

    def __call__(
        self,
        answers: Mapping[str, Sequence[str]],
        *words: str,
        greeting: Mapping[str, object] | None = None,
    ) -> command_line.Done:
        self.script.write_text(json.dumps({"answers": answers, "greeting": greeting or {}}))
        return self.site.laptop(*(words or ("--host", "mill", "status")))

    @property
    def received(self) -> list[dict[str, Any]]:
        log = self.script.with_name(f"{self.script.name}.log")
        return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def hostile(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Hostile]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as site:
        yield Hostile(site, tmp_path)


def spool(text: str, stream: int = 1) -> list[str]:
    """Return the messages of a command that printed a text and ended."""
    piece = json.dumps({"stream": stream, "bytes": len(text)}) + f"\n{text}"
    head = {"type": "output", "request": "REQUEST", "offset": 0, "bytes": len(piece)}
    return [json.dumps(head) + f"\n{piece}", ENDED]


def test_what_is_no_message_is_explained(hostile: Hostile) -> None:
    done = hostile({}, greeting={"host": "mill1\nError: run this"})
    assert done.err == (
        "Error: the agent on mill does not speak our protocol: the greeting's host is no name: "
        "'mill1\\nError: run this'\n"
    )
    done = hostile({"run": ['{"type": "ended", "request": "REQUEST", "code": 256}\n']})
    why = "(ended: code must be at most 255)"
    assert (done.code, done.err) == (255, f"{NO_MESSAGE} {why}: {DOCTOR} Call the command again.\n")
    done = hostile({"run": ["Welcome\n"]}, "--host", "mill", "cancel", "1")
    welcome = f"{NO_MESSAGE} (a line is not JSON: b'Welcome'): {DOCTOR}"
    after = " The next `orchestrator --host mill` says what became of the command.\n"
    assert (done.code, done.err) == (255, welcome + after)
    # The next call asks what became of it.
    assert hostile({"settle": ["Welcome\n"]}).err == f"{welcome}\n"
    standing = '{"type": "standing", "request": "REQUEST", "standing": "over"}\n'
    done = hostile({"settle": [standing]})
    assert done.err == f"{NO_MESSAGE} (standing: unknown standing 'over'): {DOCTOR}\n"
    # A host that does not answer this question still answers others.
    refused = '{"type": "refused", "request": "REQUEST", "reason": "no\\u0007"}\n'
    done = hostile({"settle": [refused], "run": [ENDED]})
    assert done.code == 0
    assert "mill refuses to say what became of `orchestrator cancel 1` of " in done.err
    assert ": no\\x07. To ask no more: rm " in done.err
    lost = '{"type": "standing", "request": "REQUEST", "standing": "lost", "jobs": ["@1", "-x"]}\n'
    done = hostile({"settle": [lost], "run": [ENDED]})
    assert "It submitted or changed @1. `orchestrator --host mill status @1` shows" in done.err
    assert not hostile.site.pending


def test_rows_of_a_host_that_cannot_be_read(hostile: Hostile) -> None:
    for items, why in (
        (5, "'int' object is not iterable"),
        ([1], "a row is not an object"),
        ([{"row": "1"}], "row is '1'"),
    ):
        answer = spool(json.dumps({"items": items}))
        done = hostile({"run": answer}, "status", "--all-hosts")
        assert (done.code, done.err) == (
            255,
            f"mill: not shown: its rows cannot be read ({why}): "
            "`orchestrator doctor --host mill` compares the versions\n",
        )


def test_only_the_code_of_the_snapshot_is_sent(hostile: Hostile) -> None:
    """The laptop's store also has the code of other projects."""
    (hostile.site.laptop.folder / "demo.toml").write_text('[job]\nname = "demo"\n')
    stolen = "\x11" * 20
    done_head = {"type": "done", "request": "REQUEST", "of": "tree", "bytes": len(stolen)}
    answers = {"tree": [json.dumps(done_head) + f"\n{stolen}"]}
    done = hostile(answers, "--host", "mill", "submit", "demo.toml")
    why = "(it asks for objects that are not in the snapshot)"
    assert done.err.startswith(f"{NO_MESSAGE} {why}: ")
    assert {message["type"] for message in hostile.received} == {"hello", "tree"}


def test_only_a_plain_path_is_forwarded(hostile: Hostile) -> None:
    """ssh would send the value of a variable of the laptop to the host."""
    text = "  ssh -N -L 8765:/run/${SECRET}/web.sock alice@mill\n"
    done = hostile({"run": spool(text)}, "--host", "mill", "web")
    assert (done.code, done.err) == (
        1,
        "Error: ssh cannot forward the socket /run/${SECRET}/web.sock of mill: its path may have "
        "only letters, digits and _./@+,=-; set XDG_RUNTIME_DIR there to another folder\n",
    )
    assert all("-N" not in call for call in hostile.site.calls)


def test_a_key_that_may_only_look_writes_nothing(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> None:
    (cli.home / "demo.toml").write_text(SPEC)
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as site:
        site.configure(remote_command=["orchestrator", "--read-only", "agent", "--stdio"])
        assert site("status").code == 0
        path = cli.home / "written.toml"
        reason = "this connection is read-only: no file of your choice is written"
        for words in (
            ["metrics", "1", "--output", path],
            ["checkout", "1", path],
            ["db", "backup", path],
            ["plan", "submit", "demo.toml", "--save-spec", path],
            ["submit", "demo.toml", "--no-snapshot", "--dry-run", "--save-spec", path],
        ):
            done = site(*words)
            assert (done.code, reason in done.err) == (2, True), (words, done.err)
        done = site("--state-dir", path, "status")
        assert (done.code, done.err.splitlines()[-1]) == (
            2,
            "Error: --runs-dir and --state-dir: this connection is read-only",
        )
        assert not path.exists()


def test_requests_that_are_damaged_or_that_others_can_change(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> None:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as site:
        peer = Peer(site)
        damaged, exposed, further = ("1" * 32, "2" * 32, "3" * 32)
        for request, content in ((damaged, DAMAGED), (exposed, "{}")):
            (cli.state_dir / "requests" / request).mkdir()
            (cli.state_dir / "requests" / request / "claim").write_text(content)
        (cli.state_dir / "requests" / exposed).chmod(0o777)
        peer.send(messages.of_request("settle", damaged))
        assert peer.next("standing").text("standing") == "lost"
        peer.send(messages.of_request("settle", exposed))
        reason = peer.next("refused").text("reason")
        assert f"{exposed} can be written by every user, so others could change" in reason
        # The connection still answers.
        peer.send(messages.of_request("settle", further))
        assert peer.next("standing").text("standing") == "never"
        # What ran long ago is not "never": its request was removed, its job was not.
        (cli.home / "demo.toml").write_text(SPEC)
        assert site("submit", "demo.toml", "--no-snapshot").code == 0
        (old,) = [path for path in site.requests if (path / "exit").exists()]
        shutil.rmtree(old)
        peer.send(messages.of_request("settle", old.name))
        answer = peer.next("standing")
        assert (answer.text("standing"), answer.keys["jobs"]) == ("lost", ["@1"])
        assert peer.close() == 0
