"""squeue: the user's jobs, and the pending jobs of a partition."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from orchestrator import tracking
from orchestrator.files import run_folder
from orchestrator.jobs import TERMINAL, JobState
from orchestrator.slurm import fields, job_ids, states

#: Does not occur in names, paths or reasons; squeue prints it unchanged.
DELIMITER = "\x1f"
# -O and not -o: only -O has the restart count, the exit code, allocated TRES and the log's path
# (22.05, 24.11 and 26.05). A size of 0 (":" and a suffix) prints a field uncut. Free text is last.
_FIELDS = (
    *("JobArrayID", "JobID", "State", "exit_code", "RestartCnt", "SubmitTime", "StartTime"),
    *("EndTime", "PreemptTime", "TimeLimit", "NumNodes", "tres-alloc", "tres-per-node"),
    *("Partition", "Account", "QOS", "NodeList", "STDOUT", "Reason", "Name"),
)
#: States whose StartTime is the scheduler's estimate, or that of the previous attempt.
_NOT_STARTED = frozenset(
    {
        *(JobState.PENDING, JobState.REQUEUED, JobState.REQUEUE_FED, JobState.REQUEUE_HOLD),
        *(JobState.SPECIAL_EXIT, JobState.RESV_DEL_HOLD, JobState.UNKNOWN),
    }
)
#: A COMPLETING job has its end time and exit code (epilog, or processes that ignore SIGKILL).
_ENDED = TERMINAL | {JobState.COMPLETING, JobState.STAGE_OUT}
#: Filename patterns that name a file per node or step (man sbatch).
_UNKNOWN_ESCAPE = re.compile(r"(?<!%)(?:%%)*%\d*[^jJAaxu%\d]")
#: Pending reasons of jobs that compete for free nodes.
_COMPETING = frozenset({"None", "Priority", "Resources"})

Keep = Callable[[str, str, str], bool]


def command() -> list[str]:
    """List all jobs of this user, in all states and partitions."""
    # `-j a,b` would fetch the jobs of all users and filter here. Without `-t all` a job that has
    # ended is not listed.
    columns = ",".join(f"{field}:{DELIMITER}" for field in _FIELDS[:-1])
    return ["squeue", "--me", "-h", "-a", "-t", "all", "-O", f"{columns},{_FIELDS[-1]}:0"]


def parse(
    lines: Iterable[str],
    keep: Keep,
    on_invalid: Callable[[str], object] = lambda line: None,
) -> Iterator[tracking.Observation]:
    """Parse squeue's lines; each pending array task becomes its own observation.

    `keep(name, job_id, log_path)` selects lines before they are parsed further. For the pending
    tasks of an array it gets the array's job ID. Lines that cannot be parsed go to `on_invalid`.
    """
    for line in lines:
        if line.strip():
            try:
                yield from _parse_line(line, keep)
            except ValueError:
                on_invalid(line)


def _parse_line(line: str, keep: Keep) -> Iterator[tracking.Observation]:
    columns = line.rstrip("\n").split(DELIMITER, len(_FIELDS) - 1)
    row = dict(zip(_FIELDS, columns, strict=True))
    job_id = job_ids.parse_job_id(row["JobArrayID"])
    if not keep(row["Name"], job_id.text, row["STDOUT"]):
        return
    raw_job_id = job_ids.parse_job_id(row["JobID"]).text
    state = _state(row)
    ended = state in _ENDED
    started = state not in _NOT_STARTED
    node_list = fields.parse_text(row["NodeList"])
    exit_code, exit_signal = fields.parse_wait_status(row["exit_code"] if ended else "")
    shared = tracking.Observation(
        source="squeue",
        name=row["Name"],
        job_id=job_id.text,
        raw_job_id=raw_job_id,
        state=state,
        raw_state=row["State"].strip(),
        # A running job keeps its former pending reason ("JobHeldUser", 24.11).
        reason=states.parse_reason(row["Reason"], state) if ended or not started else None,
        exit_code=exit_code,
        exit_signal=exit_signal,
        partition=fields.parse_text(row["Partition"]),
        account=fields.parse_text(row["Account"]),
        qos=fields.parse_text(row["QOS"]),
        nodes=fields.parse_count(row["NumNodes"]),
        gpus=_gpus(row),
        cpus=fields.parse_cpus(row["tres-alloc"]),
        node_list=node_list,
        time_limit_seconds=fields.parse_duration_seconds(row["TimeLimit"]),
        submitted_at=fields.parse_time(row["SubmitTime"]),
        # The StartTime of a job that never started is its end; it has no nodes.
        started_at=fields.parse_time(row["StartTime"]) if started and node_list else None,
        ended_at=fields.parse_time(row["EndTime"]) if ended else None,
        restart_count=fields.parse_count(row["RestartCnt"]),
    )
    for task in job_ids.each_task(job_id):
        yield dataclasses.replace(
            shared,
            job_id=task.text,
            array_job_id=task.array_job_id,
            array_task_id=task.array_task_id,
            stdout_path=_stdout_path(row, task, None if job_id.pending_tasks else raw_job_id),
        )


def _state(row: dict[str, str]) -> JobState:
    """Return the job's state; PREEMPTED if it failed in the grace time of its preemption.

    Its job steps get SIGTERM when the grace time begins. If the script then ends with an error,
    Slurm before 24.05 reports FAILED, later releases PREEMPTED (Slurm commit a689104d15). A job
    that was only suspended has no PreemptTime. Measured on 22.05, 24.11 and 26.05.
    """
    state = states.parse_state(row["State"])
    if state is JobState.FAILED and fields.parse_time(row["PreemptTime"]) is not None:
        return JobState.PREEMPTED
    return state


def _stdout_path(row: dict[str, str], task: job_ids.JobId, raw_job_id: str | None) -> str | None:
    """Return the path of a job's log; None while it is unknown.

    squeue prints the pattern as it was submitted (seen on 22.05, 24.11 and 26.05). 26.05 prints a
    relative one without its folder.
    """
    pattern = row["STDOUT"].strip()
    if task.array_task_id is not None:
        # 22.05 prints slurm-JOBID.out for a task without --output, and writes this.
        pattern = re.sub(r"/slurm-\d+\.out$", "/slurm-%A_%a.out", pattern)
    if not pattern.startswith("/") or _UNKNOWN_ESCAPE.search(pattern):
        return None
    own_id = task.text if task.array_task_id is not None else raw_job_id or task.text
    return run_folder.expand(pattern, job_id=own_id, raw_job_id=raw_job_id, name=row["Name"])


def _gpus(row: dict[str, str]) -> int | None:
    """Return the job's GPUs; without AccountingStorageTRES=gres/gpu a site has no total."""
    total = fields.parse_gpus(row["tres-alloc"])
    if total is not None:
        return total
    per_node = fields.parse_gpus(row["tres-per-node"])
    if per_node is None:
        return 0 if fields.parse_text(row["tres-alloc"]) else None
    nodes = fields.parse_count(row["NumNodes"])
    return None if nodes is None else per_node * nodes


def pending_command(partition: str) -> list[str]:
    """List job ID, priority and reason of the pending jobs in a partition."""
    return ["squeue", "-h", "-a", "-t", "PD", "-p", partition, "-o", "%A|%Q|%r"]


def count_jobs_before(text: str, job_id: str, priority: int) -> int:
    """Count the startable jobs of higher priority, and older ones of the same priority.

    The pending tasks of an array are one line and count once.
    """
    count = 0
    for line in text.splitlines():
        other_id, other_priority, reason = [*line.strip().split("|", 2), "", ""][:3]
        other = fields.parse_amount(other_priority)
        # The job's own priority may have grown since it was read.
        if other is not None and reason in _COMPETING and other_id != job_id:
            is_older = (fields.parse_count(other_id) or 0) < (fields.parse_count(job_id) or 0)
            count += other > priority or (other == priority and is_older)
    return count
