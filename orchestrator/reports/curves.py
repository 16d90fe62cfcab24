"""Which jobs make one curve: those that differ in nothing but their size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.reports import records

#: They follow from the size, or do not change how fast a step is.
FREE = frozenset(
    {
        "base_lr",
        "date",
        "epochs",
        "gpus",
        "gpus_per_node",
        "job_id",
        "learning_rate",
        "lr",
        "node_list",
        "nodes",
        "output_dir",
        "repeat",
        "run_dir",
        "seed",
        "time",
        "warmup_epochs",
    }
)
#: Of those, what nobody wonders about.
_FOLLOWING = frozenset(
    {
        "date",
        "gpus",
        "gpus_per_node",
        "job_id",
        "node_list",
        "nodes",
        "output_dir",
        "repeat",
        "run_dir",
        "time",
    }
)
#: Samples of a step over all ranks, and on each of them.
GLOBAL_BATCH, DEVICE_BATCH = "batch_size", "per_device_batch_size"
_GLOBAL_NAMES = (GLOBAL_BATCH, "global_batch_size", "global_batch")
_ACCUMULATION = "gradient_accumulation_steps"
#: One process on one GPU is the baseline of DataParallel and of DDP alike.
_NO_MODE = ("single", "none", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Jobs of one curve."""

    attributes: Mapping[str, str]
    measurements: tuple[records.Measurement, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouping:
    """All jobs, in curves."""

    groups: tuple[Group, ...]
    #: attributes that differ between curves -> value -> sizes
    differences: Mapping[str, Mapping[str, Sequence[int]]]
    #: attributes that all have in common
    common: Mapping[str, str]
    #: strong, weak or none: how the batch goes with the size
    scaling: str | None
    #: attribute -> sizes of the jobs that do not state it, though others do
    unstated: Mapping[str, Sequence[int]]
    #: attributes of FREE that differ all the same -> values
    mixed: Mapping[str, Sequence[str]]


def group(
    measurements: Sequence[records.Measurement],
    *,
    scaling: str | None = None,
    apart: Sequence[str] = (),
) -> Grouping:
    """Return the jobs in curves; `scaling`: strong or weak, none: what the batches say.

    `apart`: attributes of FREE that make curves of their own all the same.

    A job that does not state an attribute belongs to each curve that it fits otherwise.
    """
    found, kind = _with_batch(measurements, scaling)
    free = FREE - set(apart)
    names = sorted({name for attributes in found for name in attributes} - free)
    values = {
        name: {each[name]: None for each in found if each.get(name, "") != ""} for name in names
    }
    differing = [name for name in names if len(values[name]) > 1]
    keys = [tuple(attributes.get(name, "") for name in differing) for attributes in found]
    members = _members(keys)
    groups = tuple(
        Group(
            attributes=dict(zip(differing, key, strict=True)),
            measurements=tuple(measurements[place] for place in places),
        )
        for key, places in members.items()
    )
    sizes = [one.size for one in measurements]
    return Grouping(
        groups=groups,
        differences={
            name: {
                value: _sizes(
                    size
                    for size, each in zip(sizes, found, strict=True)
                    if each.get(name, "") == value
                )
                for value in values[name]
            }
            for name in differing
        },
        common={name: next(iter(values[name])) for name in names if len(values[name]) == 1},
        scaling=kind,
        unstated={
            name: lacking
            for name in names
            if values[name]
            and (
                lacking := _sizes(
                    size
                    for size, each in zip(sizes, found, strict=True)
                    if each.get(name, "") == ""
                )
            )
            and name != "mode"
        },
        mixed={
            name: told
            for name in sorted(free - _FOLLOWING)
            if len(told := sorted({each[name] for each in found if each.get(name)})) > 1
        },
    )


def held(measurements: Sequence[records.Measurement]) -> list[dict[str, str]]:
    """Return the attributes of each, with the batch that the study holds in place of the batch."""
    return _with_batch(measurements, None)[0]


def _sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(sizes)))


def _members(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], list[int]]:
    """Return by key the places of the jobs that fit it; what fits no other is its own."""
    whole = dict.fromkeys(key for key in keys if "" not in key)
    for key in keys:
        if "" in key and not any(_fits(key, other) for other in whole):
            whole[key] = None
    return {key: [place for place, one in enumerate(keys) if _fits(one, key)] for key in whole}


def _fits(key: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return all(mine in ("", theirs) for mine, theirs in zip(key, other, strict=True))


def _with_batch(
    measurements: Sequence[records.Measurement], scaling: str | None
) -> tuple[list[dict[str, str]], str | None]:
    """Return attributes in which the batch is that which the study holds, and which it is."""
    found = [_plain(one.attributes) for one in measurements]
    batches = [_batches(one.size, each) for one, each in zip(measurements, found, strict=True)]
    kind = scaling or _kind([one.size for one in measurements], batches)
    for each, batch in zip(found, batches, strict=True):
        for name in (*_GLOBAL_NAMES, DEVICE_BATCH):
            each.pop(name, None)
        if batch is None:
            continue
        name = DEVICE_BATCH if kind == "weak" else GLOBAL_BATCH
        each[name] = str(batch[1] if kind == "weak" else batch[0])
    return found, kind


def _plain(attributes: Mapping[str, str]) -> dict[str, str]:
    return {
        name: "" if name == "mode" and value in _NO_MODE else value
        for name, value in attributes.items()
    }


def _batches(size: int, attributes: Mapping[str, str]) -> tuple[int, float] | None:
    """Return samples of a step over all ranks and on each; none where neither is a number."""
    passes = _number(attributes.get(_ACCUMULATION)) or 1
    for name in _GLOBAL_NAMES:
        if samples := _number(attributes.get(name)):
            return samples, _whole(samples / size)
    if samples := _number(attributes.get(DEVICE_BATCH)):
        return samples * size * passes, _whole(samples * passes)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def _kind(sizes: Sequence[int], batches: Sequence[tuple[int, float] | None]) -> str | None:
    """Return which batch is held where the size grows: that which makes fewer curves."""
    known = [one for one in batches if one is not None]
    if not known or len(set(sizes)) == 1:
        return None
    strong, weak = len({one[0] for one in known}), len({one[1] for one in known})
    return "weak" if weak < strong else "strong"
