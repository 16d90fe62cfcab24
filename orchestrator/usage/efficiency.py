"""What a job asked for against what it used, and what to ask for next time. Pure."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

from orchestrator import jobs
from orchestrator.usage import gpus

_MIB = 1 << 20
_GIB = 1 << 30
#: A job that ran for less says nothing of longer ones.
_TELLING_SECONDS = 60.0
#: Below this share of what was asked for, less is advised ...
_LITTLE = 0.25
#: ... and where GPUs do the work CPUs only feed them.
_LITTLE_CPU_BESIDE_GPUS = 0.1
_NEARLY_ALL = 0.95
#: Advice leaves so much room above what was used.
_ROOM = 1.25
#: Memory that nobody waits for.
_SMALL_MEMORY_BYTES = 4 * _GIB
#: A time limit that lets a job start into any gap.
_SHORT_LIMIT_SECONDS = 600
_IDLE_SHARE = 0.9
_BUSY_LITTLE = 0.3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Used:
    """What one attempt used, by Slurm's accounts or by this machine; None: not measured."""

    elapsed_seconds: int | None = None
    cpus: int | None = None
    #: user and system time of all that it started
    cpu_seconds: float | None = None
    #: the most at one time, on the node that had the most
    memory_peak_bytes: int | None = None
    #: what that is the memory of
    memory_is_of: str = "a node"
    #: of a node
    memory_asked_bytes: int | None = None
    energy_joules: int | None = None
    #: false: Slurm has not heard yet of the end of each step
    complete: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """The card of one attempt; shares from 0 to 1, None: not known."""

    attempt: int
    elapsed_seconds: int | None
    time_limit_seconds: int | None
    time_share: float | None
    cpus: int | None
    cpu_seconds: float | None
    cpu_share: float | None
    memory_peak_bytes: int | None
    memory_is_of: str
    memory_asked_bytes: int | None
    memory_share: float | None
    gpus: int | None
    gpu_share: float | None
    energy_joules: int | None
    #: what could be asked for, or looked at
    notes: tuple[str, ...]
    #: what is not known, and why
    unknown: tuple[str, ...]


