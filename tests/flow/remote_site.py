"""A laptop and a host, connected by a program in place of ssh."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.local import processes
from orchestrator.remote import framing, messages
from orchestrator.remote.framing import Message
from tests import zygote
from tests.flow import command_line, stand_in_ssh
from tests.flow.command_line import CHECKOUT, CommandLine

NAME = "mill"


class Site:
    """`laptop` calls commands with --host, `host` calls them on the host itself."""

    def __init__(
        self, folder: Path, host: CommandLine, pycache: Path, forking: zygote.Zygote
    ) -> None:
        self.host = host
        self.link = folder / "link"
        (self.link / "cuts").mkdir(parents=True)
        self._cuts = 0
        programs = folder / "host-bin"
        programs.mkdir()
        python = shlex.quote(sys.executable)
        write_program(programs / "orchestrator", f'exec {python} -m orchestrator "$@"')
        self.path = f"{programs}:{host.environ['PATH']}"
        self.set_host()
        laptop = folder / "laptop"
        (laptop / "bin").mkdir(parents=True)
        words = shlex.join([sys.executable, "-S", stand_in_ssh.__file__, str(self.link)])
        write_program(laptop / "bin" / "ssh", f'exec {words} "$@"')
        environ = {"PATH": f"{laptop / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        self.laptop = CommandLine(laptop, environ, pycache, None, forking)
        self.configure(reconnect_seconds=30)

    def set_host(
        self, *, noise: str = "", instead: tuple[str, int] | None = None, **environ: str
    ) -> None:
        """Decide what the login shell of the host does before the command, or instead of it."""
        of_host = {**self.host.environ, "PATH": self.path, **environ}
        text = json.dumps({"noise": noise, "instead": instead, "environ": of_host})
        (self.link / "host.json").write_text(text)

    def configure(self, **keys: object) -> None:
        """Write the laptop's table of the host."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        path = self.laptop.home / ".config" / "orchestrator" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([f"[hosts.{NAME}]", *lines, ""]))

    def cut(self, *cuts: str) -> None:
        """Break the next connections: "to host 100", "from host 100"; "" leaves one as it is."""
        for cut in cuts:
            self._cuts += 1
            (self.link / "cuts" / f"{self._cuts:06d}").write_text(cut)

    def forget_cuts(self) -> None:
        for path in (self.link / "cuts").iterdir():
            path.unlink()

    def __call__(self, *argv: str | Path, **environ: str) -> command_line.Done:
        """Run a command with --host."""
        return self.laptop("--host", NAME, *argv, **environ)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command with --host; the caller ends it."""
        return self.laptop.start("--host", NAME, *argv)

    def close(self) -> None:
        """Kill the commands that still run on the host."""
        for path in self.host.state_dir.glob("requests/*/claim"):
            claim = json.loads(path.read_text())
            pid = claim.get("pid")
            if pid and processes.start_ticks(pid) == claim["start_ticks"]:
                for each in (*processes.descendants(pid), pid):
                    processes.send(each, signal.SIGKILL)

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call of ssh."""
        return [json.loads(line) for line in (self.link / "calls").read_text().splitlines()]

    @property
    def requests(self) -> list[Path]:
        """The folders of the requests on the host."""
        folder = self.host.state_dir / "requests"
        return sorted(path for path in folder.glob("*") if path.is_dir())

    @property
    def pending(self) -> list[Path]:
        """What the laptop does not know the end of."""
        return sorted(self.laptop.state_dir.glob("remote/*/*.json"))


class Peer:
    """A client that says exactly what a test wants it to say."""

    def __init__(self, site: Site) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "agent", "--stdio"],
            env={**site.host.environ, "PATH": site.path},
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._search: framing.MarkerSearch | None = framing.MarkerSearch()
        self._decoder = framing.Decoder()
        self._received: list[Message] = []
        self.greeting = self.next()

    def send(self, *sent: Message) -> None:
        self.send_bytes(b"".join(message.encoded() for message in sent))

    def send_bytes(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def next(self, *kinds: str) -> Message:
        """Return the next message, of these kinds."""
        assert self._process.stdout is not None
        while True:
            while self._received:
                message = self._received.pop(0)
                if not kinds or message.kind in kinds:
                    return message
            data: bytes | None = os.read(self._process.stdout.fileno(), 65536)
            assert data, "the agent has ended"
            if self._search is not None:
                data = self._search.feed(data)
                if data is None:
                    continue
                self._search = None
            self._received += self._decoder.feed(data)

    def close(self) -> int:
        """End the connection; return the agent's exit code."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(30)


def run(
    request: str,
    *words: str,
    changes: bool = False,
    grace_seconds: int = 60,
    offset: int = 0,
) -> Message:
    """Return the message that runs a command whose output is no terminal."""
    return messages.Run(
        request=request,
        words=words,
        terminal=messages.Terminal(stdout=False, stderr=False, columns=80, lines=24),
        variables={},
        changes=changes,
        grace_seconds=grace_seconds,
        offset=offset,
    ).message()


def text_of(spool: bytes) -> dict[int, bytes]:
    """Return what each stream of a spool has."""
    streams: dict[int, bytes] = {}
    for piece in framing.Decoder().feed(spool):
        number = piece.keys["stream"]
        streams[number] = streams.get(number, b"") + piece.payload
    return streams


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
