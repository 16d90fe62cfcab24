"""Rows of jobs, their attempts, efficiency and explanations."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from orchestrator.jobs import JobState

JobId = Annotated[str | None, "Slurm's job ID, 123 or 123_4, or local-7; null: not known yet."]
Row = Annotated[int, "Number of the row in the database; commands accept it as @7."]


class AlertRow(TypedDict):
    rule: Annotated[str, "stalled, slow, straggler or nan_loss."]
    since: datetime.datetime
    detail: str


class JobRow(TypedDict):
    row: Row
    job_id: JobId
    array_job_id: str | None
    array_task_id: int | None
    name: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    state: JobState
    raw_state: Annotated[str | None, "The state as Slurm printed it."]
    reason: Annotated[str | None, "Slurm's reason, or why the job is deferred."]
    cause: Annotated[str | None, "Why the job failed; see `orchestrator explain`."]
    exit_code: int | None
    exit_signal: int | None
    partition: str | None
    account: str | None
    qos: str | None
    nodes: int | None
    gpus: Annotated[int | None, "GPUs on all nodes together."]
    cpus: Annotated[int | None, "Cores or hardware threads as Slurm counts them, on all nodes."]
    node_list: Annotated[str | None, "Nodes in Slurm's form, such as n[1-2]."]
    time_limit_seconds: int | None
    submitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    elapsed_seconds: Annotated[int | None, "How long the newest attempt has run."]
    attempt: Annotated[int, "Number of the newest attempt, from 0."]
    restart_count: int
    sweep: Annotated[str | None, "Name of the sweep."]
    labels: Annotated[list[str], "KEY=VALUE."]
    run_dir: Annotated[str, "Run folder."]
    stdout_path: Annotated[str | None, "Log."]
    stderr_path: Annotated[str | None, "Error log, if it is a separate file."]
    stale_since: Annotated[
        datetime.datetime | None, "Since when the state is not confirmed; null: it is confirmed."
    ]
    resend_at: Annotated[datetime.datetime | None, "When a deferred job is submitted again."]
    alerts: list[AlertRow]
    continues: Annotated[int | None, "Row of the job that this one continues."]


class HostJobRow(JobRow):
    host: Annotated[str, "Name of the host in [hosts.NAME]; localhost: this computer."]


class AttemptRow(TypedDict):
    number: Annotated[int, "From 0."]
    state: JobState
    raw_state: str | None
    reason: str | None
    exit: Annotated[str | None, "CODE:SIGNAL, as sacct prints it."]
    exit_code: int | None
    exit_signal: int | None
    node_list: str | None
    submitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class EventRow(TypedDict):
    at: datetime.datetime
    kind: str
    attempt: int
    state: JobState | None
    raw_state: str | None
    source: Annotated[str, "Who did it: user, controller, squeue, sacct, ..."]
    detail: str


class LinkRow(TypedDict):
    job_id: JobId
    row: Row
    attempt: int
    state: JobState
    cause: str | None
    step: str | None
    action: str | None
    outcome: Annotated[str | None, "State of the decision: planned, done, ..."]
    then: Annotated[str | None, "What was decided when the job ended, as a sentence."]
    due_at: datetime.datetime | None


class EfficiencyRow(TypedDict):
    elapsed_seconds: int | None
    cpus: int | None
    cpu_seconds: Annotated[float | None, "User and system time of all processes."]
    memory_peak_bytes: Annotated[int | None, "On the node with the highest peak."]
    memory_is_of: Annotated[str, "What the peak refers to, such as per node."]
    memory_asked_bytes: Annotated[int | None, "Per node."]
    energy_joules: int | None
    attempt: int
    time_limit_seconds: int | None
    time_share: Annotated[float | None, "From 0 to 1, as all shares."]
    cpu_share: float | None
    memory_share: float | None
    gpus: int | None
    gpu_share: float | None
    notes: Annotated[list[str], "Advice."]
    unknown: Annotated[list[str], "What is unknown, and why."]


class SpreadRow(TypedDict):
    mean: float
    p50: float
    p95: float
    max: float


class GpuRow(TypedDict):
    host: str
    index: Annotated[str, "nvidia-smi's index, UUID or bus ID."]
    name: str
    readings: Annotated[int, "Number of samples."]
    utilization_percent: Annotated[SpreadRow | None, "Time in which a kernel ran."]
    memory_utilization_percent: SpreadRow | None
    memory_used_mib: SpreadRow | None
    memory_total_mib: float | None
    power_watts: SpreadRow | None
    idle_share: Annotated[float | None, "Share of the samples below 5 % utilization."]


class JobDetails(JobRow):
    arguments: Annotated[list[str] | None, "Arguments of the program."]
    next_start_at: Annotated[datetime.datetime | None, "When a planned retry starts."]
    efficiency: EfficiencyRow | None
    gpus_used: list[GpuRow]
    continued_by: Annotated[int | None, "Row of the job that continues this one."]
    chain: Annotated[list[LinkRow], "Jobs that continue one another, in their order."]
    attempts: list[AttemptRow]
    events: Annotated[list[EventRow], "The history."]
    run_pages: Annotated[Mapping[str, str], "Addresses of its run in trackers, by name."]
    provenance: Annotated[
        Mapping[str, Any], "Commit, changes, command line, versions and container at submission."
    ]


class FailureRow(TypedDict):
    job_id: JobId
    state: JobState
    reason: str | None
    exit: Annotated[str | None, "CODE:SIGNAL, as sacct prints it."]
    ended_at: datetime.datetime | None
    stdout_path: str | None


class ArrayRow(TypedDict):
    array_job_id: str | None
    name: str
    tasks: int
    states: Annotated[Mapping[str, int], "Number of tasks by state."]
    first_failures: list[FailureRow]
    cluster: str
    partition: str | None
    account: str | None
    qos: str | None
    run_dir: str
    token: Annotated[str, "Part of the job's name in Slurm that identifies it."]
    provenance: Mapping[str, Any]


class PlacementRow(TypedDict):
    host: Annotated[str, "The first node."]
    nodes: Annotated[str, "Slurm's list of the nodes."]
    gpus_on_host: Annotated[int, "NVIDIA GPUs of the first node, allocated or not."]
    variables: Annotated[Mapping[str, str], "Such as CUDA_VISIBLE_DEVICES."]


class EnvironmentRow(TypedDict):
    job_id: JobId
    row: Row
    attempt: int
    python: Annotated[str, "Path of the interpreter."]
    python_version: str
    packages: Annotated[Mapping[str, str], "Versions by name."]
    modules: list[str]
    driver: Annotated[str, "Version of the NVIDIA driver."]
    gpus: Annotated[list[str], "Models, each once."]
    cpu: str
    kernel: str
    os: str
    libc: str
    variables: Mapping[str, str]
    libraries: Annotated[Mapping[str, str], "Versions of PyTorch, CUDA, cuDNN and NCCL."]
    container: Annotated[Mapping[str, Any] | None, "The container image; null: none."]
    placement: PlacementRow


class LogLineRow(TypedDict):
    job_id: JobId
    row: Row
    path: Annotated[str, "Of the log."]
    is_stderr: Annotated[bool, "Whether it is the separate error log."]
    line: Annotated[int, "Counted from 1."]
    is_match: Annotated[bool, "Otherwise it is beside a match. Without --grep: true."]
    text: Annotated[str, "Untrusted: what a program printed."]


class EvidenceRow(TypedDict):
    path: Annotated[str | None, "null: not from a file."]
    line: Annotated[int | None, "Counted from 1."]
    text: Annotated[str, "Untrusted: a line of a log, or what Slurm reported."]
    source: Literal["log", "slurm", "orchestrator"]


class FrameRow(TypedDict):
    path: str | None
    line: int | None
    code: str | None


class TracebackRow(TypedDict):
    path: str
    first_line: int
    last_line: int
    rank: int | None
    exception: str
    message: str
    own_frame: Annotated[FrameRow | None, "The innermost frame that is not in a package."]
    lines: list[str]


class FindingRow(EvidenceRow):
    cause: str
    rule: str
    summary: str
    warning: bool


class ExplanationRow(TypedDict):
    job_id: Annotated[str | None, "null: a log without a job."]
    row: int | None
    name: str | None
    state: JobState | None
    cause: Annotated[str | None, "null: the job has not failed."]
    summary: str
    evidence: Annotated[list[EvidenceRow], "The strongest first."]
    cures: Annotated[list[str], "How to fix it."]
    first_failing_rank: int | None
    traceback: TracebackRow | None
    title: NotRequired[str]
    acts: NotRequired[Annotated[str, "Who can fix it."]]
    retry: NotRequired[Annotated[str, "Whether a retry helps."]]
    details: Annotated[Mapping[str, Any], "Further facts by name."]
    then: Annotated[str | None, "What a retry rule decided."]
    also: Annotated[list[FindingRow], "Other findings in the logs."]