def card(
    job: jobs.Job,
    used: Used | None,
    figures: Sequence[gpus.Figures],
    *,
    elapsed_seconds: int | None,
    why_unknown: str = "",
) -> Efficiency:
    """Return what the newest attempt of a job that has begun made of what it got.

    `elapsed_seconds` is by the job's own stamps, `why_unknown` says why `used` is none.
    """
    told = used or Used()
    elapsed = told.elapsed_seconds if told.elapsed_seconds is not None else elapsed_seconds
    cpus = told.cpus or job.cpus
    without_notes = Efficiency(
        attempt=job.attempt,
        elapsed_seconds=elapsed,
        time_limit_seconds=job.time_limit_seconds,
        time_share=_share(elapsed, job.time_limit_seconds),
        cpus=cpus,
        cpu_seconds=told.cpu_seconds,
        cpu_share=_share(told.cpu_seconds, cpus and elapsed and cpus * elapsed),
        memory_peak_bytes=told.memory_peak_bytes,
        memory_is_of=told.memory_is_of,
        memory_asked_bytes=told.memory_asked_bytes,
        memory_share=_share(told.memory_peak_bytes, told.memory_asked_bytes),
        gpus=job.gpus,
        gpu_share=gpus.mean_utilization(figures),
        energy_joules=told.energy_joules,
        notes=(),
        unknown=(),
    )
    return dataclasses.replace(
        without_notes,
        notes=tuple(_notes(job, without_notes, figures)),
        unknown=tuple(_unknown(job, without_notes, figures, why_unknown)),
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _notes(job: jobs.Job, card: Efficiency, figures: Sequence[gpus.Figures]) -> Iterator[str]:
    elapsed = card.elapsed_seconds or 0
    done = job.state is jobs.JobState.COMPLETED
    if elapsed >= _TELLING_SECONDS:
        yield from _idle_gpus(figures, all_of=job.gpus)
        if done:
            yield from _time_note(card)
            yield from _cpu_note(card)
    if done:
        yield from _memory_note(card)


def _idle_gpus(figures: Sequence[gpus.Figures], *, all_of: int | None) -> Iterator[str]:
    idle = [one for one in figures if one.idle_share is not None and one.idle_share >= _IDLE_SHARE]
    if idle:
        least = min(one.idle_share or 0.0 for one in idle)
        if len(idle) == len(figures):
            what = "the GPU was" if len(idle) == 1 else f"all {len(idle)} GPUs were"
            cure = "does the program use them? (torch.cuda.is_available(), device)"
        else:
            by_host: dict[str, list[str]] = collections.defaultdict(list)
            for one in idle:
                by_host[one.host].append(one.index)
            named = " and ".join(f"{_listed(i)} of {host}" for host, i in by_host.items())
            what = f"GPU {named} was" if len(idle) == 1 else f"GPUs {named} were"
            cure = f"{len(figures) - len(idle)} would do, or start a rank for each"
        yield f"{what} idle {_percent(least)} of the time: {cure}"
        return
    busy = gpus.mean_utilization(figures)
    if busy is not None and busy < _BUSY_LITTLE:
        yield (
            f"the GPUs were busy {_percent(busy)} of the time: look at data loading "
            "(metric data_wait_share) and at the batch size"
        )


def _time_note(card: Efficiency) -> Iterator[str]:
    share, elapsed, limit = card.time_share, card.elapsed_seconds, card.time_limit_seconds
    if share is None or elapsed is None or limit is None:
        return
    if share >= _NEARLY_ALL:
        yield f"used {_percent(share)} of its time limit: a slower run would have been ended"
    elif share < _LITTLE and limit > _SHORT_LIMIT_SECONDS:
        asked = max(math.ceil(elapsed * _ROOM / 300) * 300, _SHORT_LIMIT_SECONDS)
        hours, seconds = divmod(asked, 3600)
        wish = f"{hours:02}:{seconds // 60:02}:00"
        yield f"used {_percent(share)} of its time limit: ask for {wish} and start sooner"


def _cpu_note(card: Efficiency) -> Iterator[str]:
    if card.cpu_share is None or not card.cpus or card.cpus < 2:
        return
    if card.cpu_share < (_LITTLE_CPU_BESIDE_GPUS if card.gpus else _LITTLE):
        did = card.cpu_share * card.cpus
        wish = max(1, math.ceil(did * _ROOM), card.gpus or 0)
        if wish < card.cpus:
            yield f"{card.cpus} CPUs did the work of {did:.1f}: ask for {wish}"


def _memory_note(card: Efficiency) -> Iterator[str]:
    share, peak, asked = card.memory_share, card.memory_peak_bytes, card.memory_asked_bytes
    if share is None or peak is None or asked is None:
        return
    told = f"used {amount(peak)} of its {amount(asked)} {card.memory_is_of}"
    if share >= _NEARLY_ALL:
        yield f"{told}: a little more and it is out of memory"
    elif share < _LITTLE and asked - peak > _SMALL_MEMORY_BYTES:
        yield f"{told}: ask for {_asked(peak * _ROOM)} and start sooner"


def _asked(count: float) -> str:
    """Return memory as one asks for it, rounded up."""
    step = next(
        step for step in (1, 2, 4, 8, 16, 32, 64) if count <= 32 * step * _GIB or step == 64
    )
    return f"{math.ceil(count / (step * _GIB)) * step}G"


def _unknown(
    job: jobs.Job, card: Efficiency, figures: Sequence[gpus.Figures], why: str
) -> Iterator[str]:
    lacking = [
        name
        for name, value in (("CPU time", card.cpu_seconds), ("memory", card.memory_peak_bytes))
        if value is None
    ]
    if lacking:
        because = why or "Slurm did not measure it (JobAcctGatherType), or the job was too short"
        yield f"{' and '.join(lacking)}: {because}"
    if job.gpus and not figures:
        yield (
            "GPU use: there is no CSV of the trainer's monitor or of nvidia-smi "
            "(spec key metrics.gpu_csv names one)"
        )
    elif job.gpus and len(figures) < job.gpus:
        yield f"GPU use of {job.gpus - len(figures)} of {job.gpus} GPUs"


def amount(count: float) -> str:
    """Return bytes as Slurm writes memory: 4.7M, 31G."""
    size, unit = (count / _GIB, "G") if count >= _GIB else (count / _MIB, "M")
    return f"{size:.1f}".removesuffix(".0") + unit


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
