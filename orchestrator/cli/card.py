"""The efficiency card of `show`, and its JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orchestrator.cli import output
from orchestrator.controller.usage import efficiency as used
from orchestrator.usage import efficiency, gpus

_WIDTH = 20


def rows(told: used.Told) -> dict[str, object]:
    """Return the keys `efficiency` and `gpus_used` of a job in JSON."""
    return {
        "efficiency": None if told.card is None else dataclasses.asdict(told.card),
        "gpus_used": [dataclasses.asdict(one) for one in told.gpus],
    }


def lines(told: used.Told) -> Iterator[str]:
    """Give the card as a person reads it; nothing for a job that has not begun."""
    card = told.card
    if card is None:
        return
    yield "Efficiency:"
    elapsed, limit = output.elapsed(card.elapsed_seconds), output.elapsed(card.time_limit_seconds)
    if card.elapsed_seconds is not None:
        of_limit = f"{elapsed} of {limit}" if limit else elapsed
        yield _line("Time", card.time_share, of_limit)
    if card.cpu_seconds is not None:
        yield _line("CPU", card.cpu_share, _cpu(card))
    if card.memory_peak_bytes is not None:
        yield _line("Memory", card.memory_share, _memory(card))
    for one in told.gpus:
        yield _line(f"GPU {one.host}:{one.index}", _gpu_share(one), _gpu(one))
    if card.energy_joules is not None:
        yield _line("Energy", None, f"{card.energy_joules / 3.6e6:.3f} kWh")
    for note in card.notes:
        yield f"  Note: {note}"
    for missing in card.unknown:
        yield f"  Not known: {missing}"


def _line(name: str, share: float | None, told: str) -> str:
    if share is None:
        return f"  {name:<14} {'':{_WIDTH + 7}} {told}"
    full = min(_WIDTH, round(share * _WIDTH))
    return f"  {name:<14} [{'|' * full:<{_WIDTH}}{share * 100:4.0f}%] {told}"


def _cpu(card: efficiency.Efficiency) -> str:
    used = output.elapsed(card.cpu_seconds)
    if card.cpus is None or card.elapsed_seconds is None:
        return used
    plural = "CPU" if card.cpus == 1 else "CPUs"
    return f"{used} of {output.elapsed(card.cpus * card.elapsed_seconds)} ({card.cpus} {plural})"


def _memory(card: efficiency.Efficiency) -> str:
    peak = efficiency.amount(card.memory_peak_bytes or 0)
    if card.memory_asked_bytes is None:
        return f"{peak} at the most, {card.memory_is_of}"
    return f"{peak} of {efficiency.amount(card.memory_asked_bytes)} {card.memory_is_of}"


def _gpu_share(one: gpus.Figures) -> float | None:
    return None if one.utilization_percent is None else one.utilization_percent.mean / 100.0


def _gpu(one: gpus.Figures) -> str:
    told = []
    if one.utilization_percent is None:
        told.append("use unknown")
    if one.memory_used_mib is not None:
        total = "" if one.memory_total_mib is None else f" of {one.memory_total_mib / 1024:.1f}"
        told.append(f"memory {one.memory_used_mib.max / 1024:.1f}{total} GiB")
    if one.power_watts is not None:
        told.append(f"{one.power_watts.mean:.0f} W")
    if one.idle_share is not None:
        told.append(f"idle {one.idle_share * 100:.0f} %")
    return ", ".join(told)
