"""Prometheus' text exposition format 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, str] = {}
    #: of the name: _sum and _count of a summary
    suffix: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A metric: samples that differ in their labels. Without samples it is left out."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: Sequence[Sample]


def text(families: Iterable[Family]) -> str:
    """Return the metrics in this format, one line for each sample."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    if family.samples:
        yield f"# HELP {family.name} {family.help.translate(_IN_HELP)}"
        yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        pairs = [f'{name}="{value.translate(_IN_LABEL)}"' for name, value in sample.labels.items()]
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        yield f"{family.name}{sample.suffix}{labels} {_number(sample.value)}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
