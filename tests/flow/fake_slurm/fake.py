"""What the fake commands share: jobs in one file, faults to play, a log of the calls.

EBROOTFAKESLURM names the folder. The texts are those of Slurm 24.11; tests/flow/conftest.py
has the handle that tests hold.

The flow tests run thousands of these commands, and two thirds of each were imports. So they import
only what is built in or small: no json, re, pathlib, typing, contextlib, subprocess or signal.
"""

from __future__ import annotations

import _signal
import fcntl
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

Job = dict

CONFIG = {
    "SLURM_VERSION": "24.11.5",
    "ClusterName": "fake",
    "MinJobAge": "300 sec",
    "MessageTimeout": "10 sec",
    "MaxArraySize": "1001",
    "MaxJobCount": "10000",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobRequeue": "1",
    "KillWait": "30 sec",
    "BOOT_TIME": "1795248896",
}
ENDED = {
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
}


def folder() -> str:
    """Return the state folder."""
    named = os.environ.get("EBROOTFAKESLURM")
    if not named:
        sys.exit("fake slurm: EBROOTFAKESLURM is not set")
    return named


class state:
    """Hold the state alone; what is changed in it is kept, unless an exception is raised."""

    def __init__(self, where: str | Path) -> None:
        self._path = os.path.join(where, "state")
        self._lock = os.path.join(where, "lock")

    def __enter__(self) -> dict[str, Any]:
        self._locked = open(self._lock, "a")
        fcntl.flock(self._locked, fcntl.LOCK_EX)
        try:
            with open(self._path, "rb") as file:
                self._before = file.read()
        except FileNotFoundError:
            self._before = b""
        self._data = marshal.loads(self._before) if self._before else fresh()
        return self._data

    def __exit__(self, kind: object, *rest: object) -> None:
        with self._locked:
            # Without references (version 3), which differ between equal values.
            after = marshal.dumps(self._data, 2)
            if kind is None and after != self._before:
                with open(self._path + ".new", "wb") as file:
                    file.write(after)
                os.replace(self._path + ".new", self._path)


def fresh() -> dict[str, Any]:
    """Return the state of a cluster that has seen nothing yet."""
    settings = {"runs": False, "completes": False, "config": dict(CONFIG)}
    return {"next_id": 1, **settings, "jobs": {}, "faults": []}


def command(name: str, main: Callable[[list[str]], int]) -> None:
    """Run a fake command: play the fault that waits for it, log the call, exit."""
    argv = sys.argv[1:]
    where = folder()
    with state(where) as data:
        fault = next((item for item in data["faults"] if item["command"] == name), None)
        if fault is not None:
            fault["times"] -= 1
            data["faults"] = [item for item in data["faults"] if item["times"] > 0]
    with open(f"{where}/calls", "a") as calls:
        calls.write(ascii((name, argv)) + "\n")
    if fault is None:
        sys.exit(main(argv))
    if fault["run_anyway"]:
        # The reply is lost, but the work is done.
        shown, sys.stdout = sys.stdout, open(os.devnull, "w")
        main(argv)
        sys.stdout = shown
    time.sleep(fault["delay_seconds"])
    sys.stdout.write(fault["stdout"])
    sys.stderr.write(fault["stderr"])
    sys.exit(fault["rc"])


def fail(name: str, text: str, rc: int = 1) -> int:
    """Write an error as Slurm's commands do."""
    sys.stderr.write(f"{name}: error: {text}\n")
    return rc


def text_id(job: Job) -> str:
    """Return `123` or `123_4`."""
    if job["array_task_id"] is None:
        return str(job["job_id"])
    if "folded" in job:
        return f"{job['array_job_id']}_[{','.join(map(str, job['folded']))}]"
    return f"{job['array_job_id']}_{job['array_task_id']}"


def fits(job: Job, asked: str) -> bool:
    """Return whether `asked` (123, 123_4, 123_[2-5,8]) means this job."""
    master, bracket, rest = asked.partition("_[")
    if bracket:
        return str(job["array_job_id"]) == master and job["array_task_id"] in tasks(rest[:-1])
    return asked in (str(job["job_id"]), text_id(job), str(job["array_job_id"]))


