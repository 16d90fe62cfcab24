"""The files of this machine's jobs. Each is replaced as a whole, under one lock.

    lock                 held during each change
    last                 the last number that was assigned
    requests/TOKEN.json  a submission; never changes while its job is in queue/
    queue/7.json         a pending or running job; `7_3.json` is task 3 of array 7
    ended/7.json         a job that has ended

An entry in queue/ with a terminal state was being moved when the process that moved it died.

Nothing read here is trusted: before a job starts, verification.py compares its files with the
database.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.local import records
from orchestrator.local.records import Entry, Request

#: An environment may have 2 MiB (ARG_MAX), and JSON writes a control character as six.
_MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Spool:
    """The files; every change is made inside `locked()`."""

    folder: Path
    shared_folders: Sequence[Path] = ()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; the kernel releases that of a process that dies."""
        try:
            for name in ("", "requests", "queue", "ended"):
                files.make_private_folder(
                    self.folder / name, shared_folders=self.shared_folders, setting="state_dir"
                )
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _make_private(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                # Closing is not enough: a child between fork and exec still has the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)
        except files.PrivateFolderError as exc:
            raise errors.OrchestratorError(str(exc.strerror)) from exc
        except OSError as exc:
            raise errors.OrchestratorError(
                f"cannot use {exc.filename or self.folder} ({exc.strerror}): "
                "set state_dir to a folder on a local disk that you can write"
            ) from exc

    def request(self, token: str) -> Request | None:
        data = self.request_data(token)
        return None if data is None else self.parse_request(data)

    def request_data(self, token: str) -> dict[str, Any] | None:
        """Return the content of a request's file, including fields of newer versions."""
        return _read(self._request_path(token))

    def parse_request(self, data: Mapping[str, Any]) -> Request:
        return _parse(Request, data, self._request_path(str(data.get("token"))))

    def accept(self, request: Request, store: Callable[[Mapping[str, Any]], None]) -> Request:
        """Number and store the request; an existing one with its token stays as it is.

        `store` gets the content before the file is written.
        """
        existing = self.request(request.token)
        if existing is not None:
            return existing
        path = self.folder / "last"
        last = int(files.read_text(path, limit_bytes=_MAX_FILE_BYTES)) if path.exists() else 0
        _write(path, last + len(request.tasks or (0,)))
        accepted = dataclasses.replace(request, number=last + 1)
        data = dataclasses.asdict(accepted)
        store(data)
        _write(self._request_path(request.token), data)
        return accepted

    def sync(self) -> None:
        """Bring the names of new files to disk: a power cut may lose a file that is not named."""
        for name in ("requests", "queue"):
            files.sync(self.folder / name)

    def queue(self) -> list[Entry]:
        """Return the pending and running jobs in the order of the queue."""
        keys = [path.stem for path in (self.folder / "queue").glob("[!.]*.json")]
        entries = [entry for key in keys if (entry := self.live_entry(key)) is not None]
        return sorted(entries, key=lambda entry: (entry.queued_at, entry.number, entry.task or 0))

    def live_entry(self, key: str) -> Entry | None:
        return _read_entry(self.folder / "queue" / f"{key}.json")

    def ended_entry(self, key: str) -> Entry | None:
        return _read_entry(self.folder / "ended" / f"{key}.json")

    def put(self, entry: Entry) -> Entry:
        """Store an entry of queue/; a terminal one is moved to ended/."""
        path = self.folder / "queue" / f"{entry.key}.json"
        _write(path, dataclasses.asdict(entry))
        if entry.state not in records.LIVE:
            path.rename(self.folder / "ended" / path.name)
        return entry

    def reopen(self, entry: Entry) -> Entry:
        """Move an entry from ended/ back to queue/ and store it as given here."""
        name = f"{entry.key}.json"
        (self.folder / "ended" / name).rename(self.folder / "queue" / name)
        return self.put(entry)

    def is_cleanup_due(self, *, after_seconds: float) -> bool:
        """Return whether the last cleanup was at least this long ago."""
        try:
            return time.time() - (self.folder / "cleared").stat().st_mtime > after_seconds
        except FileNotFoundError:
            return True

    def clear(self, *, before: float, host: str, keep: Collection[str]) -> list[str]:
        """Remove the jobs of a host that ended before an epoch second, and return their keys.

        `keep`: tokens of jobs that are still needed.
        """
        (self.folder / "cleared").touch(mode=0o600)
        removed, kept = [], {entry.token for entry in self.queue()} | set(keep)
        for path in (self.folder / "ended").glob("[0-9]*.json"):
            entry = _read_entry(path)
            if entry is None:
                continue
            is_old = entry.host == host and entry.ended[-1].ended_at < before
            if entry.token in keep or not is_old:
                kept.add(entry.token)
            else:
                removed.append(entry.key)
                path.unlink()
        for path in (self.folder / "requests").glob("[!.]*.json"):
            # The job of a newer request may not be in the queue yet.
            if path.stem not in kept and path.stat().st_mtime < before:
                path.unlink()
        return sorted(removed)

    def _request_path(self, token: str) -> Path:
        return self.folder / "requests" / f"{token}.json"


def _make_private(descriptor: int) -> None:
    """Remove the access of others: who can read the lock file can hold the lock (flock(2))."""
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)


def _read_entry(path: Path) -> Entry | None:
    data = _read(path)
    if data is None:
        return None
    entry = _parse(Entry, data, path)
    if path.stem != entry.key:
        raise _damaged(path, f"it is the file of job {entry.key}")
    return entry


def _parse(record: type[records.T], data: Mapping[str, Any], path: Path) -> records.T:
    try:
        return records.parse(record, data)
    except (TypeError, ValueError) as exc:
        raise _damaged(path, str(exc)) from exc


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(files.read_bytes(path, limit_bytes=_MAX_FILE_BYTES))
    except FileNotFoundError:
        return None
    except (files.NotRegularFileError, files.TooLargeError) as exc:
        raise _damaged(path, str(exc.strerror)) from exc
    except (ValueError, RecursionError) as exc:
        raise _damaged(path, str(exc)) from exc
    if not isinstance(data, dict):
        raise _damaged(path, "not a JSON object")
    return data


def _damaged(path: Path, why: str) -> errors.OrchestratorError:
    return errors.OrchestratorError(f"{path} is damaged ({why}); move it away")


def _write(path: Path, data: object) -> None:
    # Without durable a crash might leave an empty file.
    files.replace(path, json.dumps(data).encode(), durable=True)
