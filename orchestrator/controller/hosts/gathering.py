"""The rows that a command prints on several hosts, which are asked at the same time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.controller.remote import channel as channels
from orchestrator.controller.remote import connection as connections
from orchestrator.controller.remote import settling
from orchestrator.controller.remote.connection import Remote
from orchestrator.remote import framing, messages
from orchestrator.text import escaping

#: One that has not answered by then is left out.
SECONDS = 20.0
_MAX_STDERR_BYTES = 64 * 1024
#: Of what a command prints on a host.
_MAX_BYTES = 64 * 1024**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a host answered."""

    name: str
    rows: Sequence[dict[str, Any]] = ()
    #: what the command printed on stderr, as lines
    notes: Sequence[str] = ()
    #: why there are no rows; "": there are
    error: str = ""


class Gathering:
    """Commands that run on hosts while this process does something else."""

    def __init__(self, remotes: Sequence[Remote], environ: Mapping[str, str]) -> None:
        """Start to connect. ssh asks for nothing: prompts of several hosts would mix."""
        self._deadline = time.monotonic() + SECONDS
        options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={SECONDS:.0f}")
        self._asked = [
            _Asked(
                dataclasses.replace(
                    remote,
                    host=dataclasses.replace(
                        remote.host, ssh_options=(*options, *remote.host.ssh_options)
                    ),
                ),
                environ,
            )
            for remote in remotes
        ]

    def answers(
        self, words: Sequence[str], read_row: Callable[[object], dict[str, Any]]
    ) -> list[Answer]:
        """Return what a command that prints JSON answers on each host, in the given order.

        read_row: checks a row from JSON; raises ValueError.
        """
        with concurrent.futures.ThreadPoolExecutor(max(1, len(self._asked))) as pool:
            try:
                asking = [
                    pool.submit(each.answer, words, read_row, self._deadline)
                    for each in self._asked
                ]
                return [each.result() for each in asking]
            except BaseException:
                # Ctrl-C: the threads are not to wait for their hosts.
                for each in self._asked:
                    each.stop()
                raise

    def close(self) -> None:
        """End all connections."""
        for asked in self._asked:
            asked.close()


class _Asked:
    """A host to which a connection is made."""

    def __init__(self, remote: Remote, environ: Mapping[str, str]) -> None:
        self._remote = remote
        self._stderr = tempfile.TemporaryFile()
        self._started: connections.Started | None = None
        self._error = ""
        self._is_answered = False
        try:
            self._started = connections.start(remote, environ, self._stderr)
        except connections.ConnectionFailedError as error:
            self._error = str(error)

    def answer(
        self, words: Sequence[str], read_row: Callable[[object], dict[str, Any]], deadline: float
    ) -> Answer:
        name = self._remote.name
        if self._started is None:
            return Answer(name=name, error=self._error)
        self._is_answered = True
        try:
            with connections.greeted(self._remote, self._started, deadline) as connection:
                run = _run(self._remote, words)
                _, code, pieces = settling.ask(
                    connection.channel, run.message(), deadline, limit_bytes=_MAX_BYTES
                )
                connection.channel.send(messages.of_request("done", run.request))
                connection.channel.exchange(0)
        except connections.ConnectionFailedError as error:
            # Otherwise stderr may have a banner.
            last = self._last_line_of_ssh() if error.is_of_ssh else ""
            return Answer(name=name, error=last or str(error).partition("\n")[0])
        except channels.ClosedError:
            is_late = time.monotonic() >= deadline
            late = f"did not answer within {SECONDS:.0f} s"
            return Answer(name=name, error=late if is_late else "the connection broke")
        except (framing.FramingError, errors.OrchestratorError, OSError) as error:
            return Answer(name=name, error=str(error))
        return _answer(name, code, pieces, read_row)

    def _last_line_of_ssh(self) -> str:
        self._stderr.seek(0)
        text = self._stderr.read(_MAX_STDERR_BYTES).decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return escaping.one_line(lines[-1]) if lines else ""

    def stop(self) -> None:
        if self._started is not None:
            self._started.stop()

    def close(self) -> None:
        if self._started is not None and not self._is_answered:
            self._started.end(at_once=True)
        self._stderr.close()


def _run(remote: Remote, words: Sequence[str]) -> messages.Run:
    profile = () if remote.host.profile is None else ("--profile", remote.host.profile)
    return messages.Run(
        request=secrets.token_hex(16),
        words=[*profile, *words],
        terminal=messages.Terminal(stdout=False, stderr=False, columns=80, lines=24),
        variables={},
        changes=False,
        folder=remote.host.folder,
        grace_seconds=int(SECONDS),
    )


def _answer(
    name: str,
    code: int,
    pieces: Sequence[tuple[object, bytes]],
    read_row: Callable[[object], dict[str, Any]],
) -> Answer:
    out, err = (b"".join(data for stream, data in pieces if stream == n) for n in (1, 2))
    notes = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
    try:
        items = json.loads(out)["items"]
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = notes[-1] if notes else f"the command ended with exit code {code}"
        return Answer(name=name, error=reason.removeprefix("Error: "))
    try:
        rows = [read_row(item) for item in items]
    except (ValueError, TypeError) as error:
        doctor = shlex.join(["orchestrator", "doctor", "--host", name])
        reason = f"its rows cannot be read ({error}): `{doctor}` compares the versions"
        return Answer(name=name, error=reason)
    return Answer(name=name, rows=rows, notes=notes)
