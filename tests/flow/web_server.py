"""Starts `orchestrator web`, and speaks HTTP with it over its real socket."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.flow import command_line

TIMEOUT_SECONDS = 60.0
JOB = """
[job]
name = "{name}"
time_limit = "10"
[launch]
command = "true"
"""
SWEEP = """
[job]
name = "grid"
time_limit = "10"
[launch]
script = "train.py"
launcher = "python"
[sweep]
kind = "grid"
[sweep.axes]
"args.lr" = {values}
"""


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str


class Event(NamedTuple):
    name: str
    id: str
    data: str


class Events:
    """The events of a stream; each is returned once, and waited for at most TIMEOUT_SECONDS."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._new = _events(response)
        self._unread: list[Event] = []

    def next(self, name: str, matches: Callable[[Event], bool] = lambda event: True) -> Event:
        """Return the first event of this name that matches; keep those of other names."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            of_name = [event for event in self._unread if event.name == name]
            for event in of_name:
                self._unread.remove(event)
                if matches(event):
                    return event
            new = next(self._new, None)
            assert new is not None, f"the stream ended before the event {name}"
            assert time.monotonic() < deadline, f"no event {name}, but {self._unread}"
            if new.name:
                self._unread.append(new)


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket, or over TCP if `path` is None."""

    def __init__(self, path: Path | None, port: int = 0) -> None:
        super().__init__("localhost", port or 80, timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


class Server:
    def __init__(self, process: subprocess.Popen[str], printed: str) -> None:
        self.process = process
        self.printed = printed
        path = re.search(r"(?:-L 8765:|connects to )(\S+)", printed)
        link = re.search(r"http://localhost:(\d+)/\?token=(\S+)", printed)
        self.path = Path(path[1]) if path else None
        self.port = int(link[1]) if link else 0
        self.token = link[2] if link else ""

    def connection(self) -> Connection:
        return Connection(self.path, self.port)

    def get(self, url: str, method: str = "GET", **headers: str) -> Answer:
        return self.request(method, url, {key.replace("_", "-"): headers[key] for key in headers})

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        with contextlib.closing(self.connection()) as connection:
            connection.putrequest(method, url, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": "localhost", **headers}.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode())

    @contextlib.contextmanager
    def events(self, url: str, **headers: str) -> Iterator[Events]:
        """Open a stream of events."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", url, headers=headers)
            response = connection.getresponse()
            assert response.status == 200
            yield Events(response)

    def line(self, stream: IO[str] | None) -> str:
        return _line(self.process, stream)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Return its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode, err


def _events(response: http.client.HTTPResponse) -> Iterator[Event]:
    """Yield the events as they come; one without a name is a ping."""
    fields: dict[str, str] = {}
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if line != b"\n":
            fields[name] = value
        else:
            yield Event(fields.get("event", ""), fields.get("id", ""), fields.get("data", ""))
            fields = {}


def _line(process: subprocess.Popen[str], stream: IO[str] | None) -> str:
    """Return the next line that the server prints; kill it if there is none for a long time."""
    assert stream is not None
    timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
    timer.start()
    try:
        return stream.readline()
    finally:
        timer.cancel()


@contextlib.contextmanager
def started(
    cli: command_line.CommandLine, *options: str | Path, prefix: Sequence[str] = ()
) -> Iterator[Server]:
    process = cli.start("web", *options, prefix=prefix)
    printed = ""
    try:
        while not re.search(r"^(and open https?|  http)://.*\n", printed, re.MULTILINE):
            line = _line(process, process.stdout)
            assert line, process.communicate()[1]
            printed += line
        yield Server(process, printed)
    finally:
        process.kill()
        process.communicate()
