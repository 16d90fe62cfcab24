"""sacct: jobs in the accounting database, and the resources that they used."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator import tracking
from orchestrator.jobs import TERMINAL, JobState
from orchestrator.slurm import fields, job_ids, states
from orchestrator.usage import efficiency

#: The largest number of job IDs in one call.
MAX_JOB_IDS = 200

_DELIMITER = "\x1f"
# Without Restarts: 22.05 rejects it, and 24.11 was seen to print 1 for the first attempt of a
# requeued job. The order of the rows gives the attempts.
COLUMNS = (
    *("JobID", "JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End"),
    *("TimelimitRaw", "NNodes", "ReqTRES", "AllocTRES", "Partition", "Account", "QOS"),
    # SubmitLine is last, because a command line may contain anything.
    *("NodeList", "Reason", "JobName", "SubmitLine"),
)
#: 24.11 also has StdOut, 22.05 does not.
OWNER_COLUMNS = ("JobID", "User", "UID", "WorkDir", "SubmitLine")
# TRESUsageInTot and not AveRSS: the sum over a step's tasks (man sacct, 22.05).
USAGE_COLUMNS = (
    *("JobID", "Submit", "End", "ElapsedRaw", "TotalCPU", "NCPUS", "NNodes", "NTasks"),
    *("AllocTRES", "MaxRSS", "TRESUsageInTot", "ConsumedEnergyRaw"),
)
_JOB_ID = re.compile(r"\d+(?:_\d+)?", re.ASCII)
_JOB_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_CPU_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
#: Some releases print NO_VAL64 ("no value") as a number.
_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_MAX_JOULES = 1 << 60
#: Step states, worst first.
_SEVERITY = (
    *(JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.TIMEOUT),
    *(JobState.DEADLINE, JobState.FAILED, JobState.PREEMPTED, JobState.CANCELLED),
)

Row = dict[str, str]


def command(
    since: datetime.datetime,
    *,
    ids: Sequence[str] = (),
    names: Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
    steps: bool = False,
) -> list[str]:
    """List all attempts from `since` on of 1 to 200 job IDs, or of jobs with these full names.

    Raises ValueError for other lists: `sacct -j ""` means all jobs of the user. sacct omits held
    jobs if it is queried by name, and shows jobs of other users too by ID.
    """
    valid = all(map(_JOB_ID.fullmatch, ids)) and all(map(_JOB_NAME.fullmatch, names))
    if not valid or bool(ids) is bool(names) or len(ids) > MAX_JOB_IDS:
        raise ValueError(f"not 1 to {MAX_JOB_IDS} job IDs, or names: {ids or names!r}")
    start = since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return [
        *("sacct", "-D", "-n", "-P", f"--delimiter={_DELIMITER}"),
        # Without -E the window ends at this host's "now". If its clock is ten minutes behind
        # slurmctld's, sacct omits the jobs of the last ten minutes, even with -j (24.11, faketime).
        *("-S", start, "-E", "now+7days", "-o", ",".join(columns)),
        *([] if steps else ["-X"]),
        *(["-j", ",".join(ids)] if ids else [f"--name={','.join(names)}"]),
    ]


def parse_newest(lines: Iterable[str], columns: Sequence[str]) -> Row:
    """Return the last row; empty if there is none."""
    attempts = _attempts(lines, columns)
    return attempts[-1][0] if attempts else {}


def parse(
    lines: Iterable[str],
    on_invalid: Callable[[str], object] = lambda line: None,
) -> list[tracking.Observation]:
    """Parse sacct's lines; steps are merged into the job that they follow.

    The rows of a job are numbered in the order in which they were submitted. Lines that cannot be
    parsed go to `on_invalid`.
    """
    attempts = _attempts(lines, COLUMNS, on_invalid)
    rows = [task for row, steps in attempts for task in _tasks(row, steps)]
    rows.sort(key=lambda row: row.submitted_at or _LAST)
    counts: collections.Counter[str] = collections.Counter()
    for index, row in enumerate(rows):
        rows[index] = dataclasses.replace(row, row_number=counts[row.job_id])
        counts[row.job_id] += 1
    return rows


def parse_usage(
    lines: Iterable[str], submitted_at: datetime.datetime | None
) -> efficiency.Used | None:
    """Return what the attempt submitted at this time used, else the newest attempt.

    A requeued attempt has its own submit time. None if there is no such job.
    """
    attempts = _attempts(lines, USAGE_COLUMNS)
    same = [a for a in attempts if fields.parse_time(a[0]["Submit"]) == submitted_at]
    return _used(*(same or attempts)[-1]) if attempts else None


def _attempts(
    lines: Iterable[str],
    columns: Sequence[str],
    on_invalid: Callable[[str], object] = lambda line: None,
) -> list[tuple[Row, list[Row]]]:
    """Return the row of each attempt with those of its steps, which follow it."""
    attempts: list[tuple[Row, list[Row]]] = []
    last: Row | None = None
    for line in filter(str.strip, lines):
        row = _parse_row(line, columns)
        if row is None and last is not None and _DELIMITER not in line:
            # The last column continues: a command line may have several lines.
            last[columns[-1]] += f"\n{line.rstrip()}"
            continue
        last = row
        job_id = job_ids.parse_job_id(row["JobID"]) if row else None
        if row is None or job_id is None:
            on_invalid(line)
        elif job_id.step is None:
            attempts.append((row, []))
        elif attempts and job_ids.parse_job_id(attempts[-1][0]["JobID"]).text == job_id.text:
            attempts[-1][1].append(row)
        else:
            on_invalid(line)
    return attempts


def _parse_row(line: str, columns: Sequence[str]) -> Row | None:
    values = line.rstrip("\n").split(_DELIMITER, len(columns) - 1)
    try:
        row = dict(zip(columns, values, strict=True))
        job_ids.parse_job_id(row.get("JobIDRaw", row["JobID"]))
        # A list of tasks that is cut or invalid raises here, not halfway through.
        collections.deque(job_ids.each_task(job_ids.parse_job_id(row["JobID"])), maxlen=0)
    except ValueError:
        return None
    return row


def _tasks(row: Row, steps: Sequence[Row]) -> Iterator[tracking.Observation]:
    """Yield the observation of a job, or of each pending task of an array."""
    state = states.parse_state(row["State"])
    # The row of an earlier attempt ends as REQUEUED (up to 24.11 at least; 26.05 keeps the state
    # in which a job ended that was requeued afterwards).
    ended = state in TERMINAL or state in (JobState.REQUEUED, JobState.RESIZING)
    ended_at = fields.parse_time(row["End"]) if ended else None
    # Without an end time the code is the initial 0:0 (22.05, see tracking).
    exit_code, exit_signal = fields.parse_exit_code(row["ExitCode"] if ended_at else "")
    node_list = fields.parse_text(row["NodeList"])
    # 22.05 prints the submit time as Start of a rejected job. Without nodes nothing started.
    started_at = fields.parse_time(row["Start"]) if node_list else None
    step_state, step_exit_code, step_exit_signal = _worst_step(row, steps)
    gpus = fields.parse_gpus(row["AllocTRES"])
    cpus = fields.parse_cpus(row["AllocTRES"])
    for task in job_ids.each_task(job_ids.parse_job_id(row["JobID"])):
        yield tracking.Observation(
            source="sacct",
            name=row["JobName"],
            job_id=task.text,
            raw_job_id=job_ids.parse_job_id(row["JobIDRaw"]).text,
            array_job_id=task.array_job_id,
            array_task_id=task.array_task_id,
            state=state,
            raw_state=row["State"].strip(),
            # The former pending reason of a job that has started explains nothing.
            reason=None if started_at else states.parse_reason(row["Reason"], state),
            exit_code=exit_code,
            exit_signal=exit_signal,
            partition=fields.parse_text(row["Partition"]),
            account=fields.parse_text(row["Account"]),
            qos=fields.parse_text(row["QOS"]),
            nodes=fields.parse_count(row["NNodes"]),
            gpus=fields.parse_gpus(row["ReqTRES"]) if gpus is None else gpus,
            cpus=fields.parse_cpus(row["ReqTRES"]) if cpus is None else cpus,
            node_list=node_list,
            # A plain number is minutes.
            time_limit_seconds=fields.parse_duration_seconds(row["TimelimitRaw"]),
            submitted_at=fields.parse_time(row["Submit"]),
            started_at=started_at,
            ended_at=ended_at,
            submit_line=fields.parse_text(row["SubmitLine"]),
            step_state=step_state,
            step_exit_code=step_exit_code,
            step_exit_signal=step_exit_signal,
        )


def _worst_step(row: Row, steps: Sequence[Row]) -> tuple[JobState | None, int | None, int | None]:
    """Return state, exit code and signal of the worst step; without steps the DerivedExitCode."""
    if not steps:
        derived = fields.parse_exit_code(row["DerivedExitCode"])
        return (None, *(derived if any(derived) else (None, None)))

    def severity(step: Row) -> tuple[int, int, int]:
        state = states.parse_state(step["State"])
        code, number = fields.parse_exit_code(step["ExitCode"])
        rank = len(_SEVERITY) - _SEVERITY.index(state) if state in _SEVERITY else 0
        return rank, number or 0, code or 0

    worst = max(steps, key=severity)
    return (states.parse_state(worst["State"]), *fields.parse_exit_code(worst["ExitCode"]))


def _used(row: Row, steps: Sequence[Row]) -> efficiency.Used:
    nodes = fields.parse_count(row["NNodes"]) or 1
    requested = fields.parse_amount(fields.parse_tres(row["AllocTRES"]).get("mem", ""))
    joules = fields.parse_amount(row["ConsumedEnergyRaw"])
    return efficiency.Used(
        elapsed_seconds=fields.parse_count(row["ElapsedRaw"]),
        cpus=fields.parse_count(row["NCPUS"]),
        # With jobacct_gather/none it is 0 and there is no memory; every job uses some CPU time.
        cpu_seconds=_cpu_seconds(row["TotalCPU"]) or None,
        memory_peak_bytes=max(filter(None, map(_peak_bytes, steps)), default=None),
        memory_asked_bytes=requested and requested // nodes,
        energy_joules=joules if joules and joules < _MAX_JOULES else None,
        complete=bool(steps) and all(fields.parse_time(part["End"]) for part in (row, *steps)),
    )


def _peak_bytes(step: Row) -> int | None:
    """Return an upper bound of a step's memory on its fullest node.

    MaxRSS is that of one task. Several tasks on a node use at most that many times as much, and at
    most the sum over all tasks. With one task per node, as with torchrun, MaxRSS is exact.
    """
    largest = fields.parse_amount(step["MaxRSS"])
    if largest is None:
        return None
    tasks = fields.parse_count(step["NTasks"]) or 1
    per_node = math.ceil(tasks / (fields.parse_count(step["NNodes"]) or 1))
    total = fields.parse_amount(fields.parse_tres(step["TRESUsageInTot"]).get("mem", ""))
    return min(largest * per_node, max(total or largest * per_node, largest))


def _cpu_seconds(raw: str) -> float | None:
    """Parse TotalCPU: `[D-][HH:]MM:SS[.mmm]`."""
    match = _CPU_TIME.fullmatch(raw.strip())
    if match is None or len(raw) > 30:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return days * 86400 + hours * 3600 + minutes * 60 + float(match[4])
