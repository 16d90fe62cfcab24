"""The processes of a local job: a keeper and its child, the runner, both without a terminal.

The runner starts the script, enforces its time limit and stores its end. The keeper only waits for
the runner. If the runner is killed, the keeper kills what the job left running and stores its end.
Whichever of the two is killed, the queue continues.

The runner starts nothing that differs from what was submitted according to the database
(verification.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import math
import os
import resource
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.jobs import JobState
from orchestrator.local import machine, processes, submitted, verification
from orchestrator.local.machine import Machine
from orchestrator.local.records import Ended, Entry, Request

#: Slurm's signal number for a script that could not be started (0:53, job_exit_code.html).
LAUNCH_FAILED = 53
_STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
#: Why a script was stopped -> the state and reason of its end.
_STOPPED = {
    "time limit": (JobState.TIMEOUT, "TimeLimit"),
    "terminated": (JobState.CANCELLED, "its runner received SIGTERM"),
    "cancel": (JobState.CANCELLED, None),
    "requeue": (JobState.REQUEUED, None),
    "hold": (JobState.REQUEUED, None),
}


def main(arguments: Sequence[str], *, database: str, look_up: verification.LookUp) -> int:
    """Keep one job until it has ended: SPOOL KEY [SHARED_FOLDER...]."""
    folder, key, *shared_folders = arguments
    here = Machine(
        folder=Path(folder), shared_folders=tuple(map(Path, shared_folders)), database=database
    )
    for number in _STOP_SIGNALS:
        # A machine that shuts down sends TERM to all: the runner handles it, the keeper waits.
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    keeper = processes.identify(os.getpid())
    runner = os.fork()
    if runner == 0:
        code = 1
        # The user's log is known only after the verification: before it, errors go nowhere.
        with contextlib.suppress(BaseException):
            run(here, key, keeper, look_up)
            code = 0
        os._exit(code)
    _, status = os.waitpid(runner, 0)
    if status == 0:
        return 0
    code = os.waitstatus_to_exitcode(status)
    why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    processes.kill_all(_tree)

    def close() -> None:
        with here.spool.locked():
            entry = here.spool.live_entry(key)
            if entry is not None and entry.keeper == keeper:
                here.close(entry, here.end_without_runner(entry, why))
            here.advance()

    submitted.until_stored(close)
    return 0


def run(here: Machine, key: str, keeper: processes.Identity, look_up: verification.LookUp) -> None:
    """Run the job's script to its end and store the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, submitted.SIGNALS)
    for number in _STOP_SIGNALS:
        # bash cannot trap a signal that is ignored when it starts.
        signal.signal(number, signal.SIG_DFL)
    processes.become_subreaper()
    own = processes.identify(os.getpid())

    def begin() -> Entry | None:
        with here.spool.locked():
            entry = here.spool.live_entry(key)
            if entry is not None and entry.keeper == keeper:
                return here.spool.put(dataclasses.replace(entry, runner=own))
            # Whoever started the keeper died before it stored that: the job is still pending.
            here.advance()
            return None

    entry = submitted.until_stored(begin)
    if entry is None:
        return
    try:
        ended = _run_verified(here, entry, look_up)
    except submitted.GoneError:
        return

    def store() -> None:
        with here.spool.locked():
            current = here.spool.live_entry(key)
            if current is not None and current.runner == own:
                final, again = _final(ended, current.wish, _asks_for_requeue(here, entry, ended))
                here.close(current, final, again=again)
            here.advance()

    submitted.until_stored(store)


def _asks_for_requeue(here: Machine, entry: Entry, ended: Ended) -> bool:
    record = here.exit_record(entry) if ended.state is JobState.COMPLETED else None
    return record is not None and record.outcome == "requeue"


def _final(ended: Ended, request: str, asks_for_requeue: bool) -> tuple[Ended, str]:
    """Return the end and how the job is requeued, given the user's latest request.

    "": not, "requeue" or "hold". A job that asks to be requeued while its user cancels it is
    cancelled.
    """
    if request in ("requeue", "hold") or (asks_for_requeue and request != "cancel"):
        return dataclasses.replace(ended, state=JobState.REQUEUED), request or "requeue"
    if asks_for_requeue:
        return dataclasses.replace(ended, state=JobState.CANCELLED), ""
    return ended, ""


