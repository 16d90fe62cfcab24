"""Runs `orchestrator ARGV` in forks of a process that has already imported its modules.

    python -m tests.zygote DESCRIPTOR

Four fifths of a short command are imports, and a test calls some ten commands. Nothing has run when
they are forked, so each begins as a process that was just started does; that modules load when they
are needed, and by themselves, other tests see (tests/flow/test_imports.py, and all that start the
command itself). The descriptor is a socket; each message is the JSON of a `Request`, with stdin,
stdout, stderr and one end of a socket pair, on which the exit code is written as text (negative:
the signal). Whoever closes the other end before kills the command. The end of the socket ends the
process.

A fork does not free its objects when it ends: that would copy all memory that it shares with its
parent, 65 ms of CPU time, which is more than a short command takes. How Python ends tests see that
start the command itself (tests/flow/test_interrupts.py).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

#: What the commands load; what is not installed is left out.
LIBRARIES = (
    *("click", "jinja2.sandbox", "sqlalchemy", "sqlalchemy.dialects.sqlite", "submitit"),
    *("rich.table", "rich.progress", "alembic.command", "alembic.config", "numpy"),
)
#: A command line and its environment variables.
MESSAGE_BYTES = 128 * 1024
#: Variables that are read when a program starts: with them none can be forked.
AT_START = ("PYTHON", "LANG", "LC_", "LD_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A command to run."""

    #: sys.argv
    argv: list[str]
    #: all variables
    environ: dict[str, str]
    #: where it runs
    folder: str
    #: its address space is limited to this (RLIMIT_AS)
    memory_bytes: int | None = None
    #: sys.argv[0] is a Python file to run in place of the command
    script: bool = False


def can_fork(environ: Mapping[str, str]) -> bool:
    """Return whether a command with these extra variables can be forked."""
    return not any(name.startswith(AT_START) for name in environ)


class Gone(Exception):
    """The process that forks has ended, and was asked nothing."""


class Zygote:
    """The process that forks, and what it is asked."""

    def __init__(self, command: Callable[[Sequence[str]], Sequence[str]], **options: object):
        """`command` completes the words after `python`; `options` are those of Popen."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command(["-m", "tests.zygote", str(theirs.fileno())]),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                **options,
            )

    def close(self) -> None:
        self._control.close()
        self._process.wait(60)

    def run(
        self, request: Request, timeout_seconds: float, *, terminal: bool = False
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end: exit code, stdout, stderr; stdin is empty, the others pipes.

        With `terminal` stdout and stderr are one terminal each. TimeoutExpired after killing it;
        Gone where nothing can be forked.
        """
        ours, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = (os.openpty() if terminal else os.pipe() for _ in "12")
        null = os.open(os.devnull, os.O_RDONLY)
        descriptors = [null, out_end, err_end, theirs.fileno()]
        outputs = {out: bytearray(), err: bytearray(), ours.fileno(): bytearray()}
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            for descriptor in (out, err):
                stack.callback(os.close, descriptor)
            try:
                message = json.dumps(dataclasses.asdict(request)).encode()
                socket.send_fds(self._control, [message], descriptors)
            except OSError as exc:
                raise Gone from exc
            finally:
                theirs.close()
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
            _read(outputs, request, timeout_seconds)
            code = bytes(outputs[ours.fileno()])
        assert code, "the process that forks was killed while its command ran"
        return int(code), bytes(outputs[out]), bytes(outputs[err])


def _read(outputs: Mapping[int, bytearray], request: Request, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                out, err, _ = map(bytes, outputs.values())
                raise subprocess.TimeoutExpired(request.argv, timeout_seconds, out, err)
            for key, _ in ready:
                chunk = b""
                # EIO: the other end of the terminal is closed.
                with contextlib.suppress(OSError):
                    chunk = os.read(key.fd, 65536)
                if chunk:
                    outputs[key.fd] += chunk
                else:
                    selector.unregister(key.fd)


def serve(control: socket.socket) -> Request | None:
    """Fork for each message; returns in each child what it is to run, here None at the end."""
    #: process -> where its exit code is awaited
    running: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                if key.fileobj is running[key.data]:
                    # Nobody waits any more.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(key.data, signal.SIGKILL)
                    os.kill(key.data, signal.SIGKILL)
                    selector.unregister(key.fileobj)
                    continue
                selector.unregister(key.fileobj)
                os.close(key.fd)
                waiter = running.pop(key.data)
                with contextlib.suppress(KeyError):
                    selector.unregister(waiter)
                _report_end(key.data, waiter)
                break
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
            if not message:
                return None
            pid = os.fork()
            if not pid:
                for other in (control, selector, *running.values()):
                    other.close()
                return _become(Request(**json.loads(message)), descriptors)
            running[pid] = socket.socket(fileno=descriptors.pop())
            for descriptor in descriptors:
                os.close(descriptor)
            selector.register(running[pid], selectors.EVENT_READ, pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def _report_end(pid: int, waiter: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with waiter, contextlib.suppress(BrokenPipeError):
        waiter.sendall(str(code).encode())


def _become(request: Request, descriptors: list[int]) -> Request:
    """Make of the child what a process that was just started is."""
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, max(descriptors) + 1)
    os.environ.clear()
    os.environ.update(request.environ)
    time.tzset()
    os.chdir(request.folder)
    if request.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
    sys.pycache_prefix = request.environ.get("PYTHONPYCACHEPREFIX")
    sys.argv = request.argv
    sys.path[0] = request.folder
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = open(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    return request


def _end(code: int) -> NoReturn:
    """End as Python does, but leave the memory to the kernel."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main() -> None:
    import db
    import orchestrator
    from orchestrator import cli

    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for package in (orchestrator, db):
        for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "__main__" not in item.name and "migrations" not in item.name:
                # One may need a library of an extra.
                with contextlib.suppress(ImportError):
                    importlib.import_module(item.name)
    gc.freeze()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    code: int | str | None = 0
    try:
        if request.script:
            runpy.run_path(request.argv[0], run_name="__main__")
        else:
            cli.main()
    except SystemExit as ended:
        code = ended.code
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    _end(code or 0)


if __name__ == "__main__":
    main()
