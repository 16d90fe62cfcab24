"""What a local job runs under: a keeper, and its child the runner, both without a terminal.

The runner starts the script, keeps its time limit and stores its end. The keeper only waits for
the runner: should that be killed, it ends what the job had started and says that the job is lost.
Whichever of the two is killed, the line of waiting jobs goes on.

The runner starts nothing that is not exactly what the database says was submitted (binding.py). It
asks the database in a child of its own, so that nothing which that loads stays in memory.
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
from orchestrator.local import binding, database, machine, processes, spool, variables

#: Slurm's exit code for a script that could not be started (0:53, job_exit_code.html).
LAUNCH_FAILED = 53


def main(arguments: Sequence[str], *, keeping: machine.Keeping, look_up: binding.LookUp) -> int:
    """Keep one job, SPOOL KEY [SHARED_FOLDER...]; ends when the job has ended.

    `look_up` may load what it likes.
    """
    folder, key, *shared_folders = arguments
    here = machine.Machine(
        folder=Path(folder), shared_folders=tuple(map(Path, shared_folders)), keeping=keeping
    )
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        # A machine that shuts down sends TERM to all; the runner answers it, and we wait.
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    keeper = processes.identify(os.getpid())
    runner = os.fork()
    if runner == 0:
        code = 1
        try:
            run(here, key, keeper, look_up)
            code = 0
        except BaseException:
            # A user's log is known only once the job is verified.
            pass
        os._exit(code)
    _, status = os.waitpid(runner, 0)
    if status != 0:
        _close_for(here, key, keeper, os.waitstatus_to_exitcode(status))
    return 0


def _close_for(here: machine.Machine, key: str, keeper: processes.Identity, exit_code: int) -> None:
    """Close the job of a runner that was killed."""
    told = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit {exit_code}"
    processes.kill_all(_tree)

    def close() -> None:
        with here.files.locked():
            entry = here.files.waiting(key)
            if entry is not None and entry.keeper == keeper:
                here.close(entry, here.end_of(entry, told))
            here.advance()

    database.until_stored(close)


def run(
    here: machine.Machine,
    key: str,
    keeper: processes.Identity,
    look_up: binding.LookUp,
) -> None:
    """Run the job's script to its end and store that."""
    signal.pthread_sigmask(signal.SIG_BLOCK, database.HEARD)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        # bash cannot trap what is ignored when it starts.
        signal.signal(number, signal.SIG_DFL)
    processes.become_subreaper()
    own = processes.identify(os.getpid())

    def begin() -> spool.Entry | None:
        with here.files.locked():
            entry = here.files.waiting(key)
            if entry is not None and entry.keeper == keeper:
                return here.files.put(dataclasses.replace(entry, runner=own))
            # Who started us died before it could store that: the job still waits.
            here.advance()
            return None

    entry = database.until_stored(begin)
    if entry is None:
        return
    try:
        ended, again = _to_the_end(here, entry, look_up)
    except database.GoneError:
        return

    def store() -> None:
        with here.files.locked():
            now = here.files.waiting(key)
            if now is not None and now.runner == own:
                told, after = _last_word(ended, now.wish, again)
                here.close(now, told, again=after)
            here.advance()

    database.until_stored(store)


def _last_word(ended: spool.Ended, wish: str, again: str) -> tuple[spool.Ended, str]:
    """Return the end and whether it is queued again, heeding a wish that came last."""
    if wish in ("requeue", "hold"):
        again = wish
    if wish == "cancel" and again:
        # It asked to be requeued while its user took it back.
        return dataclasses.replace(ended, state=JobState.CANCELLED), ""
    return (dataclasses.replace(ended, state=JobState.REQUEUED) if again else ended), again


def _to_the_end(
    here: machine.Machine, entry: spool.Entry, look_up: binding.LookUp
) -> tuple[spool.Ended, str]:
    """Verify and run the job; return how it ended, and whether it asked to be requeued."""
    try:
        if entry.wish:
            raise database.StoppedError(entry.wish)
        submitted = database.submitted(here, entry, look_up)
        request = binding.verify(here.files, entry, submitted)
    except database.StoppedError as exc:
        return _outcome(entry, str(exc), -signal.SIGTERM), ""
    except (errors.OrchestratorError, OSError) as exc:
        # Different, or damaged.
        return _not_started(entry, f"not started: {exc}"), ""
    try:
        return _Run(here, entry, request, submitted).to_the_end()
    except Exception:
        with contextlib.suppress(Exception), _appended(entry.stdout_path) as log:
            text = f"orchestrator: its runner failed\n{traceback.format_exc()}"
            os.write(log, text.encode(errors="replace"))
        raise


