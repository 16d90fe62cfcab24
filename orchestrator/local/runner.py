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
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.jobs import JobState
from orchestrator.local import environment, machine, processes, submitted, verification
from orchestrator.local.machine import KeeperConfig, Machine
from orchestrator.local.records import Ended, Entry, Request

#: Slurm's signal number for a script that could not be started (0:53, job_exit_code.html).
LAUNCH_FAILED = 53
_STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def main(
    arguments: Sequence[str], *, keeper_config: KeeperConfig, look_up: verification.LookUp
) -> int:
    """Keep one job until it has ended: SPOOL KEY [SHARED_FOLDER...]."""
    folder, key, *shared_folders = arguments
    here = Machine(
        folder=Path(folder),
        shared_folders=tuple(map(Path, shared_folders)),
        keeper_config=keeper_config,
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
    if status != 0:
        _close_without_runner(here, key, keeper, os.waitstatus_to_exitcode(status))
    return 0


def _close_without_runner(
    here: Machine, key: str, keeper: processes.Identity, exit_code: int
) -> None:
    why = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit {exit_code}"
    processes.kill_all(_tree)

    def close() -> None:
        with here.spool.locked():
            entry = here.spool.live_entry(key)
            if entry is not None and entry.keeper == keeper:
                here.close(entry, here.end_without_runner(entry, why))
            here.advance()

    submitted.until_stored(close)


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
        ended, again = _run_verified(here, entry, look_up)
    except submitted.GoneError:
        return

    def store() -> None:
        with here.spool.locked():
            current = here.spool.live_entry(key)
            if current is not None and current.runner == own:
                final, requeue = _final(ended, current.wish, again)
                here.close(current, final, again=requeue)
            here.advance()

    submitted.until_stored(store)


def _final(ended: Ended, request: str, again: str) -> tuple[Ended, str]:
    """Return the end and whether the job is requeued, given the user's latest request."""
    if request in ("requeue", "hold"):
        again = request
    if request == "cancel" and again:
        # The script asked to be requeued while its user cancelled it.
        return dataclasses.replace(ended, state=JobState.CANCELLED), ""
    return (dataclasses.replace(ended, state=JobState.REQUEUED) if again else ended), again


def _run_verified(here: Machine, entry: Entry, look_up: verification.LookUp) -> tuple[Ended, str]:
    """Verify and run the job; return how it ended, and whether it asked to be requeued."""
    try:
        if entry.wish:
            raise submitted.StoppedError(entry.wish)
        expected = submitted.read(here, entry, look_up)
        request = verification.verify(here.spool, entry, expected)
    except submitted.StoppedError as exc:
        return _ended(entry, str(exc), -signal.SIGTERM), ""
    except (errors.OrchestratorError, OSError) as exc:
        return _not_started(entry, exc), ""
    try:
        return _Attempt(here, entry, request).run(expected)
    except Exception:
        with contextlib.suppress(Exception), _appended(entry.stdout_path) as log:
            text = f"orchestrator: the runner failed\n{traceback.format_exc()}"
            os.write(log, text.encode(errors="replace"))
        raise


class _Attempt:
    """One attempt of a job while it runs."""

    def __init__(self, here: Machine, entry: Entry, request: Request) -> None:
        self._here = here
        self._entry = entry
        self._request = request
        #: why the script was stopped: "", "time limit", cancel, requeue, hold, terminated
        self._cause = ""
        self._kill_at: float | None = None

    def run(self, expected: verification.Submitted) -> tuple[Ended, str]:
        """Return how the script ended, and whether it asked to be requeued."""
        script_path = self._request.script
        with contextlib.ExitStack() as stack:
            try:
                # Its folder stays open while the script runs: bash reads on, and may read $0.
                opened = stack.enter_context(verification.opened(self._request, expected))
                exposure = files.exposure(
                    Path(script_path), shared_folders=self._here.shared_folders
                )
                if exposure is not None:
                    raise verification.DifferentError(
                        exposure.refusal(Path(script_path), "runs_dir")
                    )
                script = self._start(opened)
            except verification.DifferentError as exc:
                return _not_started(self._entry, exc), ""
            except OSError as exc:
                why = f"{exc.filename or script_path}: {exc.strerror}"
                return _not_started(self._entry, why), ""
            exit_code = self._wait(script)
            self._end_tree()
        # All its processes have ended and were waited for.
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = dataclasses.replace(
            _ended(self._entry, self._cause, exit_code),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            largest_process_bytes=usage.ru_maxrss * 1024,
        )
        record = self._here.spool.exit_record(self._entry)
        again = ended.state is JobState.COMPLETED and record and record["outcome"] == "requeue"
        return ended, "requeue" if again else ""

    def _start(self, script: verification.Script) -> int:
        """Start the script and return its PID."""
        entry, request = self._entry, self._request
        with contextlib.ExitStack() as stack:
            stdout = stderr = stack.enter_context(_appended(entry.stdout_path))
            if entry.stderr_path is not None:
                stderr = stack.enter_context(_appended(entry.stderr_path))
            kill_with_parent = processes.kill_with_parent()

            def prepare() -> None:
                kill_with_parent()
                signal.pthread_sigmask(signal.SIG_SETMASK, ())

            process = subprocess.Popen(
                [*_interpreter(script.first_line), script.path, *request.arguments],
                cwd=request.folder,
                env=environment.for_script(entry, request, self._here.host),
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

    def _wait(self, script: int) -> int:
        """Wait for the script, enforce its time limit, and return its exit code."""
        # Not the time of day: it may be set, and a laptop sleeps.
        started = time.monotonic()
        limit = self._entry.time_limit_seconds
        limit_at = None if limit is None else started + limit
        warn_at: float | None = None
        if limit_at is not None and self._request.signal_seconds is not None:
            warn_at = limit_at - self._request.signal_seconds
        while True:
            ended = processes.reap()
            if script in ended:
                return ended[script]
            now = time.monotonic()
            if warn_at is not None and now >= warn_at:
                warn_at = None
                processes.send(script, signal.SIGUSR1)
            if limit_at is not None and now >= limit_at:
                limit_at = None
                self._terminate(script, "time limit")
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
            due = [at for at in (warn_at, limit_at, self._kill_at) if at is not None]
            pause = max(0.0, min(due) - time.monotonic()) if due else 3600.0
            received = signal.sigtimedwait(submitted.SIGNALS, pause)
            if received is not None and received.si_signo == signal.SIGTERM:
                entry = self._here.spool.live_entry(self._entry.key)
                self._terminate(script, (entry.wish if entry else "") or "terminated")

    def _terminate(self, script: int, cause: str) -> None:
        """Send TERM to the script; its descendants get it when the script has ended."""
        if self._cause:
            return
        self._cause = cause
        self._kill_at = time.monotonic() + self._request.kill_wait_seconds
        with (
            contextlib.suppress(OSError, verification.DifferentError),
            _appended(self._entry.stdout_path) as log,
        ):
            at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            why = {"time limit": " DUE TO TIME LIMIT", "requeue": " DUE TO JOB REQUEUE"}
            line = f"orchestrator: *** JOB {self._entry.job_id} ON {self._here.host} CANCELLED AT"
            os.write(log, f"{line} {at}{why.get(cause, '')} ***\n".encode())
        processes.send(script, signal.SIGTERM)
        # Like Slurm: a stopped process does not handle TERM.
        processes.send(script, signal.SIGCONT)

    def _end_tree(self) -> None:
        """Kill what the script left running; with TERM first if the script got TERM."""
        if self._kill_at is not None:
            for pid in _tree():
                processes.send(pid, signal.SIGTERM)
            while _tree() and (left := self._kill_at - time.monotonic()) > 0:
                processes.reap()
                signal.sigtimedwait(submitted.SIGNALS, min(left, 0.1))
        self._kill()

    def _kill(self) -> None:
        self._kill_at = None
        processes.kill_all(_tree)


def _ended(entry: Entry, cause: str, exit_code: int) -> Ended:
    """Return the end of a script; a negative exit code is a signal."""
    reason = None
    match cause:
        case "":
            state = JobState.COMPLETED if exit_code == 0 else JobState.FAILED
        case "time limit":
            state, reason = JobState.TIMEOUT, "TimeLimit"
        case "terminated":
            state, reason = JobState.CANCELLED, "its runner received SIGTERM"
        case "cancel":
            state = JobState.CANCELLED
        case _:
            state = JobState.REQUEUED
    code, number = (0, -exit_code) if exit_code < 0 else (exit_code, 0)
    return machine.ended_now(entry, state, reason=reason, exit_code=code, exit_signal=number)


def _not_started(entry: Entry, why: object) -> Ended:
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


def _interpreter(first_line: bytes) -> list[str]:
    """Return the interpreter of a script as the kernel reads it; the shell if it names none."""
    first = first_line[:4096].decode(errors="replace")
    words = first[2:].strip().split(maxsplit=1) if first.startswith("#!") else []
    return words or ["/bin/sh"]


def hand_back(here: Machine, key: str) -> None:
    """Make a job pending again that a runner of an earlier version has started.

    Such a runner passes no database. It does so when its own job ends after an upgrade.
    """
    own = processes.identify(os.getpid())
    with here.spool.locked():
        entry = here.spool.live_entry(key)
        if entry is not None and entry.keeper == own:
            pending = dataclasses.replace(
                entry, state=JobState.PENDING, given=(), started_at=None, keeper=None
            )
            here.spool.put(pending)


if __name__ == "__main__":
    hand_back(Machine(folder=Path(sys.argv[1])), sys.argv[2])
