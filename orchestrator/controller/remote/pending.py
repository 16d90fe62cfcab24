"""Requests of this computer whose end is not known yet, STATE_DIR/remote/HOST/REQUEST.json.

A file is made before the request is sent, and removed when its exit code has come. The process that
waits for it has the file locked; what has no lock is settled by the next call to the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.config import hosts

_MAX_FILE_BYTES = 16 * 1024**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending:
    """A command line that changes something, and was sent."""

    request: str
    #: after `orchestrator`
    words: Sequence[str]
    #: when, in seconds since 1970
    at: float
    #: ID of the host's state folder; "": the host was not reached
    store: str
    #: the host's own name
    host: str


class Folder:
    """The pending requests to one host."""

    def __init__(self, state_dir: Path, name: str, shared_folders: Sequence[Path]) -> None:
        self._folder = state_dir / "remote" / hosts.file_name(name)
        self._shared_folders = shared_folders

    @contextlib.contextmanager
    def waiting(self, pending: Pending) -> Iterator[None]:
        """Store a request while its answer is awaited. It stays, except if remove() is called."""
        try:
            files.make_private_folder(
                self._folder, shared_folders=self._shared_folders, setting="state_dir"
            )
            path = self.path(pending.request)
            files.replace(path, json.dumps(dataclasses.asdict(pending)).encode(), durable=True)
            files.sync(self._folder)
            lock = _locked(path)
        except files.PrivateFolderError as error:
            raise errors.OrchestratorError(str(error.strerror)) from error
        except OSError as error:
            raise errors.OrchestratorError(
                f"cannot write {self._folder}: {error.strerror}. Nothing was sent to the host."
            ) from error
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def remove(self, request: str) -> None:
        """Forget a request whose end is known."""
        self.path(request).unlink(missing_ok=True)

    @contextlib.contextmanager
    def unattended(self) -> Iterator[list[Pending]]:
        """Yield the requests that no process waits for, the oldest first; nobody else has them."""
        with contextlib.ExitStack() as stack:
            found = []
            for path in self._folder.glob("*.json"):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    lock = _locked(path)
                    if lock is None:
                        continue
                    stack.callback(os.close, lock)
                    stored = json.loads(files.read_bytes(path, limit_bytes=_MAX_FILE_BYTES))
                    found.append(Pending(**stored))
            yield sorted(found, key=lambda pending: pending.at)

    def path(self, request: str) -> Path:
        """Return the file of a request."""
        return self._folder / f"{request}.json"


def _locked(path: Path) -> int | None:
    """Lock a file, and return its descriptor; None if another process has it locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        # This file system has no locks.
        pass
    return descriptor