def _run_verified(here: Machine, entry: Entry, look_up: verification.LookUp) -> Ended:
    """Verify and run the job; return how it ended."""
    with contextlib.ExitStack() as stack:
        try:
            if entry.wish:
                raise submitted.StoppedError(entry.wish)
            expected = submitted.read(here.spool, entry, look_up)
            request = verification.verify(here.spool, entry, expected)
            # Its folder stays open while the script runs: bash reads on, and may read $0.
            script = stack.enter_context(verification.opened(request, expected))
            path = Path(request.script)
            exposure = files.exposure(path, shared_folders=here.shared_folders)
            if exposure is not None:
                raise verification.DifferentError(exposure.refusal(path, "runs_dir"))
            attempt = _Attempt(here, entry, request, _start(here, entry, request, script))
        except submitted.StoppedError as exc:
            return _ended(entry, str(exc), -signal.SIGTERM)
        except errors.OrchestratorError as exc:
            return _not_started(entry, str(exc))
        except OSError as exc:
            return _not_started(entry, f"{exc.filename or 'its script'}: {exc.strerror}")
        try:
            return attempt.run_to_end()
        except Exception:
            with contextlib.suppress(Exception), _appended(entry.stdout_path) as log:
                text = f"orchestrator: the runner failed\n{traceback.format_exc()}"
                os.write(log, text.encode(errors="replace"))
            raise


def _start(here: Machine, entry: Entry, request: Request, script: verification.Script) -> int:
    runner = os.getpid()

    def prepare() -> None:
        processes.die_with(runner)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    first_line = script.first_line[:4096].decode(errors="replace")
    with contextlib.ExitStack() as stack:
        stdout = stderr = stack.enter_context(_appended(entry.stdout_path))
        if entry.stderr_path is not None:
            stderr = stack.enter_context(_appended(entry.stderr_path))
        process = subprocess.Popen(
            [*(files.interpreter(first_line) or ["/bin/sh"]), script.path, *request.arguments],
            cwd=request.folder,
            env=_environment(entry, request, here.host),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            umask=-1 if request.umask is None else request.umask,
            preexec_fn=prepare,
        )
    # The runner waits for it itself, together with all orphans.
    process.returncode = 0
    return process.pid


def _environment(entry: Entry, request: Request, host: str) -> dict[str, str]:
    """Return the script's environment: the submitter's variables, and Slurm's for one node.

    Without SLURM_NTASKS and SLURM_PROCID: libraries take them for tasks that srun started.
    """
    variables: dict[str, str | int | None] = {
        # A number: scripts compute ports from it.
        "SLURM_JOB_ID": entry.raw_number,
        "SLURM_JOBID": entry.raw_number,
        "SLURM_JOB_NAME": entry.name,
        "SLURM_JOB_NODELIST": host,
        "SLURM_JOB_NUM_NODES": 1,
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
        "SLURMD_NODENAME": host,
        "SLURM_SUBMIT_DIR": request.folder,
        "SLURM_SUBMIT_HOST": host,
        "SLURM_CPUS_PER_TASK": request.cpus_per_task,
        # Slurm sets it from the first restart on.
        "SLURM_RESTART_COUNT": entry.restart_count or None,
        machine.MARK: entry.mark,
    }
    if request.slots_are_gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(entry.given)
        variables["SLURM_GPUS_ON_NODE"] = len(entry.given)
    if request.tasks is not None:
        variables["SLURM_ARRAY_JOB_ID"] = entry.number
        variables["SLURM_ARRAY_TASK_ID"] = entry.task
        variables["SLURM_ARRAY_TASK_COUNT"] = len(request.tasks)
        variables["SLURM_ARRAY_TASK_MIN"] = min(request.tasks)
        variables["SLURM_ARRAY_TASK_MAX"] = max(request.tasks)
    own = {name: str(value) for name, value in variables.items() if value is not None}
    return {**request.environ, **own}


