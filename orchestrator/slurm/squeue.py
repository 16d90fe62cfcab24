"""squeue: one call for all jobs of the user, read as a stream."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator

from orchestrator import tracking
from orchestrator.jobs import JobState
from orchestrator.slurm import fields, job_ids, states

#: Stands in no name, path or reason; squeue prints it as it is given.
DELIMITER = "\x1f"
# -O and not -o: only -O has the restart count, the exit code, allocated TRES and the log's path
# (22.05, 24.11 and 26.05 alike). A size of 0 (":" and a suffix) prints a field uncut. Free text
# comes last.
_FIELDS = (
    "JobArrayID",
    "JobID",
    "State",
    "exit_code",
    "RestartCnt",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumNodes",
    "tres-alloc",
    "tres-per-node",
    "Partition",
    "Account",
    "QOS",
    "NodeList",
    "STDOUT",
    "Reason",
    "Name",
)
_STDOUT = _FIELDS.index("STDOUT")
#: States whose StartTime is the scheduler's guess, or that of an attempt that is over.
_WAITING = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_FED,
        JobState.REQUEUE_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.RESV_DEL_HOLD,
        JobState.UNKNOWN,
    }
)
#: COMPLETING has its end and its exit code already (epilog, or processes that will not die).
_OVER = frozenset({JobState.COMPLETING, JobState.STAGE_OUT})

Keep = Callable[[str, str, str], bool]


def squeue_command() -> list[str]:
    """Build the one question: all jobs of this user, in all states, in all partitions."""
    # `-j a,b` would fetch the jobs of all users and filter here; without `-t all` a job that
    # ended is gone at once. An array's waiting tasks are one line, which parse_squeue expands.
    form = ",".join(f"{field}:{DELIMITER}" for field in _FIELDS[:-1])
    return ["squeue", "--me", "-h", "-a", "-t", "all", "-O", f"{form},{_FIELDS[-1]}:0"]


def parse_squeue(
    lines: Iterable[str],
    observed_at: datetime.datetime,
    keep: Keep,
    not_understood: Callable[[str], object] = lambda line: None,
) -> Iterator[tracking.Observation]:
    """Read squeue's lines as they come; each array task that waits is an observation of its own.

    keep(name, job_id, log's path) decides, before anything else is read, whether a line matters;
    the waiting rest of an array asks with the array's own job ID. Lines that can't be read are
    handed to not_understood.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            yield from parse_squeue_line(line, observed_at, keep)
        except ValueError:
            not_understood(line)


def parse_squeue_line(
    line: str, observed_at: datetime.datetime, keep: Keep
) -> Iterator[tracking.Observation]:
    """Read one line; ValueError where it is no line of squeue's."""
    columns = line.rstrip("\n").split(DELIMITER, len(_FIELDS) - 1)
    if len(columns) != len(_FIELDS):
        raise ValueError("too few columns")
    name = columns[-1]
    job_id = job_ids.parse_job_id(columns[0])
    if not keep(name, job_id.text, columns[_STDOUT]):
        return
    row = dict(zip(_FIELDS, columns, strict=True))
    raw_job_id = job_ids.parse_job_id(row["JobID"]).text
    reading = states.read_state(row["State"])
    started, over = _phase(reading)
    node_list = fields.parse_text(row["NodeList"])
    exit_code = fields.parse_wait_status(row["exit_code"]) if over else None
    # A job that never started has its end as StartTime, and no nodes.
    started_at = fields.parse_time(row["StartTime"]) if started and node_list else None
    for task in job_ids.each_task(job_id):
        yield tracking.Observation(
            source="squeue",
            observed_at=observed_at,
            name=name,
            job_id=task.text,
            raw_job_id=raw_job_id,
            array_job_id=task.array_job_id,
            array_task_id=task.array_task_id,
            state=reading.shown,
            raw_state=row["State"].strip(),
            # A running job keeps the reason for which it once waited ("JobHeldUser", 24.11).
            reason=(
                states.parse_reason(row["Reason"], reading.shown) if over or not started else None
            ),
            exit_code=exit_code.code if exit_code else None,
            exit_signal=exit_code.signal if exit_code else None,
            partition=fields.parse_text(row["Partition"]),
            account=fields.parse_text(row["Account"]),
            qos=fields.parse_text(row["QOS"]),
            nodes=fields.parse_count(row["NumNodes"]),
            gpus=_gpus(row),
            cpus=fields.parse_cpus(row["tres-alloc"]),
            node_list=node_list,
            time_limit_seconds=fields.parse_duration_seconds(row["TimeLimit"]),
            submitted_at=fields.parse_time(row["SubmitTime"]),
            started_at=started_at,
            ended_at=fields.parse_time(row["EndTime"]) if over else None,
            restart_count=fields.parse_count(row["RestartCnt"]),
            stdout_path=fields.expand_output_path(
                _pattern(row["STDOUT"], is_task=task.array_task_id is not None),
                name=name,
                job_id=None if job_id.waiting_tasks else raw_job_id,
                array_job_id=task.array_job_id,
                task=task.array_task_id,
            ),
        )


def _pattern(stdout: str, *, is_task: bool) -> str:
    """Return the pattern of the log, with the default that Slurm really uses for array tasks.

    22.05 prints slurm-JOBID.out for an array without --output and writes slurm-%A_%a.out; a number
    where a pattern was given stands as %j.
    """
    return re.sub(r"/slurm-\d+\.out$", "/slurm-%A_%a.out", stdout) if is_task else stdout


def _phase(reading: states.StateReading) -> tuple[bool, bool]:
    """Return whether the job has started and whether its work is over."""
    over = reading.terminal or reading.shown in _OVER
    return over or reading.shown not in _WAITING, over


def _gpus(row: dict[str, str]) -> int | None:
    """Count the GPUs of the job; a site without AccountingStorageTRES=gres/gpu has no total."""
    total = fields.parse_gpus(row["tres-alloc"])
    if total is not None:
        return total
    a_node = fields.parse_gpus(row["tres-per-node"])
    if a_node is None:
        return 0 if fields.parse_text(row["tres-alloc"]) else None
    nodes = fields.parse_count(row["NumNodes"])
    return None if nodes is None else a_node * nodes
