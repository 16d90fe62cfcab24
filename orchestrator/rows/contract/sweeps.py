"""Rows of sweeps, their points and results, and of graphs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from orchestrator.jobs import JobState
from orchestrator.rows.contract.jobs import JobId, Row

Settings = Annotated[Mapping[str, Any], "What the sweep varies, by key of the spec."]


class SweepRow(TypedDict):
    row: Annotated[int, "Number of the sweep; commands accept it as @3."]
    name: str
    kind: Annotated[str, "grid, zip, list, random, strong, weak, batch or workers."]
    state: Literal["open", "ended", "cancelled"]
    cluster: str
    scheduler: Literal["slurm", "local"]
    points: int
    completed: int
    failed: int
    missing: Annotated[int, "Points that were cancelled or lost."]
    running: int
    pending: int
    waiting: Annotated[int, "Deferred points."]
    unsubmitted: int
    gpu_hours: Annotated[float, "At most: if each point runs until its time limit."]
    node_hours: Annotated[float, "At most, as gpu_hours."]
    points_without_time_limit: Annotated[int, "Points that the hours leave out."]
    max_running: Annotated[int | None, "Points that run at the same time."]
    source: Annotated[str, "Its file."]
    folder: Annotated[str, "Where it was submitted."]
    profile: str
    created_at: datetime.datetime


class StateRow(TypedDict):
    sweep: str
    sweep_row: int
    state: Annotated[JobState | None, "null: not submitted."]
    points: int
    exit: Annotated[str | None, "CODE:SIGNAL, as sacct prints it."]
    exit_code: int | None
    exit_signal: int | None
    cause: str | None
    reason: str | None
    waits_for_room: Annotated[bool, "Whether the points are deferred."]


class PointRow(TypedDict):
    number: Annotated[int, "From 1."]
    name: str
    identity: Annotated[str, "Hash of the changes and the repeat."]
    repeat: Annotated[int, "From 1."]
    settings: Settings
    changes: Annotated[Mapping[str, Any], "The resulting keys of the spec."]
    state: Annotated[JobState | None, "null: not submitted."]
    job_id: JobId
    row: Annotated[int | None, "Row of its newest job."]
    reason: str | None
    cause: str | None
    exit_code: int | None
    exit_signal: int | None
    attempt: int | None
    nodes: int | None
    gpus: int | None
    submitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    elapsed_seconds: int | None
    exit: Annotated[str | None, "CODE:SIGNAL, as sacct prints it."]


class MemberRow(TypedDict):
    name: str
    identity: str
    settings: Settings


class SubmissionRow(TypedDict):
    points: int
    name: str
    nodes: int | None
    gpus_per_node: int | None
    partition: str | None
    time_limit: Annotated[str | None, "In Slurm's form."]
    max_running: int | None
    first: Annotated[str, "Name of the first point."]
    last: str
    members: list[MemberRow]


class ResultMetricRow(TypedDict):
    name: str
    statistic: str | None
    at: Annotated[str | None, "Another metric: the value is from where that one is best."]
    direction: Literal["max", "min"] | None
    value: Annotated[float | None, "Mean over the runs."]
    low: Annotated[float | None, "Of the 95 % confidence interval of the mean."]
    high: float | None
    count: Annotated[int, "Runs in the mean."]
    unit: str


class MeasuredRow(TypedDict):
    value: float
    step: int | None
    epoch: int | None


class RunRow(TypedDict):
    number: Annotated[int, "Of the point."]
    name: str
    repeat: int
    settings: Settings
    state: JobState | None
    job_id: JobId
    row: int | None
    metrics: Mapping[str, MeasuredRow | None]


class ResultRow(TypedDict):
    rank: Annotated[int | None, "From 1; null: not ranked."]
    point: Annotated[int, "Number of its first point."]
    parameters: Mapping[str, Any]
    metrics: Annotated[Mapping[str, ResultMetricRow], "By the label of the chosen metric."]
    is_final: Annotated[bool, "Whether a run is COMPLETED; otherwise values are preliminary."]
    state: str
    runs: list[RunRow]


class GraphRow(TypedDict):
    row: Row
    name: str
    state: Literal["open", "ended", "cancelled"]
    nodes: int
    submitted: Annotated[int, "Nodes that have a job or sweep."]
    ended: bool
    cluster: str
    scheduler: Literal["slurm", "local"]
    source: Annotated[str, "Its file."]
    folder: str
    profile: str
    created_at: datetime.datetime


class NodeRow(TypedDict):
    graph: str
    graph_row: int
    node: str
    kind: Literal["job", "sweep"]
    state: Annotated[str | None, "State of its job, or the number of jobs in each state."]
    states: Mapping[str, int]
    job_id: JobId
    after: Annotated[list[str], "KIND:NODE, such as afterok:train."]
    reason: str | None
    given_up: Annotated[str | None, "Why it will not be submitted."]
    source: str
    row: Annotated[int | None, "Row of its job or sweep."]
