"""sacct: jobs in the accounting database, and the resources that they used."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator import tracking
from orchestrator.jobs import JobState
from orchestrator.slurm import fields, job_ids, states
from orchestrator.usage import efficiency

#: The largest number of job IDs in one call.
MAX_JOB_IDS = 200

_DELIMITER = "\x1f"
# Without Restarts: 22.05 rejects it, and 24.11 was seen to print 1 for the first attempt of a
# requeued job. The order of the rows gives the attempts.
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
    # Last, because a command line may contain anything.
    "SubmitLine",
)
#: 24.11 also has StdOut, 22.05 does not.
_OWNER_COLUMNS = ("User", "UID", "WorkDir", "SubmitLine")
# TRESUsageInTot and not AveRSS: the sum over a step's tasks (man sacct, 22.05).
_USAGE_COLUMNS = (
    "JobID",
    "Submit",
    "End",
    "ElapsedRaw",
    "TotalCPU",
    "NCPUS",
    "NNodes",
    "NTasks",
    "AllocTRES",
    "MaxRSS",
    "TRESUsageInTot",
    "ConsumedEnergyRaw",
)
_JOB_ID = re.compile(r"\d+(?:_\d+)?", re.ASCII)
_JOB_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_CPU_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
#: Some releases print NO_VAL64 ("no value") as a number.
_MAX_JOULES = 1 << 60
#: Step states, worst first.
_SEVERITY = (
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


def command(ids: Sequence[str], since: datetime.datetime) -> list[str]:
    """List all attempts of these jobs from `since` on.

    Raises ValueError for an empty list: `sacct -j ""` means all jobs of the user.
    """
    return [*_base(since, _COLUMNS), "-X", "-j", _joined_ids(ids)]


def steps_command(
    ids: Sequence[str], since: datetime.datetime, columns: Sequence[str] = _COLUMNS
) -> list[str]:
    """List all attempts of these jobs with their steps."""
    return [*_base(since, columns), "-j", _joined_ids(ids)]


def by_name_command(names: Sequence[str], since: datetime.datetime) -> list[str]:
    """List the jobs with these full names; sacct omits held jobs (`man sacct`)."""
    if not names or not all(_JOB_NAME.fullmatch(name) for name in names):
        raise ValueError(f"not job names: {names!r}")
    return [*_base(since, _COLUMNS), "-X", f"--name={','.join(names)}"]


def owner_command(job_id: str, since: datetime.datetime) -> list[str]:
    """Show who submitted a job and where; sacct shows jobs of other users too."""
    return [*_base(since, _OWNER_COLUMNS), "-X", "-j", _joined_ids([job_id])]


def usage_command(job_id: str, since: datetime.datetime) -> list[str]:
    """List the used resources of all attempts of a job, with their steps."""
    return steps_command([job_id], since, _USAGE_COLUMNS)


def parse_owner(text: str) -> Row:
    """Parse the newest row of `owner_command`; empty if there is none."""
    rows = [line.split(_DELIMITER) for line in text.split("\n")]
    rows = [row for row in rows if len(row) == len(_OWNER_COLUMNS)]
    return dict(zip(_OWNER_COLUMNS, rows[-1], strict=True)) if rows else {}


def parse(
    lines: Iterable[str],
    observed_at: datetime.datetime,
    on_invalid: Callable[[str], object] = lambda line: None,
) -> list[tracking.Observation]:
    """Parse sacct's lines; steps are merged into the job that they follow.

    The rows of a job are numbered in the order in which they were submitted. Lines that cannot be
    parsed go to `on_invalid`.
    """
    jobs: list[tuple[Row, list[Row]]] = []
    last: Row | None = None
    for line in lines:
        if not line.strip():
            continue
        row = _parse_row(line)
        if row is None and last is not None and _DELIMITER not in line:
            # The last column continues: a command line may have several lines.
            last["SubmitLine"] += f"\n{line.rstrip()}"
            continue
        last = row
        if row is None:
            on_invalid(line)
        elif job_ids.parse_job_id(row["JobID"]).step is None:
            jobs.append((row, []))
        elif jobs and _is_step_of(row, jobs[-1][0]):
            jobs[-1][1].append(row)
        else:
            on_invalid(line)
    return _numbered([task for row, steps in jobs for task in _tasks(row, steps, observed_at)])


def parse_usage(
    lines: Iterable[str], submitted_at: datetime.datetime | None
) -> efficiency.Used | None:
    """Return what the attempt submitted at this time used, else the newest attempt.

    A requeued attempt has its own submit time. None if there is no such job.
    """
    attempts: list[tuple[Row, list[Row]]] = []
    for line in lines:
        parts = line.split(_DELIMITER)
        if len(parts) != len(_USAGE_COLUMNS):
            continue
        row = dict(zip(_USAGE_COLUMNS, parts, strict=True))
        try:
            step = job_ids.parse_job_id(row["JobID"]).step
        except ValueError:
            continue
        if step is None:
            attempts.append((row, []))
        elif attempts:
            attempts[-1][1].append(row)
    if not attempts:
        return None
    same = [attempt for attempt in attempts if _time(attempt[0], "Submit") == submitted_at]
    return _used(*(same or attempts)[-1])


def _base(since: datetime.datetime, columns: Sequence[str]) -> list[str]:
    start = since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    # Without -E the window ends at this host's "now". If its clock is ten minutes behind
    # slurmctld's, sacct omits the jobs of the last ten minutes, even with -j (24.11, faketime).
    window = ["-S", start, "-E", "now+7days"]
    return [
        "sacct",
        "-D",
        "-n",
        "-P",
        f"--delimiter={_DELIMITER}",
        *window,
        "-o",
        ",".join(columns),
    ]


def _joined_ids(ids: Sequence[str]) -> str:
    if not ids or not all(_JOB_ID.fullmatch(job_id) for job_id in ids):
        raise ValueError(f"not job IDs: {ids!r}")
    if len(ids) > MAX_JOB_IDS:
        raise ValueError(f"{len(ids)} job IDs in one sacct, at most {MAX_JOB_IDS}")
    return ",".join(ids)


def _parse_row(line: str) -> Row | None:
    parts = line.rstrip("\n").split(_DELIMITER, len(_COLUMNS) - 1)
    if len(parts) != len(_COLUMNS):
        return None
    row = dict(zip(_COLUMNS, parts, strict=True))
    try:
        job_ids.parse_job_id(row["JobIDRaw"])
        # A list of tasks that is cut or invalid raises here, not halfway through.
        for _ in job_ids.each_task(job_ids.parse_job_id(row["JobID"])):
            pass
    except ValueError:
        return None
    return row


def _is_step_of(step: Row, job: Row) -> bool:
    return job_ids.parse_job_id(job["JobID"]).text == job_ids.parse_job_id(step["JobID"]).text


def _time(row: Row, column: str) -> datetime.datetime | None:
    return fields.parse_time(row[column])


def _tasks(
    row: Row, steps: list[Row], observed_at: datetime.datetime
) -> Iterator[tracking.Observation]:
    """Yield the observation of a job, or of each pending task of an array."""
    job_id = job_ids.parse_job_id(row["JobID"])
    state = states.parse_parts(row["State"])
    # The row of an earlier attempt ends as REQUEUED (up to 24.11 at least; 26.05 keeps the state
    # in which a job ended that was requeued afterwards).
    ended = state.terminal or state.shown in (JobState.REQUEUED, JobState.RESIZING)
    ended_at = _time(row, "End") if ended else None
    # Without an end time the code is the initial 0:0 (22.05, see tracking).
    exit_code = fields.parse_exit_code(row["ExitCode"]) if ended_at else None
    node_list = fields.parse_text(row["NodeList"])
    # 22.05 prints the submit time as Start of a rejected job. Without nodes nothing started.
    started_at = _time(row, "Start") if node_list else None
    step_state, step_code = _worst_step(row, steps)
    gpus = fields.parse_gpus(row["AllocTRES"])
    cpus = fields.parse_cpus(row["AllocTRES"])
    limit_minutes = fields.parse_count(row["TimelimitRaw"])
    for task in job_ids.each_task(job_id):
        yield tracking.Observation(
            source="sacct",
            observed_at=observed_at,
            name=row["JobName"],
            job_id=task.text,
            raw_job_id=job_ids.parse_job_id(row["JobIDRaw"]).text,
            array_job_id=task.array_job_id,
            array_task_id=task.array_task_id,
            state=state.shown,
            raw_state=row["State"].strip(),
            # The former pending reason of a job that has started explains nothing.
            reason=None if started_at else states.parse_reason(row["Reason"], state.shown),
            exit_code=exit_code.code if exit_code else None,
            exit_signal=exit_code.signal if exit_code else None,
            partition=fields.parse_text(row["Partition"]),
            account=fields.parse_text(row["Account"]),
            qos=fields.parse_text(row["QOS"]),
            nodes=fields.parse_count(row["NNodes"]),
            gpus=fields.parse_gpus(row["ReqTRES"]) if gpus is None else gpus,
            cpus=fields.parse_cpus(row["ReqTRES"]) if cpus is None else cpus,
            node_list=node_list,
            time_limit_seconds=None if limit_minutes is None else limit_minutes * 60,
            submitted_at=_time(row, "Submit"),
            started_at=started_at,
            ended_at=ended_at,
            submit_line=fields.parse_text(row["SubmitLine"]),
            step_state=step_state,
            step_exit_code=step_code.code if step_code else None,
            step_exit_signal=step_code.signal if step_code else None,
        )


def _worst_step(row: Row, steps: list[Row]) -> tuple[JobState | None, fields.ExitCode | None]:
    """Return state and exit code of the worst step; without steps the DerivedExitCode."""
    if not steps:
        derived = fields.parse_exit_code(row["DerivedExitCode"])
        return None, derived if derived and (derived.code or derived.signal) else None

    def severity(step: Row) -> tuple[int, int, int]:
        state = states.parse_state(step["State"])
        code = fields.parse_exit_code(step["ExitCode"])
        rank = len(_SEVERITY) - _SEVERITY.index(state) if state in _SEVERITY else 0
        return rank, code.signal if code else 0, code.code if code else 0

    worst = max(steps, key=severity)
    return states.parse_state(worst["State"]), fields.parse_exit_code(worst["ExitCode"])


def _numbered(rows: list[tracking.Observation]) -> list[tracking.Observation]:
    """Number the rows of each job by submit time; a missing time sorts last."""

    def submitted(index: int) -> float:
        at = rows[index].submitted_at
        return at.timestamp() if at else math.inf

    counts: dict[str, int] = {}
    numbered = list(rows)
    for index in sorted(range(len(rows)), key=submitted):
        row = rows[index]
        number = counts[row.job_id] = counts.get(row.job_id, -1) + 1
        numbered[index] = dataclasses.replace(row, row_number=number)
    return numbered


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
        complete=bool(steps) and all(_time(part, "End") for part in (row, *steps)),
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
