"""sacct: what squeue no longer knows, from the accounting database."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable, Iterable, Sequence

from orchestrator import tracking
from orchestrator.jobs import JobState
from orchestrator.slurm import fields, job_ids, states

#: The most job IDs in one call.
MOST_JOB_IDS = 200

_DELIMITER = "\x1f"
# Restarts is left out: 22.05 refuses it, and on 24.11 the row of the first attempt of a requeued
# job was seen with 1. The rows' order tells the attempts.
_COLUMNS = (
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "Submit",
    "Start",
    "End",
    "TimelimitRaw",
    "NNodes",
    "ReqTRES",
    "AllocTRES",
    "Partition",
    "Account",
    "QOS",
    "NodeList",
    "Reason",
    "JobName",
    # Last: the command line of sbatch can hold anything.
    "SubmitLine",
)
#: 24.11 has StdOut too, 22.05 has not.
_PAPERS = ("User", "UID", "WorkDir", "SubmitLine")
_ASKED_ID = re.compile(r"\d+(?:_\d+)?", re.ASCII)
_ASKED_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
#: Worst first; what is not here says nothing bad.
_WORST = (
    JobState.OUT_OF_MEMORY,
    JobState.NODE_FAIL,
    JobState.BOOT_FAIL,
    JobState.TIMEOUT,
    JobState.DEADLINE,
    JobState.FAILED,
    JobState.PREEMPTED,
    JobState.CANCELLED,
)

Row = dict[str, str]


def sacct_command(job_ids: Sequence[str], since: datetime.datetime) -> list[str]:
    """Ask for the allocations of these jobs, all their attempts, from `since` on.

    ValueError for an empty list: `sacct -j ""` means all jobs of the user.
    """
    return [*_base(since), "-X", "-j", _joined_ids(job_ids)]


def sacct_steps_command(job_ids: Sequence[str], since: datetime.datetime) -> list[str]:
    """Ask for these jobs with their steps."""
    return [*_base(since), "-j", _joined_ids(job_ids)]


def sacct_by_name_command(names: Sequence[str], since: datetime.datetime) -> list[str]:
    """Look for jobs by full Slurm job name; a job that is held does not show (`man sacct`)."""
    if not names or not all(_ASKED_NAME.fullmatch(name) for name in names):
        raise ValueError(f"not job names: {names!r}")
    return [*_base(since), "-X", f"--name={','.join(names)}"]


def sacct_papers_command(job_id: str, since: datetime.datetime) -> list[str]:
    """Ask whose a job is and where it was submitted; sacct tells of other users' jobs too."""
    _joined_ids([job_id])
    start = since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    form = ",".join(_PAPERS)
    window = ["-S", start, "-E", "now+7days"]
    delimiter = f"--delimiter={_DELIMITER}"
    return ["sacct", "-X", "-n", "-P", delimiter, *window, "-o", form, "-j", job_id]


def parse_sacct_papers(text: str) -> dict[str, str]:
    """Read the newest row of that answer; empty where there is none."""
    lines = [line for line in text.split("\n") if line.count(_DELIMITER) == len(_PAPERS) - 1]
    if not lines:
        return {}
    return dict(zip(_PAPERS, lines[-1].split(_DELIMITER), strict=True))


def parse_sacct(
    lines: Iterable[str],
    observed_at: datetime.datetime,
    not_understood: Callable[[str], object] = lambda line: None,
) -> list[tracking.Observation]:
    """Read sacct's lines; steps are merged into the job's row that they stand behind.

    The rows of one job are numbered in the order in which they were submitted.
    """
    groups: list[tuple[Row, list[Row]]] = []
    last: Row | None = None
    for line in lines:
        if not line.strip():
            continue
        row = _row(line)
        if row is None and last is not None and _DELIMITER not in line:
            # The last column goes on: a command line may have several lines, and srun's in our own
            # scripts has.
            last["SubmitLine"] += f"\n{line.rstrip()}"
            continue
        last = row
        if row is None:
            not_understood(line)
        elif job_ids.parse_job_id(row["JobID"]).step is None:
            groups.append((row, []))
        elif groups and _same_job(groups[-1][0], row):
            groups[-1][1].append(row)
        else:
            not_understood(line)
    found = [seen for row, steps in groups for seen in _observations(row, steps, observed_at)]
    return _numbered(found)


def _base(since: datetime.datetime) -> list[str]:
    start = since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    form = ",".join(_COLUMNS)
    # The end of the window is this host's "now" unless said: with its clock ten minutes behind
    # slurmctld's, the jobs of the last ten minutes are left out, `-j` or not (24.11, faketime).
    window = ["-S", start, "-E", "now+7days"]
    return ["sacct", "-D", "-n", "-P", f"--delimiter={_DELIMITER}", *window, "-o", form]


def _joined_ids(asked: Sequence[str]) -> str:
    if not asked or not all(_ASKED_ID.fullmatch(job_id) for job_id in asked):
        raise ValueError(f"not job IDs: {asked!r}")
    if len(asked) > MOST_JOB_IDS:
        raise ValueError(f"{len(asked)} job IDs in one sacct, {MOST_JOB_IDS} are the most")
    return ",".join(asked)