def _not_started(entry: spool.Entry, why: str) -> spool.Ended:
    return _ended(entry, JobState.FAILED, why, 0, LAUNCH_FAILED)


class _Run:
    """One attempt while it runs."""

    def __init__(
        self,
        here: machine.Machine,
        entry: spool.Entry,
        request: spool.Request,
        submitted: binding.Submitted,
    ) -> None:
        self._here = here
        self._entry = entry
        self._request = request
        self._submitted = submitted
        #: why the script was told to end: "", "time limit", cancel, requeue, hold, terminated
        self._cause = ""
        self._kill_at: float | None = None

    def to_the_end(self) -> tuple[spool.Ended, str]:
        """Return how the script ended, and whether it asked to be requeued."""
        with contextlib.ExitStack() as stack:
            try:
                # Its folder stays open while the script runs: bash reads on, and it may read $0.
                opened = stack.enter_context(binding.opened(self._request, self._submitted))
                _refuse_exposed(Path(self._request.script), self._here.shared_folders)
                script = self._start(opened)
            except binding.DifferentError as exc:
                return _not_started(self._entry, f"not started: {exc}"), ""
            except OSError as exc:
                why = f"cannot start: {exc.filename or self._request.script}: {exc.strerror}"
                return _not_started(self._entry, why), ""
            exit_code = self._wait(script)
            self._end_tree()
        # All that it started has ended and was waited for.
        of_all = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = dataclasses.replace(
            _outcome(self._entry, self._cause, exit_code),
            cpu_seconds=of_all.ru_utime + of_all.ru_stime,
            largest_process_bytes=of_all.ru_maxrss * 1024,
        )
        record = self._here.files.record(self._entry)
        again = ended.state is JobState.COMPLETED and record and record["outcome"] == "requeue"
        return ended, "requeue" if again else ""

    def _start(self, script: binding.Script) -> int:
        """Start the script and return its PID."""
        entry, request = self._entry, self._request
        with contextlib.ExitStack() as files:
            stdout = files.enter_context(_appended(entry.stdout_path))
            stderr = stdout
            if entry.stderr_path is not None:
                stderr = files.enter_context(_appended(entry.stderr_path))
            tie = processes.tie_to_parent()

            def prepare() -> None:
                tie()
                signal.pthread_sigmask(signal.SIG_SETMASK, ())

            process = subprocess.Popen(
                [*_interpreter(script.first_line), script.path, *request.arguments],
                cwd=request.folder,
                env=variables.of(entry, request, self._here.host),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                umask=-1 if request.umask is None else request.umask,
                preexec_fn=prepare,
            )
        # We take its end ourselves, with those of all orphans.
        process.returncode = 0
        return process.pid

    def _wait(self, script: int) -> int:
        """Return the script's exit code (negative: its signal), having kept the time limit."""
        # Not the clock of the day: it may be set, and a laptop sleeps.
        begun = time.monotonic()
        limit = self._entry.time_limit_seconds
        limit_at = None if limit is None else begun + limit
        warned_at: float | None = None
        if limit_at is not None and self._request.signal_seconds is not None:
            warned_at = limit_at - self._request.signal_seconds
        while True:
            ended = processes.reap()
            if script in ended:
                return ended[script]
            now = time.monotonic()
            if warned_at is not None and now >= warned_at:
                warned_at = None
                processes.send(script, signal.SIGUSR1)
            if limit_at is not None and now >= limit_at:
                limit_at = None
                self._tell(script, "time limit")
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
            due = [at for at in (warned_at, limit_at, self._kill_at) if at is not None]
            pause = max(0.0, min(due) - time.monotonic()) if due else 3600.0
            heard = signal.sigtimedwait(database.HEARD, pause)
            if heard is not None and heard.si_signo == signal.SIGTERM:
                entry = self._here.files.waiting(self._entry.key)
                self._tell(script, (entry.wish if entry else "") or "terminated")

    def _tell(self, script: int, cause: str) -> None:
        """Tell the script to end; the rest is told when it has."""
        if self._cause:
            return
        self._cause = cause
        self._kill_at = time.monotonic() + self._request.kill_wait_seconds
        with (
            contextlib.suppress(OSError, binding.DifferentError),
            _appended(self._entry.stdout_path) as log,
        ):
            at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            why = {"time limit": " DUE TO TIME LIMIT", "requeue": " DUE TO JOB REQUEUE"}
            line = f"orchestrator: *** JOB {self._entry.job_id} ON {self._here.host} CANCELLED AT"
            os.write(log, f"{line} {at}{why.get(cause, '')} ***\n".encode())
        processes.send(script, signal.SIGTERM)
        # As Slurm does: one that was stopped would not hear it.
        processes.send(script, signal.SIGCONT)

    def _end_tree(self) -> None:
        """End what the script left: at once, or after it was told as the script was."""
        if self._kill_at is not None:
            for pid in _tree():
                processes.send(pid, signal.SIGTERM)
            while _tree() and (left := self._kill_at - time.monotonic()) > 0:
                processes.reap()
                signal.sigtimedwait(database.HEARD, min(left, 0.1))
        self._kill()

    def _kill(self) -> None:
        self._kill_at = None
        processes.kill_all(_tree)


