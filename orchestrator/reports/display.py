"""Numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator import scaling
from orchestrator.text import nouns

#: The memory of more ranks is shown as a range.
_MAX_RANKS = 4
_UNIT_WORDS = {"gpus": ("GPU", "GPUs"), "ranks": ("rank", "ranks"), "nodes": ("node", "nodes")}


def size(number: int, unit: str) -> str:
    """Return `1 GPU`, `4 ranks`."""
    return nouns.count(number, _UNIT_WORDS[unit][0])


def sizes(numbers: Iterable[int], unit: str) -> str:
    """Return `1, 2, 4 GPUs`."""
    listed = list(numbers)
    return f"{', '.join(map(str, listed))} {_UNIT_WORDS[unit][listed != [1]]}"


def plural(unit: str) -> str:
    """Return `GPUs`, `ranks` or `nodes`."""
    return _UNIT_WORDS[unit][1]


def number(value: float) -> str:
    """Return a number with four significant digits and no exponent."""
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 1000.0:
        return f"{value:.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:#.4g}".rstrip(".")


def share(value: float) -> str:
    """Return `12.5 %`."""
    return f"{100.0 * value:.1f} %"


def seconds(value: float) -> str:
    """Return `202.0 s`, from 1000 s on `1:02:03`."""
    if value < 1000.0:
        return f"{number(value)} s"
    minutes, second = divmod(round(value), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def gibibytes(values: Iterable[float]) -> str:
    """Return one number if all are equal, else one per rank or their range."""
    texts = [f"{value / 2**30:.2f}" for value in values]
    if len(set(texts)) < 2:
        return f"{texts[0]} GiB" if texts else ""
    if len(texts) > _MAX_RANKS:
        return f"{min(texts, key=float)} to {max(texts, key=float)} GiB"
    return f"{', '.join(texts)} GiB"


def interval(estimate: scaling.Estimate, form: str = "number") -> str:
    """Return `0.82 (0.81 to 0.83)`, or the number alone if it has no interval."""
    ends = range_of(estimate, form)
    value = (share if form == "share" else number)(estimate.value)
    return f"{value} ({ends})" if ends else value


def range_of(estimate: scaling.Estimate, form: str = "number") -> str:
    """Return the confidence interval, `0.81 to 0.83`; "" if there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    shown = share if form == "share" else number
    return f"{shown(estimate.low)} to {shown(estimate.high)}".replace(" % to", " to")


def attributes(values: Mapping[str, str]) -> str:
    """Return `mode=ddp, precision=bf16`."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if value != "")
