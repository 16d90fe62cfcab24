"""What a job used of its allocation, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orchestrator.rows import row_values
from orchestrator.text import nouns
from orchestrator.usage import efficiency, gpus


class Use(NamedTuple):
    """How much of a resource was used."""

    #: Time, CPU, Memory, GPU HOST:INDEX, Energy
    name: str
    #: from 0 to 1; None: unknown
    share: float | None
    #: such as "12.3 GiB of 16 GiB per node"
    text: str


def uses(used: efficiency.Efficiency, used_gpus: Sequence[gpus.GpuUsage]) -> Iterator[Use]:
    """Yield what is known."""
    limit = row_values.elapsed(used.time_limit_seconds)
    if used.elapsed_seconds is not None:
        elapsed = row_values.elapsed(used.elapsed_seconds)
        yield Use("Time", used.time_share, f"{elapsed} of {limit}" if limit else elapsed)
    if used.cpu_seconds is not None:
        text = row_values.elapsed(used.cpu_seconds)
        if used.cpus is not None and used.elapsed_seconds is not None:
            available = row_values.elapsed(used.cpus * used.elapsed_seconds)
            text += f" of {available} ({nouns.count(used.cpus, 'CPU')})"
        yield Use("CPU", used.cpu_share, text)
    if used.memory_peak_bytes is not None:
        peak = efficiency.amount(used.memory_peak_bytes)
        text = f"{peak} peak, {used.memory_is_of}"
        if used.memory_asked_bytes is not None:
            text = f"{peak} of {efficiency.amount(used.memory_asked_bytes)} {used.memory_is_of}"
        yield Use("Memory", used.memory_share, text)
    for gpu in used_gpus:
        use = gpu.utilization_percent
        share = None if use is None else use.mean / 100.0
        yield Use(f"GPU {gpu.host}:{gpu.index}", share, _gpu_text(gpu))
    if used.energy_joules is not None:
        yield Use("Energy", None, f"{used.energy_joules / 3.6e6:.3f} kWh")


def _gpu_text(gpu: gpus.GpuUsage) -> str:
    parts = []
    if gpu.utilization_percent is None:
        parts.append("utilization unknown")
    if gpu.memory_used_mib is not None:
        total = "" if gpu.memory_total_mib is None else f" of {gpu.memory_total_mib / 1024:.1f}"
        parts.append(f"memory {gpu.memory_used_mib.max / 1024:.1f}{total} GiB")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts.mean:.0f} W")
    if gpu.idle_share is not None:
        parts.append(f"idle {gpu.idle_share * 100:.0f} %")
    return ", ".join(parts)
