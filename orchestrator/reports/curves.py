"""Group measurements into curves: runs that differ only in their size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from orchestrator.reports import records

#: Attributes that follow from the size and are not worth a warning.
_OF_SIZE = frozenset(
    "date gpus gpus_per_node job_id node_list nodes output_dir repeat run_dir time".split()
)
#: Attributes that make no curve of their own: these, and those that do not change the speed.
FREE = _OF_SIZE | set("base_lr epochs learning_rate lr seed warmup_epochs".split())
#: Samples of a step over all ranks, and on each of them.
GLOBAL_BATCH, DEVICE_BATCH = "batch_size", "per_device_batch_size"
_GLOBAL_BATCH_NAMES = (GLOBAL_BATCH, "global_batch_size", "global_batch")
#: One process on one GPU is the baseline of DataParallel and of DDP.
_NO_MODE = ("single", "none", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouping:
    #: attributes and runs of each curve
    groups: Sequence[tuple[Mapping[str, str], Sequence[records.Measurement]]]
    #: attributes that differ between curves -> value -> sizes
    differences: Mapping[str, Mapping[str, Sequence[int]]]
    #: attributes that are equal in all runs
    common: Mapping[str, str]
    #: "strong", "weak" or None: how the batch follows the size
    scaling: str | None
    #: attributes that only some runs state -> sizes of the other runs
    unstated: Mapping[str, Sequence[int]]
    #: attributes of FREE with several values -> values
    mixed: Mapping[str, Sequence[str]]


def group(
    measurements: Sequence[records.Measurement],
    *,
    scaling: str | None = None,
    apart: Sequence[str] = (),
) -> Grouping:
    """Group measurements into curves.

    `scaling`: "strong", "weak", or None to infer it from the batches. `apart`: attributes of FREE
    that make curves nevertheless. A run that does not state an attribute belongs to each curve
    that it matches otherwise.
    """
    attributes, kind = with_batch(measurements, scaling)
    free = FREE - set(apart)

    def sizes(name: str, value: str) -> tuple[int, ...]:
        pairs = zip(measurements, attributes, strict=True)
        return tuple(sorted({run.size for run, own in pairs if own.get(name, "") == value}))

    values = {
        name: [*dict.fromkeys(own[name] for own in attributes if own.get(name))]
        for name in sorted({name for own in attributes for name in own})
    }
    compared = {name: known for name, known in values.items() if name not in free}
    differing = [name for name, known in compared.items() if len(known) > 1]
    keys = [tuple(own.get(name, "") for name in differing) for own in attributes]
    return Grouping(
        groups=[
            (
                dict(zip(differing, curve, strict=True)),
                [run for run, key in zip(measurements, keys, strict=True) if _matches(key, curve)],
            )
            for curve in _curve_keys(keys)
        ],
        differences={
            name: {value: sizes(name, value) for value in values[name]} for name in differing
        },
        common={name: known[0] for name, known in compared.items() if len(known) == 1},
        scaling=kind,
        unstated={
            name: lacking
            for name, known in compared.items()
            if known and name != "mode" and (lacking := sizes(name, ""))
        },
        mixed={
            name: sorted(known)
            for name, known in values.items()
            if name in free - _OF_SIZE and len(known) > 1
        },
    )


def _curve_keys(keys: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the complete keys, and incomplete ones that match none of them."""
    curves = dict.fromkeys(key for key in keys if "" not in key)
    for key in keys:
        if "" in key and not any(_matches(key, curve) for curve in curves):
            curves[key] = None
    return list(curves)


def _matches(key: tuple[str, ...], curve: tuple[str, ...]) -> bool:
    return all(value in ("", fixed) for value, fixed in zip(key, curve, strict=True))


def with_batch(
    measurements: Sequence[records.Measurement], scaling: str | None
) -> tuple[list[dict[str, str]], str | None]:
    """Return attributes with only the batch that the study fixes, and the kind of scaling."""
    attributes = [dict(run.attributes) for run in measurements]
    for own in attributes:
        if own.get("mode") in _NO_MODE:
            own["mode"] = ""
    batches = [_batches(run.size, run.attributes) for run in measurements]
    kind = scaling or _kind([run.size for run in measurements], batches)
    for own, batch in zip(attributes, batches, strict=True):
        for name in (*_GLOBAL_BATCH_NAMES, DEVICE_BATCH):
            own.pop(name, None)
        if batch is not None:
            name = DEVICE_BATCH if kind == "weak" else GLOBAL_BATCH
            own[name] = f"{batch[kind == 'weak']:.15g}"
    return attributes, kind


def _batches(size: int, attributes: Mapping[str, str]) -> tuple[int, float] | None:
    """Return the samples of a step over all ranks and on each; None if neither is a number."""

    def number(name: str) -> int:
        text = attributes.get(name, "")
        return int(text) if text.isdecimal() else 0

    for name in _GLOBAL_BATCH_NAMES:
        if samples := number(name):
            return samples, samples / size
    samples = number(DEVICE_BATCH) * (number("gradient_accumulation_steps") or 1)
    return (samples * size, samples) if samples else None


def _kind(sizes: Sequence[int], batches: Sequence[tuple[int, float] | None]) -> str | None:
    """Return the kind of scaling that makes fewer curves; None for one size or no batches."""
    known = [batch for batch in batches if batch is not None]
    if not known or len(set(sizes)) == 1:
        return None
    strong, weak = (len(set(batch)) for batch in zip(*known, strict=True))
    return "weak" if weak < strong else "strong"