def _outcome(entry: spool.Entry, cause: str, exit_code: int) -> spool.Ended:
    code, number = (0, -exit_code) if exit_code < 0 else (exit_code, 0)
    match cause:
        case "":
            state, reason = JobState.COMPLETED if exit_code == 0 else JobState.FAILED, None
        case "time limit":
            state, reason = JobState.TIMEOUT, "TimeLimit"
        case "terminated":
            state, reason = JobState.CANCELLED, "its runner was told to end (SIGTERM)"
        case "cancel":
            state, reason = JobState.CANCELLED, None
        case _:
            state, reason = JobState.REQUEUED, None
    return _ended(entry, state, reason, code, number)


def _ended(
    entry: spool.Entry, state: JobState, reason: str | None, exit_code: int, exit_signal: int
) -> spool.Ended:
    return spool.Ended(
        state=state,
        reason=reason,
        exit_code=exit_code,
        exit_signal=exit_signal,
        started_at=entry.started_at,
        ended_at=max(time.time(), entry.started_at or 0.0),
    )


def _tree() -> list[int]:
    """Return our descendants, less the jobs that they submitted."""
    found = processes.descendants(os.getpid())
    others = processes.marked(machine.KEEPER, among=found)
    return processes.descendants(os.getpid(), without=others) if others else found


def _refuse_exposed(script: Path, shared_folders: Sequence[Path]) -> None:
    """Raise DifferentError where another user could have changed the script."""
    found = files.exposure(script, shared_folders=shared_folders)
    if found is not None:
        raise binding.DifferentError(found.refusal(script, "runs_dir"))


@contextlib.contextmanager
def _appended(path: str) -> Iterator[int]:
    # O_NONBLOCK: a FIFO that nobody reads is refused, not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        # Another user's link would lead the log into any file of ours. The kernel forbids to follow
        # one only in folders such as /tmp (proc(5), protected_symlinks).
        if (owner := os.lstat(path).st_uid) not in (0, os.geteuid()):
            raise binding.DifferentError(
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
    """Return what the script's first line names, as the kernel reads it; else the shell."""
    first = first_line[:4096].decode(errors="replace")
    words = first[2:].strip().split(maxsplit=1) if first.startswith("#!") else []
    return words or ["/bin/sh"]


def hand_back(here: machine.Machine, key: str) -> None:
    """Let the job wait on: whoever started this process named no database.

    It is a runner that began before an upgrade, at the end of its own job.
    """
    own = processes.identify(os.getpid())
    with here.files.locked():
        entry = here.files.waiting(key)
        if entry is not None and entry.keeper == own:
            waiting = dataclasses.replace(
                entry, state=JobState.PENDING, given=(), started_at=None, keeper=None
            )
            here.files.put(waiting)


if __name__ == "__main__":
    hand_back(machine.Machine(folder=Path(sys.argv[1])), sys.argv[2])