class _Attempt:
    """One attempt of a job while its script runs."""

    def __init__(self, here: Machine, entry: Entry, request: Request, script: int) -> None:
        self._here = here
        self._entry = entry
        self._request = request
        self._script = script
        #: why the script was stopped, a key of _STOPPED; "": it was not
        self._cause = ""
        #: when to send the warning, to stop the script at its limit, and to kill it. Not by the
        #: time of day: it may be set, and a laptop sleeps.
        self._due: dict[str, float] = {}
        if entry.time_limit_seconds is not None:
            limit_at = time.monotonic() + entry.time_limit_seconds
            if request.signal_seconds is not None:
                self._due["warning"] = limit_at - request.signal_seconds
            self._due["limit"] = limit_at

    def run_to_end(self) -> Ended:
        """Wait for the script, enforce its time limit, and return how it ended."""
        while self._script not in (exit_codes := processes.reap()):
            now = time.monotonic()
            for action in [action for action, at in self._due.items() if at <= now]:
                del self._due[action]
                if action == "warning":
                    processes.send(self._script, signal.SIGUSR1)
                elif action == "limit":
                    self._terminate("time limit")
                else:
                    processes.kill_all(_tree)
            pause = min(self._due.values(), default=math.inf) - time.monotonic()
            received = signal.sigtimedwait(submitted.SIGNALS, max(0.0, min(pause, 3600.0)))
            if received is not None and received.si_signo == signal.SIGTERM:
                entry = self._here.spool.live_entry(self._entry.key)
                self._terminate((entry.wish if entry else "") or "terminated")
        self._end_tree()
        # All its processes have ended and were waited for.
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return dataclasses.replace(
            _ended(self._entry, self._cause, exit_codes[self._script]),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            largest_process_bytes=usage.ru_maxrss * 1024,
        )

    def _terminate(self, cause: str) -> None:
        """Send TERM to the script; its descendants get it when the script has ended."""
        if self._cause:
            return
        self._cause = cause
        self._due["kill"] = time.monotonic() + self._request.kill_wait_seconds
        with (
            contextlib.suppress(OSError, verification.DifferentError),
            _appended(self._entry.stdout_path) as log,
        ):
            at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            why = {"time limit": " DUE TO TIME LIMIT", "requeue": " DUE TO JOB REQUEUE"}
            line = f"orchestrator: *** JOB {self._entry.job_id} ON {self._here.host} CANCELLED AT"
            os.write(log, f"{line} {at}{why.get(cause, '')} ***\n".encode())
        processes.send(self._script, signal.SIGTERM)
        # Like Slurm: a stopped process does not handle TERM.
        processes.send(self._script, signal.SIGCONT)

    def _end_tree(self) -> None:
        """Kill what the script left running; with TERM first if the script got TERM."""
        if kill_at := self._due.get("kill"):
            for pid in _tree():
                processes.send(pid, signal.SIGTERM)
            while _tree() and (left := kill_at - time.monotonic()) > 0:
                processes.reap()
                signal.sigtimedwait(submitted.SIGNALS, min(left, 0.1))
        processes.kill_all(_tree)


def _ended(entry: Entry, cause: str, exit_code: int) -> Ended:
    by_itself = (JobState.COMPLETED if exit_code == 0 else JobState.FAILED, None)
    state, reason = _STOPPED.get(cause, by_itself)
    code, number = (0, -exit_code) if exit_code < 0 else (exit_code, 0)
    return machine.ended_now(entry, state, reason=reason, exit_code=code, exit_signal=number)


def _not_started(entry: Entry, why: str) -> Ended:
    return machine.ended_now(
        entry, JobState.FAILED, reason=f"not started: {why}", exit_signal=LAUNCH_FAILED
    )


def _tree() -> list[int]:
    """Return the descendants of this process, except the jobs that they submitted."""
    pids = processes.descendants(os.getpid())
    keepers = processes.marked(machine.KEEPER, among=pids)
    return processes.descendants(os.getpid(), without=keepers) if keepers else pids


@contextlib.contextmanager
def _appended(path: str) -> Iterator[int]:
    # O_NONBLOCK: a FIFO without a reader is refused and not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        # Another user's link could redirect the log into any file of this user. The kernel refuses
        # to follow such links only in folders such as /tmp (proc(5), protected_symlinks).
        if (owner := os.lstat(path).st_uid) not in (0, os.geteuid()):
            raise verification.DifferentError(
                f"its log {path} is a symbolic link of user {owner}; remove it, or choose another "
                "folder for the log"
            ) from exc
        descriptor = os.open(path, flags, 0o600)
    try:
        os.set_blocking(descriptor, True)
        yield descriptor
    finally:
        os.close(descriptor)
