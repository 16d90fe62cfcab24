"""The spool of this machine's jobs: files that are each replaced as a whole, under one lock.

    lock                 held while anything here changes
    last                 the number given last
    requests/TOKEN.json  what was submitted; never changed while its job is in queue/
    queue/7.json         a job that waits or runs; `7_3.json` is task 3 of array 7
    ended/7.json         a job that has ended

An entry that is terminal and still in queue/ was being moved when its mover died.

What is read here is only what the files say: before anything of it is run, binding.py compares it
with what the database says was submitted.
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
from orchestrator.jobs import JobState
from orchestrator.local import processes, records

#: Entries in queue/ with such a state are on their way to ended/.
LIVE = frozenset({JobState.PENDING, JobState.RUNNING})
#: A request holds an environment and arguments, which together the kernel limits to 6 MiB.
_LIMIT_BYTES = 64 * 1024 * 1024
#: An exit record is some 150 bytes; what is larger was not written by the script.
_RECORD_LIMIT_BYTES = 16 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a submission asks of this machine: all that the runner needs to start a task of it."""

    token: str
    #: NAME.TOKEN
    name: str
    script: str
    run_dir: str
    #: where the script is started
    folder: str
    environ: Mapping[str, str]
    cpus_per_task: int | None
    signal_seconds: int | None
    #: between TERM and KILL
    kill_wait_seconds: int
    #: the slots are GPUs
    slots_are_gpus: bool
    #: slots that a task needs, and those that it may get
    slots: int
    devices: tuple[str, ...]
    #: from the moment it got its slots; none: for ever
    time_limit_seconds: int | None
    may_requeue: bool
    #: array tasks; none: no array
    tasks: tuple[int, ...] | None = None
    #: of them at a time
    most_at_once: int | None = None
    #: as sbatch's --dependency, with our job IDs; "": none
    dependency: str = ""
    #: behind the script
    arguments: tuple[str, ...] = ()
    #: our number, `local-NUMBER`; given when it is accepted
    number: int = 0
    #: the script's umask; none: the runner's own, 077, as in earlier versions
    umask: int | None = None
    #: 0: of a version that stored all variables of the shell but those that looked like secrets
    format: int = 0

    def entry_fields(self, task: int | None) -> dict[str, Any]:
        """Return the fields of the entry of this job, or of a task of it, that never change."""
        place = 0 if self.tasks is None or task is None else self.tasks.index(task)
        return {
            "number": self.number,
            "task": task,
            "raw_number": self.number + place,
            "token": self.token,
            "name": self.name,
            "slots": self.slots,
            "devices": self.devices,
            "most_at_once": self.most_at_once,
            "time_limit_seconds": self.time_limit_seconds,
            "may_requeue": self.may_requeue,
            "dependency": self.dependency,
            "cpus": self.cpus_per_task,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How one attempt ended."""

    state: JobState
    reason: str | None
    exit_code: int
    exit_signal: int
    started_at: float | None
    ended_at: float
    #: of all that it started, and the memory of the largest process among it (getrusage)
    cpu_seconds: float | None = None
    largest_process_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A job, or one array task, as it is now. Times are epoch seconds."""

    number: int
    task: int | None
    #: SLURM_JOB_ID of this very task
    raw_number: int
    token: str
    #: NAME.TOKEN
    name: str
    #: the machine it belongs to
    host: str
    #: slots it needs at a time, and those it may get
    slots: int
    devices: tuple[str, ...]
    #: tasks of its array that may run at a time
    most_at_once: int | None
    time_limit_seconds: int | None
    may_requeue: bool
    stdout_path: str
    stderr_path: str | None
    submitted_at: float
    #: its place in the line
    queued_at: float
    state: JobState = JobState.PENDING
    held: bool = False
    restart_count: int = 0
    #: slots it has got
    given: tuple[str, ...] = ()
    started_at: float | None = None
    keeper: processes.Identity | None = None
    runner: processes.Identity | None = None
    #: what the runner is to do: "", cancel, requeue, hold (requeue, and hold it)
    wish: str = ""
    #: the attempts that ended, oldest first
    ended: tuple[Ended, ...] = ()
    #: what must happen before it can start, as in its request
    dependency: str = ""
    #: cpus_per_task of its request
    cpus: int | None = None
    #: why its script has not begun although it has its slots
    note: str = ""

    @property
    def key(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"

    @property
    def job_id(self) -> str:
        return f"local-{self.key}"

    @property
    def mark(self) -> str:
        """Return what the environment of everything that this attempt started holds."""
        return f"{self.token}.{self.task or 0}.{self.restart_count}"


class Spool:
    """The files; every change is made inside `locked()`."""

    def __init__(self, folder: Path, shared_folders: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._shared_folders = shared_folders

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the spool; the lock of a process that dies is given back by the kernel."""
        try:
            for name in ("", "requests", "queue", "ended"):
                files.make_private_folder(
                    self.folder / name, shared_folders=self._shared_folders, setting="state_dir"
                )
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _tighten(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                # A child between fork and exec still has the descriptor: closing it is not enough.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)
        except files.PrivateFolderError as exc:
            raise errors.OrchestratorError(str(exc.strerror)) from exc
        except OSError as exc:
            raise errors.OrchestratorError(
                f"{exc.filename or self.folder} cannot be used ({exc.strerror}); "
                "set state_dir to a folder on a local disk that you can write"
            ) from exc

    def request(self, token: str) -> Request | None:
        data = self.request_data(token)
        return None if data is None else self.parse_request(data)

    def request_data(self, token: str) -> dict[str, Any] | None:
        """Return the content of a request's file, also what this version does not know."""
        return records.read(self._request_path(token))

    def parse_request(self, data: dict[str, Any]) -> Request:
        """Return the request that is the content of a file."""
        names = ("tasks", "devices", "arguments")
        lists = {name: tuple(data[name]) for name in names if isinstance(data.get(name), list)}
        path = self._request_path(str(data.get("token")))
        return Request(**records.fields(Request, {**data, **lists}, path))

    def _request_path(self, token: str) -> Path:
        return self.folder / "requests" / f"{token}.json"

    def accept(self, request: Request, bind: Callable[[Mapping[str, Any]], None]) -> Request:
        """Give the request its number, and store it; one that is there already stays as it is.

        `bind` gets its content before that is stored.
        """
        known = self.request(request.token)
        if known is not None:
            return known
        last = self.folder / "last"
        number = (
            int(files.read_text(last, limit_bytes=_RECORD_LIMIT_BYTES)) + 1 if last.exists() else 1
        )
        records.write(last, str(number + len(request.tasks or (0,)) - 1))
        accepted = dataclasses.replace(request, number=number)
        data = dataclasses.asdict(accepted)
        bind(data)
        records.write(self._request_path(request.token), json.dumps(data))
        return accepted

    def sync(self) -> None:
        """Bring the names of new files to disk: a file alone may be lost in a power cut."""
        for name in ("requests", "queue"):
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def queue(self) -> list[Entry]:
        """Return all that waits or runs, in the order of the line."""
        try:
            names = os.listdir(self.folder / "queue")
        except FileNotFoundError:
            return []
        keys = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        found = [entry for key in keys if (entry := self.waiting(key)) is not None]
        return sorted(found, key=lambda entry: (entry.queued_at, entry.number, entry.task or 0))

    def waiting(self, key: str) -> Entry | None:
        """Return the entry of a job that waits or runs."""
        return _entry(self.folder / "queue" / f"{key}.json")

    def gone(self, key: str) -> Entry | None:
        """Return the entry of a job that has ended."""
        return _entry(self.folder / "ended" / f"{key}.json")

    def record(self, entry: Entry) -> dict[str, Any] | None:
        """Return the exit record that the script of this attempt wrote; none where it did not."""
        request = self.request(entry.token)
        if request is None:
            return None
        path = Path(request.run_dir, f"exit.{entry.task or 0}.{entry.restart_count}.json")
        try:
            if files.exposure(path.parent, shared_folders=self._shared_folders) is not None:
                return None
            record = json.loads(files.read_bytes(path, limit_bytes=_RECORD_LIMIT_BYTES))
            fits = record["done"] is True and record["job_id"] == str(entry.raw_number)
            return {"rc": int(record["rc"]), "outcome": str(record["outcome"])} if fits else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, entry: Entry) -> Entry:
        """Store an entry of queue/; a terminal one is moved to ended/."""
        path = self.folder / "queue" / f"{entry.key}.json"
        records.write(path, json.dumps(dataclasses.asdict(entry)))
        if entry.state not in LIVE:
            path.rename(self.folder / "ended" / path.name)
        return entry

    def is_to_be_cleared(self, *, after_seconds: float) -> bool:
        """Return whether the spool was last cleared so long ago."""
        try:
            return time.time() - (self.folder / "cleared").stat().st_mtime > after_seconds
        except FileNotFoundError:
            return True

    def clear(self, *, before: float, host: str, keep: Collection[str]) -> list[str]:
        """Remove the jobs of a host that ended before an epoch second, and return their keys.

        `keep`: tokens of jobs whose end is not known elsewhere yet.
        """
        (self.folder / "cleared").touch(mode=0o600)
        removed, left = [], {entry.token for entry in self.queue()} | set(keep)
        for path in (self.folder / "ended").glob("[0-9]*.json"):
            entry = _entry(path)
            if entry is None:
                continue
            is_old = entry.host == host and entry.ended[-1].ended_at < before
            if entry.token in keep or not is_old:
                left.add(entry.token)
            else:
                removed.append(entry.key)
                path.unlink()
        for path in (self.folder / "requests").glob("[!.]*.json"):
            # One that is younger may be on its way into the queue.
            if path.stem not in left and path.stat().st_mtime < before:
                path.unlink()
        return sorted(removed)

    def strip(self, stored: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Leave of the variables in requests of earlier versions what `stored` returns.

        Not of a job that waits or runs: it was submitted with them.
        """
        live = {entry.token for entry in self.queue()}
        for path in (self.folder / "requests").glob("[!.]*.json"):
            data = records.read(path)
            if data is not None and path.stem not in live and not data.get("format"):
                environ = stored(self.parse_request(data).environ)
                records.write(path, json.dumps({**data, "environ": dict(environ), "format": 1}))

    def reopen(self, entry: Entry) -> Entry:
        """Bring an entry of ended/ back to queue/ as it is given here."""
        name = f"{entry.key}.json"
        (self.folder / "ended" / name).rename(self.folder / "queue" / name)
        return self.put(entry)


def _tighten(descriptor: int) -> None:
    """Take away what others may do with our lock: who can read it can hold it (flock(2))."""
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)


def _entry(path: Path) -> Entry | None:
    data = records.read(path)
    if data is None:
        return None
    try:
        for name in ("keeper", "runner"):
            if data[name] is not None:
                data[name] = processes.Identity(
                    **records.fields(processes.Identity, data[name], path)
                )
        ended = (
            Ended(**records.fields(Ended, {**attempt, "state": JobState(attempt["state"])}, path))
            for attempt in data["ended"]
        )
        lists = {name: tuple(data[name]) for name in ("devices", "given")}
        changed = {**lists, "state": JobState(data["state"]), "ended": tuple(ended)}
        entry = Entry(**records.fields(Entry, {**data, **changed}, path))
    except (KeyError, TypeError, ValueError) as exc:
        raise records.damaged(path, repr(exc)) from exc
    if path.stem != entry.key:
        raise records.damaged(path, f"it is of job {entry.key}")
    return entry
