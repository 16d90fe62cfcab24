"""Rows of usage, schedules, notices, the controller, the configuration and the database."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from orchestrator.rows.contract import schemas
from orchestrator.rows.contract.jobs import Row
from orchestrator.schedules import records as schedules


class UsageRow(TypedDict):
    job: NotRequired[str]
    name: NotRequired[str]
    sweep: NotRequired[str | None]
    label: NotRequired[str]
    month: NotRequired[Annotated[str, "YYYY-MM, in local time."]]
    partition: NotRequired[str | None]
    account: NotRequired[str | None]
    cluster: NotRequired[str]
    state: NotRequired[str]
    labels: NotRequired[Annotated[str | None, "Value of a label.", schemas.NamesLike("^label:")]]
    jobs: int
    starts: Annotated[int, "Each start of a job counts."]
    gpu_hours: float
    core_hours: float
    node_hours: float
    wasted_share: Annotated[
        float | None, "Used by jobs that failed, timed out or were cancelled; from 0 to 1."
    ]
    unknown_gpus: Annotated[int, "Starts whose GPUs are unknown; they count as 0."]
    unknown_cpus: int


class NodeRow(TypedDict):
    cluster: str
    node: str
    score: Annotated[float, "Failures and slow runs; half after each nodes.half_life_days."]
    failures: Annotated[Mapping[str, int], "Failed attempts by cause, if the node may be at fault."]
    slow_runs: Annotated[int, "Repeats of a sweep, slower than those on other nodes."]
    completed: int
    other: Annotated[int, "Attempts that ended otherwise, such as with an error of the program."]
    last_seen_at: datetime.datetime | None
    last_problem_at: Annotated[datetime.datetime | None, "The last failure or slow run."]
    last_problem_row: Annotated[int | None, "Row of its job."]
    exclude: Annotated[bool, "Whether jobs should avoid it."]
    reason: Annotated[str, "Why, or why not in spite of its score."]


class ImageRow(TypedDict):
    name: str
    path: str
    state: Annotated[str, "built, NOT_BUILT, or the state of the job that builds it."]
    size_bytes: int | None
    architecture: Annotated[str | None, "As `uname -m` names it."]
    built_at: datetime.datetime | None
    job_id: Annotated[str | None, "The job that built it, if it is still known."]


class DiskUseRow(TypedDict):
    job: str
    row: Row
    name: str
    run_dir: str
    total_bytes: int
    log_bytes: int
    checkpoints_bytes: int
    code_bytes: int
    metrics_bytes: int
    torchrun_bytes: int
    other_bytes: int


class PrunedRow(TypedDict):
    job: Annotated[str | None, "null: a code snapshot, or what an interrupted removal left."]
    row: int | None
    name: str | None
    what: Literal["checkpoints", "run folder", "rows", "code snapshot", "leftover"]
    size_bytes: int | None
    reason: str
    path: str


class TriggerRow(TypedDict):
    row: Row
    planned_at: datetime.datetime
    due_at: datetime.datetime
    by_hand: bool
    state: schedules.TriggerState
    reason: str | None
    decided_at: datetime.datetime
    sweep: Annotated[int | None, "Row of the sweep that it submitted."]
    job: Annotated[int | None, "Row of the job that it submitted."]
    verdict: Annotated[str | None, "How its results compare with the baseline."]
    verdict_detail: Annotated[Mapping[str, Any], "The figures behind the verdict."]
    verdict_at: datetime.datetime | None


class ScheduleRow(TypedDict):
    row: Row
    name: str
    state: schedules.ScheduleState
    cron: str
    tz: Annotated[str, "IANA time zone."]
    kind: Literal["job", "sweep"]
    source: Annotated[str, "The file that it was read from."]
    folder: str
    profile: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    catchup: schedules.Catchup
    grace_seconds: int
    overlap: schedules.Overlap
    jitter_seconds: int
    baseline: Annotated[str | None, "null: results of earlier triggers."]
    created_at: datetime.datetime
    next_at: datetime.datetime | None
    last: TriggerRow | None


class ScheduleDetails(ScheduleRow):
    source_changed: Annotated[bool, "Whether the file has changed since it was read."]
    firings: Annotated[list[TriggerRow], "The newest first."]


class PlannedTimeRow(TypedDict):
    planned_at: datetime.datetime
    local: Annotated[str, "In the schedule's time zone."]
    utc: str
    note: Annotated[str, "About a change to or from daylight saving time."]


class NoticeRow(TypedDict):
    row: Row
    key: Annotated[str, "Identifies what happened."]
    at: datetime.datetime
    kind: str
    subject: str
    body: str
    job_row: int | None
    sweep_row: int | None
    schedule_row: int | None
    channel: Annotated[str | None, "null: no channel asks for it."]
    state: Literal["waiting", "sending", "sent", "failed"] | None
    tries: int
    next_at: datetime.datetime | None
    sent_at: datetime.datetime | None
    error: str | None


class ControllerRow(TypedDict):
    healthy: bool
    command: Annotated[Literal["serve", "tick"] | None, "null: no controller is running."]
    host: str | None
    pid: int | None
    since: datetime.datetime | None
    renewed_at: datetime.datetime | None
    fence: Annotated[int | None, "Grows with each new controller."]
    last_pass_at: datetime.datetime | None
    took_seconds: float | None
    next_pass_at: datetime.datetime | None
    failing_since: datetime.datetime | None
    steps: Annotated[Mapping[str, str], "Error of each step of the last pass, or an empty text."]
    problems: list[str]


class PatternLineRow(TypedDict):
    name: str
    contains: list[str]
    regex: str


class PatternRow(TypedDict):
    pattern: str
    origin: Annotated[str, "The file that defines it, or ships."]
    generic: bool
    metrics: list[str]
    description: str
    lines: list[PatternLineRow]


class ConfigRow(TypedDict):
    key: str
    value: Any
    origin: Annotated[str, "File, variable, option or default."]


class FabricRow(TypedDict):
    name: str
    summary: str
    network: Annotated[
        Literal["ofi", "ib", "socket"] | None, "What NCCL must choose; null: not checked."
    ]
    origin: Annotated[str, "Path of the file, or shipped."]


class FabricLineRow(TypedDict):
    kind: Literal["network", "variable", "bind", "library_path", "library"]
    name: Annotated[str, "Of the variable or library; empty: none."]
    value: Annotated[str, "A bind may begin with a variable of the job."]
    source: Annotated[str, "Document and its date."]


class CheckRow(TypedDict):
    check: str
    outcome: Literal["ok", "warning", "bad"]
    found: str
    cure: Annotated[str, "What to do about it."]


class TrustedRow(TypedDict):
    path: str
    state: Literal["trusted", "changed", "cannot be read"]


class ProblemRow(TypedDict):
    table: str
    row: Annotated[str, "@7, or the values of a key; empty: not about one row."]
    column: str
    problem: str


class BackupRow(TypedDict):
    path: str
    made_at: datetime.datetime
    size_bytes: int


class PlanRow(TypedDict):
    token: Annotated[str | None, "For `orchestrator apply`; null: over the budget."]
    command: Annotated[list[str], "Words of the command."]
    actions: Annotated[list[str], "What it does, in sentences."]
    jobs: Annotated[int, "Number of jobs that it submits or changes."]
    gpu_hours: Annotated[
        float | None, "That the jobs use at most; null: unknown, as without a time limit."
    ]
    refusal: Annotated[str | None, "Why there is no token."]
    expires_at: datetime.datetime | None
    basis: Annotated[
        Mapping[str, str], "What it follows from: states of jobs, hashes of scripts and settings."
    ]


class SchemaRow(TypedDict):
    command: str
    kind: Annotated[str, "Of the items that the command prints with --json."]
    fields: list[str]
