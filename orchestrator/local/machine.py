"""This machine as a cluster of one node: who waits, who gets slots, who runs, how it ended.

No process waits for a slot and none looks again and again: whoever changes something (a
submission, a release, the end of a job) starts those whose turn it is, under the spool's lock, in
the order of submission. Any look at the queue does so too, and closes jobs whose runner is gone.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Never

from orchestrator import tracking
from orchestrator.jobs import JobState
from orchestrator.local import binding, observations, processes, queue, spool
from orchestrator.usage import efficiency

#: In the environment of all that an attempt starts: finds what a killed runner left behind.
MARK = "ORCHESTRATOR_LOCAL_ATTEMPT"
#: So long after its end a job can be requeued and depended on.
KEPT_SECONDS = 30 * 86400.0
_CLEARED_EVERY_SECONDS = 86400.0
#: In that of a keeper: it and what it starts are another job than the one that submitted it.
KEEPER = "ORCHESTRATOR_LOCAL_KEEPER"
#: An attempt that was cancelled or ran out of time, as a signal of its script (man 7 signal).
_SIGTERM = 15
_SIGKILL = 9
_UNKNOWN = "this machine does not know it"
#: Where `python -m orchestrator` finds us, whatever the submitter's environment says.
_PACKAGES = Path(__file__).resolve().parents[2]
#: What a keeper has of the environment of the process that starts it: what a database's driver
#: reads. A job gets nothing of it.
_HANDED_ON = re.compile(
    r"HOME|USER|LOGNAME|LD_LIBRARY_PATH|PG\w+|KRB5\w*|SSL_CERT_\w+|PYTHONPYCACHEPREFIX"
    r"|ORCHESTRATOR_LOCAL_PYTHONPATH"
)
DATABASE = "ORCHESTRATOR_DATABASE"
#: The PYTHONPATH of the command, for the packages that a keeper itself does without.
PYTHONPATH = "ORCHESTRATOR_LOCAL_PYTHONPATH"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keeping:
    """How keepers are started. It goes from process to process and never through a file."""

    #: run by `python -m MODULE SPOOL KEY`; looks a job up in the database before it starts it
    module: str
    #: URL; it may hold a password, so it is not on the command line, which others see
    database: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """The jobs of this machine; answers the questions that slurm.Client answers for a cluster."""

    folder: Path
    #: folders in which others may write, and which the user accepts
    shared_folders: tuple[Path, ...] = ()
    host: str = dataclasses.field(default_factory=socket.gethostname)
    #: none: nothing is started here
    keeping: Keeping | None = None

    @property
    def files(self) -> spool.Spool:
        return spool.Spool(self.folder, self.shared_folders)

    def submit(
        self,
        request: spool.Request,
        logs: Callable[[str, int], tuple[str, str | None]],
        bind: Callable[[str], None],
    ) -> str:
        """Put a job, or an array's tasks, into the line; the same token is taken once only.

        `logs`: job ID and SLURM_JOB_ID -> paths of stdout and stderr. `bind` stores the hash of the
        request, durably; of one that lies here already it was stored before. Returns `local-7`.
        """
        with self.files.locked():
            accepted = self.files.accept(request, lambda data: bind(binding.request_hash(data)))
            now = time.time()
            queued_at = self._end_of_line()
            for task in accepted.tasks or (None,):
                fields = accepted.entry_fields(task)
                key = str(accepted.number) if task is None else f"{accepted.number}_{task}"
                if self.files.waiting(key) or self.files.gone(key):
                    continue
                stdout_path, stderr_path = logs(f"local-{key}", fields["raw_number"])
                entry = spool.Entry(
                    **fields,
                    host=self.host,
                    stdout_path=stdout_path,
                    stderr_path=stderr_path,
                    submitted_at=now,
                    queued_at=queued_at,
                )
                self.files.put(entry)
            self.files.sync()
            self.advance()
        return f"local-{accepted.number}"

    def advance(self) -> None:
        """Close the jobs whose runner is gone, and start those whose turn it is; under the lock."""
        mine = [entry for entry in self.files.queue() if entry.host == self.host]
        live = [entry for entry in mine if not self._closed(entry)]
        for entry, given in queue.turns(live, functools.cache(self.known)):
            if not self._start(entry, given):
                return

    def clear(
        self,
        keep: Callable[[], Collection[str] | None],
        stored: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> list[str]:
        """Forget the jobs that ended long ago, once a day; returns their keys.

        `stored` returns which variables may be stored: earlier versions stored more. `keep` returns
        the tokens of jobs whose end their database lacks, or that are needed yet; None: nothing is
        forgotten now.
        """
        if not self.files.is_to_be_cleared(after_seconds=_CLEARED_EVERY_SECONDS):
            return []
        kept = keep()
        if kept is None:
            return []
        tokens = set(kept)
        with self.files.locked():
            for entry in self.files.queue():
                for one in queue.conditions(entry.dependency):
                    tokens |= {other.token for other in self.known(one.job_id)}
            # Whether the ends of another host's jobs are known, only that host asks.
            before = time.time() - KEPT_SECONDS
            self.files.strip(stored)
            return self.files.clear(before=before, host=self.host, keep=tokens)

    def close(self, entry: spool.Entry, ended: spool.Ended, *, again: str = "") -> None:
        """Store the end of an attempt; `again`: requeue or hold, for the next. Under the lock."""
        after = dataclasses.replace(
            entry,
            state=ended.state,
            ended=(*entry.ended, ended),
            keeper=None,
            runner=None,
            wish="",
            note="",
        )
        if again:
            after = _queued_again(after, held=again == "hold", queued_at=self._end_of_line())
        self.files.put(after)

    def squeue(self, keep: Callable[[str, str, str], bool]) -> list[tracking.Observation]:
        """Return the jobs that wait or run and that `keep(name, job_id, stdout_path)` wants."""
        observed_at = datetime.datetime.now(datetime.UTC)
        if not self.folder.is_dir():
            return []
        with self.files.locked():
            self.advance()
            entries = [entry for entry in self.files.queue() if entry.host == self.host]
            told = list(queue.reasons(entries, functools.cache(self.known)))
        return [
            observations.live(entry, observed_at, reason)
            for entry, reason in told
            if keep(entry.name, entry.job_id, entry.stdout_path)
        ]

    def sacct(self, job_ids: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the attempts of jobs that have ended, oldest first."""
        observed_at = datetime.datetime.now(datetime.UTC)
        found = [self.files.gone(key) for job_id in job_ids for key in self._keys(job_id)]
        return [
            row for entry in found if entry for row in observations.attempts(entry, observed_at)
        ]

    def by_name(self, names: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the attempts of jobs of these full names that have ended."""
        requests = [self.files.request(name.rpartition(".")[2]) for name in names]
        job_ids = [f"local-{request.number}" for request in requests if request]
        return self.sacct(job_ids, since)

    def steps(self, job_ids: Sequence[str], since: datetime.datetime) -> Mapping[str, Never]:
        """Return nothing: a script here has no job steps."""
        return {}

    def used(
        self, job_id: str, submitted_at: datetime.datetime | None, since: datetime.datetime
    ) -> efficiency.Used | None:
        """Return what the newest attempt of a job that has ended used."""
        entry = self.files.gone(job_id.removeprefix("local-"))
        return None if entry is None else observations.used(entry)

    def show_job(self, job_id: str) -> dict[str, str] | None:
        """Return nothing: no job here changes its name."""
        return None

    def cancel(self, job_id: str, name: str) -> None:
        """Cancel the job with this ID and this name, or all tasks of the array."""
        with self.files.locked():
            for entry in self._entries([job_id]):
                if entry.name != name:
                    continue
                if entry.state is JobState.RUNNING:
                    self._wish(entry, "cancel")
                else:
                    self.close(entry, _cancelled(entry))
            self.advance()

    def hold(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Keep waiting jobs from starting."""
        return self._set_held(job_ids, True)

    def release(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Let held jobs start, at their old place in the line."""
        return self._set_held(job_ids, False)

    def requeue(self, job_ids: Sequence[str], *, hold: bool = False) -> dict[str, str]:
        """End what runs and queue it again, or what has ended; return refusals by job ID."""
        again = "hold" if hold else "requeue"
        refused: dict[str, str] = {}
        with self.files.locked():
            for job_id in job_ids:
                found = self.known(job_id)
                if not found:
                    refused[job_id] = _UNKNOWN
                for entry in found:
                    if not entry.may_requeue:
                        refused[job_id] = "it was submitted with requeue = false"
                    elif entry.state is JobState.RUNNING:
                        self._wish(entry, again)
                    elif entry.state is not JobState.PENDING:
                        at = self._end_of_line()
                        self.files.reopen(_queued_again(entry, held=hold, queued_at=at))
            self.advance()
        return refused

    def _closed(self, entry: spool.Entry) -> bool:
        """Return whether the entry is over; a job whose runner is gone is closed as LOST."""
        if entry.state not in spool.LIVE:
            self.files.put(entry)
            return True
        guards = [who for who in (entry.keeper, entry.runner) if who is not None]
        if entry.state is JobState.PENDING or any(who.is_alive() for who in guards):
            return False
        rebooted = all(who.boot_id != processes.boot_id() for who in guards)
        if not rebooted:
            processes.kill_all(lambda: processes.marked(MARK, entry.mark), seconds=2.0)
        why = "the machine was restarted" if rebooted else "it was killed"
        self.close(entry, self.end_of(entry, why))
        return True

    def end_of(self, entry: spool.Entry, why: str) -> spool.Ended:
        """Return the end of a job whose runner could not tell one: by its exit record, or LOST."""
        record = self.files.record(entry)
        code = 0 if record is None or record["outcome"] != "end" else record["rc"]
        told = f"the process that ran it on {entry.host} ended without a word: {why}"
        state, reason = JobState.LOST, told
        if record is not None and record["outcome"] == "end":
            state = JobState.COMPLETED if code == 0 else JobState.FAILED
            reason = f"by its exit record; {told}"
        return spool.Ended(
            state=state,
            reason=reason,
            exit_code=code,
            exit_signal=0,
            started_at=entry.started_at,
            ended_at=max(time.time(), entry.started_at or 0.0),
        )

    def _start(self, entry: spool.Entry, given: tuple[str, ...]) -> bool:
        """Start the keeper of a job; false when the machine cannot start one now."""
        if self.keeping is None:
            return False
        argv = [sys.executable, "-S", "-P", "-m", self.keeping.module]
        environ = {
            **{name: text for name, text in os.environ.items() if _HANDED_ON.fullmatch(name)},
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(_PACKAGES),
            DATABASE: self.keeping.database,
        }
        if KEEPER not in os.environ:
            environ[PYTHONPATH] = os.environ.get("PYTHONPATH", "")
        try:
            keeper = subprocess.Popen(
                [*argv, str(self.folder), entry.key, *map(str, self.shared_folders)],
                cwd="/",
                env={**environ, KEEPER: entry.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                umask=0o077,
            )
        except OSError:
            return False
        # It outlives us: nobody here waits for it, and Popen must not complain of that.
        keeper.returncode = 0
        started = dataclasses.replace(
            entry,
            state=JobState.RUNNING,
            given=given,
            started_at=time.time(),
            keeper=processes.identify(keeper.pid),
            runner=None,
        )
        try:
            self.files.put(started)
        except OSError:
            # A full disk. A keeper that is named nowhere would try to start the job once more, and
            # so on for ever.
            processes.send(keeper.pid, _SIGKILL)
            raise
        return True

    def _wish(self, entry: spool.Entry, wish: str) -> None:
        """Tell the runner of a job; one that has not begun yet reads the wish when it does."""
        self.files.put(dataclasses.replace(entry, wish=wish))
        if entry.runner is not None and entry.runner.is_alive():
            processes.send(entry.runner.pid, _SIGTERM)

    def _set_held(self, job_ids: Sequence[str], held: bool) -> dict[str, str]:
        refused: dict[str, str] = {}
        with self.files.locked():
            for job_id in job_ids:
                found = self._entries([job_id])
                if not found:
                    refused[job_id] = f"it has ended, or {_UNKNOWN}"
                for entry in found:
                    if entry.state is JobState.PENDING:
                        self.files.put(dataclasses.replace(entry, held=held))
            self.advance()
        return refused

    def _end_of_line(self) -> float:
        """Return when what is queued now was queued: the clock may have been set back."""
        last = max((entry.queued_at for entry in self.files.queue()), default=0.0)
        return max(time.time(), math.nextafter(last, math.inf))

    def _entries(self, job_ids: Iterable[str]) -> list[spool.Entry]:
        known = [entry for job_id in job_ids for entry in self.known(job_id)]
        return [entry for entry in known if entry.state in spool.LIVE]

    def known(self, job_id: str) -> list[spool.Entry]:
        """Return what waits, runs or has ended under this ID and is this machine's."""
        found = (self.files.waiting(key) or self.files.gone(key) for key in self._keys(job_id))
        return [entry for entry in found if entry is not None and entry.host == self.host]

    def _keys(self, job_id: str) -> list[str]:
        """Return the keys that `local-7` or `local-7_3` means: the job's, or all its tasks'."""
        key = job_id.removeprefix("local-")
        if self.files.waiting(key) or self.files.gone(key):
            return [key]
        places = (self.folder / name for name in ("queue", "ended"))
        return sorted(path.stem for place in places for path in place.glob(f"{key}_*.json"))


def _cancelled(entry: spool.Entry) -> spool.Ended:
    return spool.Ended(
        state=JobState.CANCELLED,
        reason=None,
        exit_code=0,
        exit_signal=0,
        started_at=None,
        ended_at=time.time(),
    )


def _queued_again(entry: spool.Entry, *, held: bool, queued_at: float) -> spool.Entry:
    return dataclasses.replace(
        entry,
        state=JobState.PENDING,
        held=held,
        queued_at=queued_at,
        restart_count=entry.restart_count + 1,
        given=(),
        started_at=None,
    )
