"""Rows of metrics, baselines, reports and comparisons."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from orchestrator.rows.contract import schemas
from orchestrator.rows.contract.jobs import JobId, Row


class MetricRow(TypedDict):
    row: Annotated[int, "Number of the value, in the order of reading."]
    job_id: JobId
    array_task_id: int | None
    attempt: int
    name: Annotated[str, "throughput, loss, val_accuracy, ..."]
    value: float
    unit: Annotated[str, "As in the log; empty: none."]
    step: int | None
    epoch: int | None
    rank: int | None
    world_size: int | None
    time: datetime.datetime | None
    source: Annotated[str, "jsonl, or log:PATTERN."]
    line: Annotated[int | None, "Number of the line in its file."]


class MatchRow(TypedDict):
    line: int
    name: str
    value: float
    unit: str
    step: int | None
    epoch: int | None
    rank: int | None
    time: datetime.datetime | None
    pattern: str


class ReparsedRow(TypedDict):
    job_row: int
    job_id: JobId
    path: str
    before: Annotated[int, "Number of metrics before."]
    after: int
    kept: Annotated[str, "Why the old metrics stay; empty: they were replaced."]


class ExportedRow(TypedDict):
    job_row: Annotated[int, "The newest job of the run."]
    job_id: JobId
    run: Annotated[str, "Name of the run: that of the job, and the token of its first job."]
    sweep: str | None
    values: Annotated[int, "Values of the run: later attempts replace those of earlier ones."]
    added: Annotated[int, "Of these, how many were not exported before."]
    place: Annotated[str, "The folder, or the address of the run."]


class StatisticRow(TypedDict):
    job_row: int
    job_id: JobId
    array_task_id: int | None
    job_name: str
    name: str
    unit: str
    count: NotRequired[int]
    nan: NotRequired[Annotated[int, "Values that are not finite."]]
    first: NotRequired[float | None]
    last: NotRequired[float | None]
    mean: NotRequired[float | None]
    std: NotRequired[float | None]
    min: NotRequired[float | None]
    median: NotRequired[float | None]
    max: NotRequired[float | None]
    best: NotRequired[float | None]
    best_step: NotRequired[int | None]
    best_epoch: NotRequired[int | None]
    percentiles: NotRequired[
        Annotated[float | None, "Such as p95.", schemas.NamesLike(r"^p[0-9]+(\.[0-9]+)?$")]
    ]


class ComparedJobRow(TypedDict):
    job_row: int
    job_id: JobId
    job_rows: Annotated[list[int], "Jobs whose metrics count: one may continue another."]
    label: Annotated[str | None, "What distinguishes jobs of a sweep."]
    value: float | None
    ratio: Annotated[float | None, "To the value of the first job."]


class MetricComparisonRow(TypedDict):
    name: str
    unit: str
    statistic: NotRequired[str]
    step: NotRequired[int]
    epoch: NotRequired[int]
    jobs: list[ComparedJobRow]


class BaselineRow(TypedDict):
    name: str
    created_at: datetime.datetime
    runs: int
    source: Annotated[str, "The jobs, the sweep or the file with its measurements."]
    row: Row


class MeasurementRow(TypedDict):
    size: Annotated[int, "GPUs, ranks or nodes."]
    throughput: Annotated[float, "Samples/s over all ranks."]
    windows: Annotated[list[float], "Throughput of each window after warm-up."]
    name: str
    gpus_allocated: int | None
    nodes: int | None
    epoch_seconds: Annotated[float | None, "Median, of training without evaluation."]
    total_seconds: Annotated[float | None, "Of the whole training."]
    data_wait_share: float | None
    memory_bytes: Annotated[list[float], "Peak of each rank."]
    utilisation: Annotated[float | None, "Mean share of the GPUs."]
    accuracy: Annotated[float | None, "Final share on validation data."]
    step_seconds: Annotated[Mapping[str, float], "By part of a step: data, forward, ..."]
    source: Annotated[str, "jsonl, log:PATTERN or file."]
    warm_up: str
    node_list: str
    job: str
    code: str
    environment: str
    attributes: Mapping[str, str]


class ComparisonRow(TypedDict):
    curve: str
    size: int
    metric: str
    change: Annotated[str, "Of the ratio, such as -5.1 %."]
    interval: Annotated[str, "Its confidence interval; empty: too few runs."]
    verdict: Annotated[str, "slower, faster, worse, better or no evidence."]
    runs: int
    baseline_runs: int
    ratio: Annotated[float, "0.95: five per cent less than the baseline."]
    ratio_low: float | None
    ratio_high: float | None
    threshold: Annotated[float, "Smaller differences are ignored, as a share."]
    is_worse: bool


class EstimateRow(TypedDict):
    value: float
    low: Annotated[float | None, "Of the 95 % confidence interval; null: too few runs."]
    high: float | None
    at_bound: Annotated[bool, "The interval is one-sided."]


class FitRow(TypedDict):
    parameters: Mapping[str, EstimateRow]
    deviation: Annotated[float | None, "RMS deviation of the runs, as a share."]
    degrees: Annotated[int, "Degrees of freedom."]
    lack_of_fit_p: float | None
    is_rejected: bool
    sizes: list[int]
    reach: Annotated[float | None, "The largest size to which it is extrapolated."]


class ReportPointRow(TypedDict, total=False):
    configuration: str
    curve: str
    gpus: Annotated[int, "The size, named by what it counts."]
    ranks: int
    nodes: Annotated[int | str | None, "The size; or numbers of nodes, separated by semicolons."]
    runs: int
    windows: int
    throughput: Annotated[float | None, "Samples/s; _low and _high: 95 % confidence interval."]
    throughput_low: float | None
    throughput_high: float | None
    interval_of: Annotated[str, "repeats, windows or none."]
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    efficiency: float | None
    efficiency_low: float | None
    efficiency_high: float | None
    serial_share: Annotated[float | None, "Serial fraction (Karp-Flatt metric)."]
    serial_share_low: float | None
    serial_share_high: float | None
    epoch_seconds: float | None
    gpu_hours_per_epoch: float | None
    total_seconds: float | None
    data_wait_share: float | None
    memory_bytes: Annotated[str | None, "Peak of each rank, separated by semicolons."]
    utilisation: float | None
    accuracy: float | None
    source: str | None


class ReportRow(TypedDict):
    title: str
    curve: str
    attributes: Mapping[str, str]
    common: Annotated[Mapping[str, str], "Attributes that all runs share."]
    unit: Annotated[Literal["gpus", "ranks", "nodes"], "What sizes count."]
    points: list[ReportPointRow]
    deviation: float | None
    baseline_is_valid: bool
    amdahl: FitRow | None
    usl: Annotated[FitRow | None, "Universal scalability law."]
    most: Annotated[str | None, "The largest size with the efficiency that was asked for."]
    warnings: list[str]
    notes: list[str]
    in_time: NotRequired[Annotated[str, "The cheapest size that trains the epochs in time."]]


class DifferenceRow(TypedDict):
    section: Literal["spec", "arguments", "code", "environment", "results"]
    key: str
    first: Any
    second: Any
    relative: Annotated[float | None, "(second - first) / first, of a number."]
    diff: Annotated[str | None, "Unified diff."]
    is_speed: Annotated[bool, "Speed, which differs between equal runs."]
