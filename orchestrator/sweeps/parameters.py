"""The parameters that a sweep varies: their values, headings, and labels of points."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.sweeps import keys, records

#: Last part of a key whose values make repeats of one point.
_SEEDS = frozenset("seed random_seed rng_seed manual_seed global_seed".split())
#: Key of the parameter that tells repeats of a point apart.
REPEAT = "repeat"

Value = jobs.ArgumentValue | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """A key that differs between points."""

    #: "args.lr"
    key: str
    #: the shortest name that no other column has: "lr"
    heading: str

    @property
    def is_seed(self) -> bool:
        """Whether runs that differ only in this key are repeats."""
        return self.key == REPEAT or self.key.rpartition(".")[2] in _SEEDS


class Points:
    """What the points of a sweep vary."""

    def __init__(
        self,
        points: Sequence[records.StoredPoint],
        document: Mapping[str, Any],
        taken: Collection[str] = (),
    ) -> None:
        """`document`: the spec by table and key; `taken`: headings of other columns."""
        self._defaults = _defaults(document)
        names = list(dict.fromkeys(key for point in points for key in point.settings))
        varied = [key for key in names if len({text(self.value(p, key)) for p in points}) > 1]
        # Points that are all alike are described by what they set.
        varied = varied or names
        if len({point.repeat for point in points}) > 1:
            varied.append(REPEAT)
        short = {key: key.rpartition(".")[2] for key in varied}
        counts = collections.Counter([*short.values(), *taken])
        #: in the order of the axes; the repeat, if there are several, is the last one
        self.parameters = [
            Parameter(key=key, heading=name if counts[name] == 1 else key)
            for key, name in short.items()
        ]

    def value(self, point: records.StoredPoint, key: str) -> Value:
        """Return the value of a key; that of the spec if the point does not set it."""
        if key == REPEAT:
            return point.repeat
        value = point.settings.get(key)
        return self._defaults.get(key) if value is None else value

    def label(self, point: records.StoredPoint) -> str:
        """Return `lr=0.1 seed=2`, with the repeat if there are several: `lr=0.1 r2`."""
        return " ".join(
            f"r{point.repeat}"
            if parameter.key == REPEAT
            else f"{parameter.heading}={shown(self.value(point, parameter.key))}"
            for parameter in self.parameters
        )


def _defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    leaves = {
        ".".join(keys.argument(parts[1]) if parts[0] == "args" else parts): value
        for parts, _, value in keys.leaves(document, ())
        if len(parts) > 1 and parts[0] != "sweep"
    }
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in leaves.items()
    }


def text(value: Value) -> str:
    """Return a text that equal values share: 1 and 1.0 do, 1 and "1" do not."""
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    # Lists come from the database.
    return repr(tuple(value) if isinstance(value, list) else value)


def order(value: Value) -> tuple[int, float, str]:
    """Return what values are sorted by: numbers, then texts, then None."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 2 if value is None else 1, 0.0, shown(value)


def shown(value: Value) -> str:
    """Return a value as a spec shows it, without quotes."""
    if isinstance(value, tuple | list):
        return ",".join(map(shown, value))
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
