"""Forks `python -m orchestrator ARGV` from a process that has the libraries loaded already.

    python -m tests.flow.zygote DESCRIPTOR

Four fifths of a short command are imports, and a flow test calls some ten commands. Nothing has
run when they are forked, so each begins as a process that was just started does; that modules load
when they are needed, and by themselves, other tests see (tests/unit/test_imports.py, and all that
start the command itself). The descriptor is a socket; each message is
the JSON of a `Request`, with stdin, stdout, stderr and one end of a socket pair, on which the exit
code is written as text (negative: the signal). The end of the socket ends the process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import socket
import sys
import time

from sqlalchemy import orm

import db
import orchestrator

#: What the commands load; what is not installed is left out.
LIBRARIES = (
    *("click", "jinja2.sandbox", "sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "submitit"),
    *("rich.table", "rich.progress", "alembic.command", "alembic.config", "numpy"),
)
#: A command line and the variables of a surroundings.
MESSAGE_BYTES = 128 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A command to run."""

    #: what follows `python -m orchestrator`
    argv: list[str]
    #: all variables
    environ: dict[str, str]
    #: where it runs
    folder: str


def serve(control: socket.socket) -> Request | None:
    """Fork for each message; returns in each child what it is to run, here None at the end."""
    #: process -> where its exit code is awaited
    running: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                _tell(key.data, running.pop(key.data))
                continue
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
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def _tell(pid: int, waiter: socket.socket) -> None:
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
    sys.pycache_prefix = request.environ.get("PYTHONPYCACHEPREFIX")
    # As `python -m` has it.
    sys.path[0] = request.folder
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = open(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    return request


def main() -> None:
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for package in (orchestrator, db):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "__main__" not in found.name and "migrations" not in found.name:
                importlib.import_module(found.name)
    orm.configure_mappers()
    gc.freeze()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        sys.argv[1:] = request.argv
        runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
