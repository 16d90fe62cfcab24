"""What a job used of its allocation, and what to request next time."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

from orchestrator import jobs
from orchestrator.usage import gpus

_MIB = 1 << 20
_GIB = 1 << 30
#: Shorter jobs say nothing about longer ones.
_MIN_SECONDS = 60.0
#: Below this share of the allocation, a smaller one is advised.
_LOW_SHARE = 0.25
#: CPUs of a job with GPUs only feed them.
_LOW_CPU_SHARE_WITH_GPUS = 0.1
_HIGH_SHARE = 0.95
#: Advised values are larger than what was used by this factor.
_MARGIN = 1.25
#: Saving less memory makes no job start sooner.
_SMALL_MEMORY_BYTES = 4 * _GIB
#: Jobs with a shorter time limit fit into any gap.
_SHORT_LIMIT_SECONDS = 600
_IDLE_SHARE = 0.9
_LOW_GPU_SHARE = 0.3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of one attempt. None: not measured."""

    elapsed_seconds: int | None = None
    cpus: int | None = None
    #: user and system time of all processes
    cpu_seconds: float | None = None
    #: on the node with the highest peak
    memory_peak_bytes: int | None = None
    #: what the peak refers to
    memory_is_of: str = "per node"
    #: per node
    memory_asked_bytes: int | None = None
    energy_joules: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Used(Measured):
    """What one attempt used, reported by Slurm's accounting or this machine."""

    #: False: Slurm does not know the end of each step yet
    complete: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency(Measured):
    """The efficiency of one attempt. Shares are from 0 to 1; None: unknown."""

    attempt: int
    time_limit_seconds: int | None
    time_share: float | None
    cpu_share: float | None
    memory_share: float | None
    gpus: int | None
    gpu_share: float | None
    #: advice
    notes: tuple[str, ...] = ()
    #: what is unknown, and why
    unknown: tuple[str, ...] = ()


def assess(
    job: jobs.Job,
    used: Used | None,
    gpu_usage: Sequence[gpus.GpuUsage],
    *,
    elapsed_seconds: int | None,
    why_unknown: str = "",
) -> Efficiency:
    """Return the efficiency of the newest attempt of a started job.

    Args:
        elapsed_seconds: by our own timestamps.
        why_unknown: why `used` is None.
    """
    used = used or Used()
    elapsed = elapsed_seconds if used.elapsed_seconds is None else used.elapsed_seconds
    cpus = used.cpus or job.cpus
    measured = {field.name: getattr(used, field.name) for field in dataclasses.fields(Measured)}
    result = Efficiency(
        **{**measured, "elapsed_seconds": elapsed, "cpus": cpus},
        attempt=job.attempt,
        time_limit_seconds=job.time_limit_seconds,
        time_share=_share(elapsed, job.time_limit_seconds),
        cpu_share=_share(used.cpu_seconds, cpus and elapsed and cpus * elapsed),
        memory_share=_share(used.memory_peak_bytes, used.memory_asked_bytes),
        gpus=job.gpus,
        gpu_share=gpus.mean_utilization(gpu_usage),
    )
    notes: list[str] = []
    # The full usage of a failed job is unknown.
    is_completed = job.state is jobs.JobState.COMPLETED
    if (elapsed or 0) >= _MIN_SECONDS:
        notes += _gpu_notes(gpu_usage)
        if is_completed:
            notes += [*_time_note(result), *_cpu_note(result)]
    if is_completed:
        notes += _memory_note(result)
    unknown = tuple(_unknown(job, result, gpu_usage, why_unknown))
    return dataclasses.replace(result, notes=tuple(notes), unknown=unknown)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _gpu_notes(gpu_usage: Sequence[gpus.GpuUsage]) -> Iterator[str]:
    idle = [gpu for gpu in gpu_usage if (gpu.idle_share or 0.0) >= _IDLE_SHARE]
    busy = gpus.mean_utilization(gpu_usage)
    if idle:
        share = min(gpu.idle_share or 0.0 for gpu in idle)
        by_host: dict[str, list[str]] = collections.defaultdict(list)
        for gpu in idle:
            by_host[gpu.host].append(gpu.index)
        names = "; ".join(f"{', '.join(indexes)} of {host}" for host, indexes in by_host.items())
        advice = f"request {len(gpu_usage) - len(idle)}, or start one rank per GPU"
        if len(idle) == len(gpu_usage):
            advice = "does the program use them? (torch.cuda.is_available(), device)"
        yield f"idle {_percent(share)} of the time: GPU {names}: {advice}"
    elif busy is not None and busy < _LOW_GPU_SHARE:
        yield (
            f"the GPUs were busy {_percent(busy)} of the time: check data loading "
            "(metric data_wait_share) and the batch size"
        )