def tasks(text: str) -> list[int]:
    """Read `0-3,8%2`."""
    result: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, extra = part.partition("-")
        last, _, step = extra.partition(":")
        result.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return result


def folded(jobs: list[Job]) -> list[Job]:
    """Return the jobs as Slurm prints them: the tasks of an array that wait are one record."""
    result: dict[tuple[Any, ...], Job] = {}
    for job in jobs:
        waits = job["array_task_id"] is not None and job["state"] == "PENDING"
        key = ("array", job["array_job_id"], job["reason"]) if waits else ("job", job["job_id"])
        if not waits or job["restarts"]:
            result["job", job["job_id"]] = job
        elif key in result:
            result[key]["folded"].append(job["array_task_id"])
        else:
            first = {"job_id": job["array_job_id"], "folded": [job["array_task_id"]]}
            result[key] = {**job, **first}
    return list(result.values())


def stamp(seconds: float | None, nothing: str) -> str:
    """Print a time as SLURM_TIME_FORMAT asks."""
    if seconds is None:
        return nothing
    if os.environ.get("SLURM_TIME_FORMAT") == "%s":
        return str(int(seconds))
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def minutes(text: str) -> int | None:
    """Read --time: `30`, `30:00`, `1:30:00`, `2-00`, `2-01:30`; None for what is no time."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(part.isdecimal() for part in ([days] if dash else []) + parts):
        return None
    first, second, third = (*map(int, parts), 0, 0)[:3]
    if dash:
        return int(days) * 1440 + first * 60 + second
    if len(parts) == 3:
        return first * 60 + second + (1 if third else 0)
    return first + (1 if second else 0)


def tres(job: Job, ordered: bool = False) -> str:
    """Print the job's TRES."""
    parts = [f"cpu={job['nodes']}", f"mem={500 * job['nodes']}M", f"node={job['nodes']}"]
    parts.append(f"billing={job['nodes']}")
    if job["gpus"]:
        parts.append(f"gres/gpu={job['gpus']}")
    return ",".join(sorted(parts) if ordered else parts)


def change(data: dict[str, Any], job: Job, new: str, **fields: Any) -> None:
    """Bring a job into a state, with the times that belong to it."""
    now = time.time()
    job["state"] = new
    if new in ("RUNNING", "COMPLETING", *ENDED) and new != "CANCELLED" and job["start"] is None:
        job["start"] = now
        job["node_list"] = f"n[1-{job['nodes']}]" if job["nodes"] > 1 else "n1"
    if new in ENDED and job["end"] is None:
        job["end"] = now
    if new == "RUNNING":
        job["end"] = None
        job["reason"] = "None"
    job.update(fields)


def stop(job: Job, number: int) -> None:
    """Signal what runs of the job."""
    if job["runner"] is not None:
        try:
            os.killpg(job["runner"], number)
        except ProcessLookupError:
            pass


def run(job_id: int) -> None:
    """Start the job's script in the background."""
    runner = os.path.join(os.path.dirname(__file__), "runner.py")
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    command = [sys.executable, "-S", runner, str(job_id)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=null, setsid=True)


def call(words: list[str], environ: dict[str, str], **options: Any) -> int:
    """Run a command to its end and return its exit code, negative: the signal."""
    # Python ignores them, and a shell keeps what it inherits.
    options["setsigdef"] = [_signal.SIGPIPE, _signal.SIGXFSZ]
    started = os.posix_spawnp(words[0], words, environ, **options)
    return os.waitstatus_to_exitcode(os.waitpid(started, 0)[1])


def requeue(data: dict[str, Any], job: Job, ended_as: str = "REQUEUED") -> None:
    """End the attempt and let the job wait for the next."""
    stop(job, _signal.SIGKILL)
    now = time.time()
    past = {key: value for key, value in job.items() if key != "history"}
    past.update(state=ended_as, end=past["end"] or now)
    job["history"].append(past)
    job.update(state="PENDING", reason="BeginTime", start=None, end=None, node_list="")
    job.update(submit=now, restarts=job["restarts"] + 1, exit=[0, 0], steps=[])
    job["runner"] = None
