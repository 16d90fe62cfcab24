"""Checks that a queued job is exactly what was submitted, and opens its script for the runner.

The queue consists of files. Whoever can write them, or rename a run folder, could have another
program run as this user. So a submission stores the hash of its request in the database before it
writes the request's file, and nothing that differs from the database is run. A requeue does not go
through the database: whoever can write the files can repeat, hold or cancel a job unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.local.records import Entry, Request
from orchestrator.local.spool import Spool

#: A rendered script has about 10 KB, plus the batch file inside it.
_MAX_SCRIPT_BYTES = 64 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """What the database has about a job or array task that is about to start."""

    #: None: submitted by a version that stored no hash
    request_sha256: str | None
    script_sha256: str
    run_dir: str
    #: for this job ID and SLURM_JOB_ID
    stdout_path: str
    stderr_path: str | None


#: Reads an entry's job from the database; NotFoundError if there is none, DatabaseError if the
#: database cannot be read now.
LookUp = Callable[[Entry], Submitted]


class DifferentError(errors.OrchestratorError):
    """The job is not what was submitted; nothing of it may be run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A verified script, while its folder is held open."""

    #: leads through the open folder to the file that was read, even if the folder is renamed
    path: str
    first_line: bytes


def request_hash(data: Mapping[str, Any]) -> str:
    """Return the hash of the content of a request's file."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verify(spool: Spool, entry: Entry, submitted: Submitted) -> Request:
    """Return the request of an entry that is what was submitted; else DifferentError."""
    data = spool.request_data(entry.token)
    if data is None:
        raise DifferentError(f"its request {entry.token}.json is missing in {spool.folder}")
    request = spool.parse_request(data)
    # Without a hash only this user can have written it: the spool is refused if others can.
    if submitted.request_sha256 not in (None, request_hash(data)):
        raise DifferentError(
            f"{spool.folder}/requests/{entry.token}.json was changed after the submission"
        )
    differing = [
        name for name, actual, expected in _fields(request, entry, submitted) if actual != expected
    ]
    if differing:
        raise DifferentError(
            f"{spool.folder}/queue/{entry.key}.json was changed after the submission "
            f"({', '.join(differing)})"
        )
    return request


def _fields(
    request: Request, entry: Entry, submitted: Submitted
) -> Iterator[tuple[str, object, object]]:
    """Yield name, actual and expected value of what is compared."""
    if entry.task not in (request.tasks or (None,)):
        yield "task", entry.task, request.tasks
    else:
        for name, value in request.entry_fields(entry.task).items():
            yield name, getattr(entry, name), value
    slots = set(entry.given)
    has_its_slots = len(entry.given) == len(slots) == request.slots
    yield "given", has_its_slots and slots <= set(request.devices), True
    yield "restart_count", entry.restart_count >= 0, True
    yield "stdout_path", entry.stdout_path, submitted.stdout_path
    yield "stderr_path", entry.stderr_path, submitted.stderr_path
    yield "run_dir", request.run_dir, submitted.run_dir
    yield "script", request.script, str(Path(submitted.run_dir, "script.sbatch"))


@contextlib.contextmanager
def opened(request: Request, submitted: Submitted) -> Iterator[Script]:
    """Yield the script if it is the one that was submitted; raises DifferentError or OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(request.run_dir, flags)
    try:
        _check_owner(os.fstat(folder), request.run_dir)
        path = f"/proc/{os.getpid()}/fd/{folder}/{Path(request.script).name}"
        try:
            _check_owner(os.lstat(path), request.script)
            content = files.read_bytes(path, limit_bytes=_MAX_SCRIPT_BYTES)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, request.script) from exc
        if hashlib.sha256(content).hexdigest() != submitted.script_sha256:
            raise DifferentError(f"{request.script} is not the script that was submitted")
        yield Script(path=path, first_line=content.partition(b"\n")[0])
    finally:
        os.close(folder)


def _check_owner(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise DifferentError(f"{path} is a symbolic link, and submit did not create it")
    if status.st_uid != os.geteuid():
        raise DifferentError(f"{path} belongs to another user, and submit did not create it")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise DifferentError(f"{path} can be written by others: chmod go-w it")
