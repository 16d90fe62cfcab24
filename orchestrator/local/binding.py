"""Whether a job in the line is exactly what was submitted, and its script as the runner opens it.

The line lies in files. Whoever can write there, or rename a run folder, could have another program
run by this user. So a submission stores the hash of its request in the database before the request
becomes a file, and nothing of a job is run that differs from what the database says. A requeue
does not go through the database: who can write the line can also repeat, hold or cancel a job of
it, with the same content.
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
from orchestrator.local import spool

#: A rendered script is some 10 KB; one with a batch file inside is as large as that.
_SCRIPT_LIMIT_BYTES = 64 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """What the database says of a job or array task that is about to start."""

    #: none: submitted by a version that stored no hash
    request_sha256: str | None
    script_sha256: str
    run_dir: str
    #: for the job ID and SLURM_JOB_ID that were asked with
    stdout_path: str
    stderr_path: str | None


#: Entry -> what was submitted. errors.NotFoundError where the database knows no such job,
#: errors.DatabaseError where that cannot be told now.
LookUp = Callable[[spool.Entry], Submitted]


class DifferentError(errors.OrchestratorError):
    """The job is not what was submitted; nothing of it may be run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A verified script, while its folder is held open."""

    #: leads through the open folder to the very file that was read, whatever is renamed meanwhile
    path: str
    first_line: bytes


def request_hash(data: Mapping[str, Any]) -> str:
    """Return the hash of all that a request's file says."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verify(folder: spool.Spool, entry: spool.Entry, submitted: Submitted) -> spool.Request:
    """Return the request of an entry that is what was submitted; else DifferentError."""
    data = folder.request_data(entry.token)
    if data is None:
        raise DifferentError(f"its request {entry.token}.json is gone from {folder.folder}")
    request = folder.parse_request(data)
    # None: submitted by an earlier version. Nobody else can have written it: the spool is refused
    # where others can.
    if submitted.request_sha256 not in (None, request_hash(data)):
        raise DifferentError(
            "its request is not the one that was submitted: someone changed "
            f"{folder.folder}/requests/{entry.token}.json"
        )
    differing = [
        name for name, value in _expected(request, entry, submitted) if value[0] != value[1]
    ]
    if differing:
        raise DifferentError(
            f"its place in the line is not the one that was submitted ({', '.join(differing)}): "
            f"someone changed {folder.folder}/queue/{entry.key}.json"
        )
    return request


def _expected(
    request: spool.Request, entry: spool.Entry, submitted: Submitted
) -> list[tuple[str, tuple[object, object]]]:
    """Return what is compared: a name, and the value here and the one that it should have."""
    is_task = entry.task in (request.tasks or (None,))
    fields = request.entry_fields(entry.task) if is_task else {"task": request.tasks}
    are_given = len(set(entry.given)) == len(entry.given) == request.slots and set(
        entry.given
    ) <= set(request.devices)
    return [
        *((name, (getattr(entry, name), value)) for name, value in fields.items()),
        ("given", (are_given, True)),
        ("restart_count", (entry.restart_count >= 0, True)),
        ("stdout_path", (entry.stdout_path, submitted.stdout_path)),
        ("stderr_path", (entry.stderr_path, submitted.stderr_path)),
        ("run_dir", (request.run_dir, submitted.run_dir)),
        ("script", (request.script, str(Path(submitted.run_dir, "script.sbatch")))),
    ]


@contextlib.contextmanager
def opened(request: spool.Request, submitted: Submitted) -> Iterator[Script]:
    """Yield the script once it is known to be the one that was submitted; else DifferentError.

    Raises OSError where it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(request.run_dir, flags)
    try:
        _refuse_if_others_write(os.fstat(folder), request.run_dir)
        path = f"/proc/{os.getpid()}/fd/{folder}/{Path(request.script).name}"
        try:
            _refuse_if_others_write(os.lstat(path), request.script)
            content = files.read_bytes(path, limit_bytes=_SCRIPT_LIMIT_BYTES)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, request.script) from exc
        if hashlib.sha256(content).hexdigest() != submitted.script_sha256:
            raise DifferentError(f"{request.script} is not the script that was submitted")
        yield Script(path=path, first_line=content.partition(b"\n")[0])
    finally:
        os.close(folder)


def _refuse_if_others_write(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise DifferentError(f"{path} is a symbolic link: it is not the one that submit made")
    if status.st_uid != os.geteuid():
        raise DifferentError(f"{path} belongs to another user: it is not the one that submit made")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise DifferentError(f"{path} can be written by others: chmod go-w it")