def _row(line: str) -> Row | None:
    parts = line.rstrip("\n").split(_DELIMITER, len(_COLUMNS) - 1)
    if len(parts) != len(_COLUMNS):
        return None
    row = dict(zip(_COLUMNS, parts, strict=True))
    try:
        waiting = job_ids.parse_job_id(row["JobID"]).waiting_tasks
        job_ids.parse_job_id(row["JobIDRaw"])
        if waiting is not None:
            # Cut short or senseless lists show here, not halfway through.
            for _ in job_ids.expand_tasks(waiting):
                pass
    except ValueError:
        return None
    return row


def _same_job(job: Row, step: Row) -> bool:
    return job_ids.parse_job_id(job["JobID"]).text == job_ids.parse_job_id(step["JobID"]).text


def _observations(
    row: Row, steps: list[Row], observed_at: datetime.datetime
) -> list[tracking.Observation]:
    job_id = job_ids.parse_job_id(row["JobID"])
    raw_job_id = job_ids.parse_job_id(row["JobIDRaw"]).text
    reading = states.read_state(row["State"])
    # REQUEUED is how the row of an earlier attempt ends (up to 24.11 at least; 26.05 keeps the
    # state in which a job ended that was requeued afterwards).
    over = reading.terminal or reading.shown in (JobState.REQUEUED, JobState.RESIZING)
    ended_at = fields.parse_time(row["End"]) if over else None
    # Without an end its code is the 0:0 that each row begins with (22.05, see tracking).
    exit_code = fields.parse_exit_code(row["ExitCode"]) if ended_at else None
    node_list = fields.parse_text(row["NodeList"])
    # 22.05 gives a job that was refused its submit time as Start; without nodes nothing started.
    started_at = fields.parse_time(row["Start"]) if node_list else None
    step_state, step_code = _worst_step(row, steps)
    gpus = fields.parse_gpus(row["AllocTRES"])
    cpus = fields.parse_cpus(row["AllocTRES"])
    first = tracking.Observation(
        source="sacct",
        observed_at=observed_at,
        name=row["JobName"],
        job_id=job_id.text,
        raw_job_id=raw_job_id,
        array_job_id=job_id.array_job_id,
        array_task_id=job_id.array_task_id,
        state=reading.shown,
        raw_state=row["State"].strip(),
        # The last reason for which it waited; once it ran that explains nothing.
        reason=None if started_at else states.parse_reason(row["Reason"], reading.shown),
        exit_code=exit_code.code if exit_code else None,
        exit_signal=exit_code.signal if exit_code else None,
        partition=fields.parse_text(row["Partition"]),
        account=fields.parse_text(row["Account"]),
        qos=fields.parse_text(row["QOS"]),
        nodes=fields.parse_count(row["NNodes"]),
        gpus=fields.parse_gpus(row["ReqTRES"]) if gpus is None else gpus,
        cpus=fields.parse_cpus(row["ReqTRES"]) if cpus is None else cpus,
        node_list=node_list,
        time_limit_seconds=fields.parse_minutes_as_seconds(row["TimelimitRaw"]),
        submitted_at=fields.parse_time(row["Submit"]),
        started_at=started_at,
        ended_at=ended_at,
        submit_line=fields.parse_text(row["SubmitLine"]),
        step_state=step_state,
        step_exit_code=step_code.code if step_code else None,
        step_exit_signal=step_code.signal if step_code else None,
    )
    return [
        dataclasses.replace(
            first,
            job_id=task.text,
            array_job_id=task.array_job_id,
            array_task_id=task.array_task_id,
        )
        for task in job_ids.each_task(job_id)
    ]


def _worst_step(row: Row, steps: list[Row]) -> tuple[JobState | None, fields.ExitCode | None]:
    """Return state and exit code of the worst step; without steps what DerivedExitCode tells."""
    if not steps:
        derived = fields.parse_exit_code(row["DerivedExitCode"])
        return None, derived if derived and (derived.code or derived.signal) else None

    def badness(step: Row) -> tuple[int, int, int]:
        state = states.parse_state(step["State"])
        code = fields.parse_exit_code(step["ExitCode"])
        rank = len(_WORST) - _WORST.index(state) if state in _WORST else 0
        return rank, code.signal if code else 0, code.code if code else 0

    worst = max(steps, key=badness)
    code = fields.parse_exit_code(worst["ExitCode"])
    return states.parse_state(worst["State"]), code


def _numbered(found: list[tracking.Observation]) -> list[tracking.Observation]:
    rows: dict[str, list[tuple[float, int]]] = {}
    for place, seen in enumerate(found):
        at = seen.submitted_at.timestamp() if seen.submitted_at else float("inf")
        rows.setdefault(seen.job_id, []).append((at, place))
    numbers = {
        place: number
        for places in rows.values()
        for number, (_, place) in enumerate(sorted(places))
    }
    return [
        dataclasses.replace(seen, row_number=numbers[place]) for place, seen in enumerate(found)
    ]
