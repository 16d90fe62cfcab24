"""This machine as a scheduler: submits, starts, cancels and reports local jobs.

No process waits for a slot, and none polls. Whoever changes something (a submission, a release, the
end of a job) starts the next jobs, under the spool's lock, in the order of submission. Each query
of the queue does so too, and closes jobs whose runner was killed.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from orchestrator import files, tracking
from orchestrator.files import run_folder
from orchestrator.jobs import JobState
from orchestrator.local import observations, processes, queue, records, verification
from orchestrator.local.records import Ended, Entry, Request
from orchestrator.local.spool import Spool
from orchestrator.usage import efficiency

# Environment variables. The attempt's mark is in all its processes: it finds what a killed runner
# left behind.
MARK = "ORCHESTRATOR_LOCAL_ATTEMPT"
#: Of a keeper: its processes belong to another job than the one that submitted it.
KEEPER = "ORCHESTRATOR_LOCAL_KEEPER"
DATABASE = "ORCHESTRATOR_DATABASE"
#: The PYTHONPATH of the command, for packages that a keeper itself does not need.
PYTHONPATH = "ORCHESTRATOR_LOCAL_PYTHONPATH"
#: What a keeper inherits, for the database's driver. A job gets nothing of it.
_INHERITED = re.compile(
    r"HOME|USER|LOGNAME|LD_LIBRARY_PATH|PG\w+|KRB5\w*|SSL_CERT_\w+|PYTHONPYCACHEPREFIX"
    r"|ORCHESTRATOR_LOCAL_PYTHONPATH"
)
#: Run as `python -m MODULE SPOOL KEY [SHARED_FOLDER...]`.
_KEEPER_MODULE = "orchestrator.controller.submission.local_keeper"
#: The folder of this package, whatever the submitter's PYTHONPATH is.
_PACKAGES = Path(__file__).resolve().parents[2]
#: A job can be requeued and depended on for this long after its end.
RETENTION_SECONDS = 30 * 86400.0
_CLEANUP_INTERVAL_SECONDS = 86400.0
_UNKNOWN = "there is no such job on this machine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """The jobs of this machine, with the methods of slurm.client.Client."""

    folder: Path
    #: folders in which others may write, and which the user accepts
    shared_folders: tuple[Path, ...] = ()
    host: str = dataclasses.field(default_factory=socket.gethostname)
    #: URL of the database, where keepers look jobs up before they start them. It may contain a
    #: password, so it is passed on in the environment, never in a file or on a command line, which
    #: other users can see. None: this process starts no jobs
    database: str | None = None

    @property
    def spool(self) -> Spool:
        return Spool(self.folder, self.shared_folders)

    def submit(
        self,
        request: Request,
        log_paths: Callable[[str, int], tuple[str, str | None]],
        store_hash: Callable[[str], None],
    ) -> str:
        """Queue a job, or the tasks of an array, and return `local-7`; the same token only once.

        `log_paths`: job ID and SLURM_JOB_ID -> paths of stdout and stderr. `store_hash` stores the
        hash of a new request durably.
        """
        with self.spool.locked():
            accepted = self.spool.accept(
                request, lambda data: store_hash(verification.request_hash(data))
            )
            now, queued_at = time.time(), self._end_of_queue()
            for task in accepted.tasks or (None,):
                fields = accepted.entry_fields(task)
                key = str(accepted.number) if task is None else f"{accepted.number}_{task}"
                if self._find(key) is None:
                    stdout_path, stderr_path = log_paths(f"local-{key}", fields["raw_number"])
                    entry = Entry(
                        **fields,
                        host=self.host,
                        stdout_path=stdout_path,
                        stderr_path=stderr_path,
                        submitted_at=now,
                        queued_at=queued_at,
                    )
                    self.spool.put(entry)
            self.spool.sync()
            self.advance()
        return f"local-{accepted.number}"

    def advance(self) -> None:
        """Close jobs whose runner was killed, and start the next jobs; under the lock."""
        own = [entry for entry in self.spool.queue() if entry.host == self.host]
        live = [entry for entry in own if not self._close_if_over(entry)]
        for entry, slots in queue.next_jobs(live, functools.cache(self.jobs)):
            if not self._start(entry, slots):
                return

    def clear(self, needed: Callable[[], Collection[str] | None]) -> list[str]:
        """Remove jobs that ended long ago, once a day; return their keys.

        `needed` returns the tokens of jobs that are still needed, or None to remove nothing now.
        """
        if not self.spool.is_cleanup_due(after_seconds=_CLEANUP_INTERVAL_SECONDS):
            return []
        tokens = needed()
        if tokens is None:
            return []
        keep = set(tokens)
        with self.spool.locked():
            for entry in self.spool.queue():
                for condition in queue.conditions(entry.dependency):
                    keep |= {job.token for job in self.jobs(condition.job_id)}
            before = time.time() - RETENTION_SECONDS
            # Only the other host knows whether its jobs are still needed.
            return self.spool.clear(before=before, host=self.host, keep=keep)

    def close(self, entry: Entry, ended: Ended, *, again: str = "") -> None:
        """Store the end of an attempt; `again`: requeue or hold. Under the lock."""
        closed = dataclasses.replace(
            entry,
            state=ended.state,
            ended=(*entry.ended, ended),
            keeper=None,
            runner=None,
            wish="",
            note="",
        )
        self.spool.put(self._requeued(closed, held=again == "hold") if again else closed)

    def end_without_runner(self, entry: Entry, why: str) -> Ended:
        """Return the end of a job whose runner was killed: from its exit record, else LOST."""
        reason = f"its runner on {entry.host} ended unexpectedly: {why}"
        record = self.exit_record(entry)
        if record is None or record.outcome != "end":
            return ended_now(entry, JobState.LOST, reason=reason)
        state = JobState.COMPLETED if record.rc == 0 else JobState.FAILED
        reason = f"from the exit record; {reason}"
        return ended_now(entry, state, reason=reason, exit_code=record.rc)

    def exit_record(self, entry: Entry) -> run_folder.ExitRecord | None:
        """Return the record that this attempt's script wrote at its end, if any."""
        request = self.spool.request(entry.token)
        if request is None:
            return None
        try:
            if files.exposure(Path(request.run_dir), shared_folders=self.shared_folders):
                return None
        except OSError:
            return None
        task, attempt = entry.task or 0, entry.restart_count
        folder = run_folder.RunFolder(Path(request.run_dir))
        owner = str(entry.raw_number)
        return folder.exit_record(task, attempt, token=entry.token, owner=owner)

    def squeue(self, keep: Callable[[str, str, str], bool]) -> list[tracking.Observation]:
        """Return the pending and running jobs that `keep(name, job_id, log_path)` selects."""
        if not self.folder.is_dir():
            return []
        with self.spool.locked():
            self.advance()
            entries = [entry for entry in self.spool.queue() if entry.host == self.host]
            reasons = list(queue.reasons(entries, functools.cache(self.jobs)))
        return [
            observations.live(entry, reason)
            for entry, reason in reasons
            if keep(entry.name, entry.job_id, entry.stdout_path)
        ]

    def sacct(self, job_ids: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the attempts that have ended, oldest first."""
        keys = [key for job_id in job_ids for key in self._keys(job_id)]
        entries = [entry for key in keys if (entry := self.spool.ended_entry(key)) is not None]
        return [row for entry in entries for row in observations.attempts(entry)]

    def by_name(self, names: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the ended attempts of jobs with these full names."""
        requests = [self.spool.request(name.rpartition(".")[2]) for name in names]
        return self.sacct([f"local-{request.number}" for request in requests if request], since)

    def steps(
        self, job_ids: Sequence[str], since: datetime.datetime
    ) -> Mapping[str, tracking.Observation]:
        """Return nothing: local jobs have no job steps."""
        return {}

    def used(
        self, job_id: str, submitted_at: datetime.datetime | None, since: datetime.datetime
    ) -> efficiency.Used | None:
        """Return what the newest attempt of a job used, if it has ended."""
        entry = self.spool.ended_entry(job_id.removeprefix("local-"))
        return None if entry is None else observations.used(entry)

    def show_job(self, job_id: str) -> dict[str, str] | None:
        """Return None: local jobs are never renamed."""
        return None

    def cancel(self, job_id: str, name: str) -> None:
        """Cancel the job with this ID and name, or all tasks of the array."""
        with self.spool.locked():
            for entry in self._live(job_id):
                if entry.name == name:
                    if entry.state is JobState.RUNNING:
                        self._request(entry, "cancel")
                    else:
                        self.close(entry, ended_now(entry, JobState.CANCELLED))
            self.advance()

    def change(self, action: str, job_ids: Sequence[str]) -> dict[str, str]:
        """Hold or release pending jobs, requeue others; return why jobs were refused, by job ID.

        A released job keeps its position in the queue.
        """
        refused: dict[str, str] = {}
        with self.spool.locked():
            for job_id in job_ids:
                if action in ("hold", "release"):
                    why = self._set_held(job_id, action == "hold")
                else:
                    why = self._requeue(job_id, hold=action == "requeuehold")
                if why:
                    refused[job_id] = why
            self.advance()
        return refused

    def jobs(self, job_id: str) -> list[Entry]:
        """Return this machine's jobs with this ID: pending, running and ended."""
        entries = [self._find(key) for key in self._keys(job_id)]
        return [entry for entry in entries if entry is not None and entry.host == self.host]

    def _close_if_over(self, entry: Entry) -> bool:
        """Return whether the entry is over; closes a job whose keeper and runner were killed."""
        if entry.state not in records.LIVE:
            self.spool.put(entry)
            return True
        owners = [owner for owner in (entry.keeper, entry.runner) if owner is not None]
        if entry.state is JobState.PENDING or any(owner.is_alive() for owner in owners):
            return False
        why = "the machine was restarted"
        if any(owner.boot_id == processes.boot_id() for owner in owners):
            processes.kill_all(lambda: processes.marked(MARK, entry.mark), seconds=2.0)
            why = "it was killed"
        self.close(entry, self.end_without_runner(entry, why))
        return True

    def _start(self, entry: Entry, slots: tuple[str, ...]) -> bool:
        """Start the keeper of a job; False if this machine cannot start one now."""
        if self.database is None:
            return False
        environ = {
            **{name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(_PACKAGES),
            DATABASE: self.database,
            KEEPER: entry.mark,
        }
        if KEEPER not in os.environ:
            environ[PYTHONPATH] = os.environ.get("PYTHONPATH", "")
        arguments = [str(self.folder), entry.key, *map(str, self.shared_folders)]
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", _KEEPER_MODULE, *arguments],
                cwd="/",
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                umask=0o077,
            )
        except OSError:
            return False
        # It outlives this process. Popen must not warn that nobody waited for it.
        keeper.returncode = 0
        started = dataclasses.replace(
            entry,
            state=JobState.RUNNING,
            given=slots,
            started_at=time.time(),
            keeper=processes.identify(keeper.pid),
            runner=None,
        )
        try:
            self.spool.put(started)
        except OSError:
            # A full disk. A keeper that is not stored would try to start the job again and again.
            processes.send(keeper.pid, signal.SIGKILL)
            raise
        return True

    def _request(self, entry: Entry, action: str) -> None:
        """Tell the runner of a job; a runner that has not started yet reads it when it does."""
        self.spool.put(dataclasses.replace(entry, wish=action))
        if entry.runner is not None and entry.runner.is_alive():
            processes.send(entry.runner.pid, signal.SIGTERM)

    def _set_held(self, job_id: str, held: bool) -> str:
        entries = self._live(job_id)
        for entry in entries:
            if entry.state is JobState.PENDING:
                self.spool.put(dataclasses.replace(entry, held=held))
        return "" if entries else f"it has ended, or {_UNKNOWN}"

    def _requeue(self, job_id: str, *, hold: bool) -> str:
        entries = self.jobs(job_id)
        if not all(entry.may_requeue for entry in entries):
            return "it was submitted with requeue = false"
        for entry in entries:
            if entry.state is JobState.RUNNING:
                self._request(entry, "hold" if hold else "requeue")
            elif entry.state is not JobState.PENDING:
                self.spool.reopen(self._requeued(entry, held=hold))
        return "" if entries else _UNKNOWN

    def _requeued(self, entry: Entry, *, held: bool) -> Entry:
        return dataclasses.replace(
            entry,
            state=JobState.PENDING,
            held=held,
            queued_at=self._end_of_queue(),
            restart_count=entry.restart_count + 1,
            given=(),
            started_at=None,
        )

    def _end_of_queue(self) -> float:
        """Return the time that sorts last in the queue: the clock may have been set back."""
        last = max((entry.queued_at for entry in self.spool.queue()), default=0.0)
        return max(time.time(), math.nextafter(last, math.inf))

    def _live(self, job_id: str) -> list[Entry]:
        return [entry for entry in self.jobs(job_id) if entry.state in records.LIVE]

    def _find(self, key: str) -> Entry | None:
        return self.spool.live_entry(key) or self.spool.ended_entry(key)

    def _keys(self, job_id: str) -> list[str]:
        """Return the keys of `local-7` or `local-7_3`: the job's, or those of all tasks."""
        key = job_id.removeprefix("local-")
        if self._find(key):
            return [key]
        folders = (self.folder / "queue", self.folder / "ended")
        return sorted(path.stem for folder in folders for path in folder.glob(f"{key}_*.json"))


def ended_now(
    entry: Entry,
    state: JobState,
    *,
    reason: str | None = None,
    exit_code: int = 0,
    exit_signal: int = 0,
) -> Ended:
    """Return the end of an attempt that ends now."""
    return Ended(
        state=state,
        reason=reason,
        exit_code=exit_code,
        exit_signal=exit_signal,
        started_at=entry.started_at,
        ended_at=max(time.time(), entry.started_at or 0.0),
    )
