"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator import scaling

#: Of more the memory of each would fill a line.
_MOST_RANKS = 4
_UNIT_WORDS = {"gpus": ("GPU", "GPUs"), "ranks": ("rank", "ranks"), "nodes": ("node", "nodes")}


def size(count: int, unit: str) -> str:
    """Return `1 GPU`, `4 ranks`."""
    return f"{count} {_UNIT_WORDS[unit][count != 1]}"


def sizes(counts: Iterable[int], unit: str) -> str:
    """Return `1, 2, 4 GPUs`."""
    found = list(counts)
    return f"{', '.join(map(str, found))} {_UNIT_WORDS[unit][found != [1]]}"


def plural(unit: str) -> str:
    """Return the word for many."""
    return _UNIT_WORDS[unit][1]


def number(value: float) -> str:
    """Return four digits that count, and no exponent."""
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 1000.0:
        return f"{value:.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:#.4g}".rstrip(".")


def share(value: float) -> str:
    """Return per cent."""
    return f"{100.0 * value:.1f} %"


def seconds(value: float) -> str:
    """Return `202.0 s`, from a thousand on `1:02:03`."""
    if value < 1000.0:
        return f"{number(value)} s"
    minutes, second = divmod(round(value), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def gibibytes(values: Iterable[float]) -> str:
    """Return one number, one a rank where they differ, or of many ranks the ends."""
    each = [f"{value / 2**30:.2f}" for value in values]
    if not each:
        return ""
    if len(set(each)) == 1:
        return f"{each[0]} GiB"
    if len(each) > _MOST_RANKS:
        return f"{min(each, key=float)} to {max(each, key=float)} GiB"
    return f"{', '.join(each)} GiB"


def interval(estimate: scaling.Estimate, form: str = "number") -> str:
    """Return `0.82 (0.81 to 0.83)`; without an interval the number alone."""
    shown = share if form == "share" else number
    if estimate.low is None or estimate.high is None:
        return shown(estimate.value)
    ends = f"{shown(estimate.low)} to {shown(estimate.high)}".replace(" % to", " to")
    return f"{shown(estimate.value)} ({ends})"


def attributes(found: Mapping[str, str]) -> str:
    """Return `mode=ddp, precision=bf16`."""
    return ", ".join(f"{name}={value}" for name, value in found.items() if value != "")