def _time_note(result: Efficiency) -> Iterator[str]:
    share, elapsed, limit = result.time_share, result.elapsed_seconds, result.time_limit_seconds
    if share is None or elapsed is None or limit is None:
        return
    if share >= _HIGH_SHARE:
        yield f"used {_percent(share)} of its time limit: a slower run would time out"
    elif share < _LOW_SHARE and limit > _SHORT_LIMIT_SECONDS:
        advised = max(math.ceil(elapsed * _MARGIN / 300) * 300, _SHORT_LIMIT_SECONDS)
        hours, seconds = divmod(advised, 3600)
        text = f"{hours:02}:{seconds // 60:02}:00"
        yield f"used {_percent(share)} of its time limit: request {text} to start sooner"


def _cpu_note(result: Efficiency) -> Iterator[str]:
    low_share = _LOW_CPU_SHARE_WITH_GPUS if result.gpus else _LOW_SHARE
    if result.cpu_share is not None and result.cpus and result.cpu_share < low_share:
        busy = result.cpu_share * result.cpus
        advised = max(1, math.ceil(busy * _MARGIN), result.gpus or 0)
        if advised < result.cpus:
            yield f"{busy:.1f} of {result.cpus} CPUs were busy: request {advised}"


def _memory_note(result: Efficiency) -> Iterator[str]:
    share, peak, asked = result.memory_share, result.memory_peak_bytes, result.memory_asked_bytes
    if share is None or peak is None or asked is None:
        return
    text = f"used {amount(peak)} of its {amount(asked)} {result.memory_is_of}"
    if share >= _HIGH_SHARE:
        yield f"{text}: a little more would be out of memory"
    elif share < _LOW_SHARE and asked - peak > _SMALL_MEMORY_BYTES:
        yield f"{text}: request {_rounded_up(peak * _MARGIN)} to start sooner"


def _rounded_up(count: float) -> str:
    """Return bytes as a value for --mem."""
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if count <= 32 * s * _GIB or s == 64)
    return f"{math.ceil(count / (step * _GIB)) * step}G"


def _unknown(
    job: jobs.Job, result: Efficiency, gpu_usage: Sequence[gpus.GpuUsage], why: str
) -> Iterator[str]:
    values = (("CPU time", result.cpu_seconds), ("memory", result.memory_peak_bytes))
    missing = [name for name, value in values if value is None]
    if missing:
        why = why or "Slurm did not measure it (JobAcctGatherType), or the job was too short"
        yield f"{' and '.join(missing)}: {why}"
    if job.gpus and not gpu_usage:
        yield (
            "GPU usage: no CSV of the trainer's monitor or of nvidia-smi found "
            "(spec key metrics.gpu_csv)"
        )
    elif job.gpus and len(gpu_usage) < job.gpus:
        yield f"usage of {job.gpus - len(gpu_usage)} of {job.gpus} GPUs"


def amount(count: float) -> str:
    """Return bytes as Slurm writes memory: 4.7M, 31G."""
    size, unit = (count / _GIB, "G") if count >= _GIB else (count / _MIB, "M")
    return f"{size:.1f}".removesuffix(".0") + unit


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
