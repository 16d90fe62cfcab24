"""The batch: what strong and weak scaling fix, and whether it comes out for a point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from orchestrator import jobs
from orchestrator.specs import arguments, ranks
from orchestrator.sweeps import keys, records
from orchestrator.toml import key_paths

#: Of the trainers here; others name theirs by `batch_argument`.
_GLOBAL, _DEVICE = "batch_size", "per_device_batch_size"
_PASSES = "gradient_accumulation_steps"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed:
    """The batch that a study keeps the same at all sizes."""

    #: samples of a step over all GPUs (strong), on each of them (weak); none: not told
    samples: int | None
    #: the argument that carries it, ("args", "batch_size")
    path: tuple[str, ...]
    #: what the program takes the argument for
    of: Literal["global", "gpu"]
    #: where it was written, or is missing
    at: key_paths.KeyPath


def argument(table: records.Table) -> tuple[str, ...]:
    """Return the key of the argument that carries the batch."""
    return keys.argument(table.batch_argument or (_DEVICE if table.kind == "weak" else _GLOBAL))


def fixed(table: records.Table, args: Mapping[str, jobs.ArgumentValue]) -> Fixed | None:
    """Return the batch of a strong or weak study; none of other sweeps."""
    if table.kind not in ("strong", "weak"):
        return None
    strong = table.kind == "strong"
    own: Literal["global", "gpu"] = "global" if strong else "gpu"
    path, of = argument(table), table.batch_argument_of or own
    at: key_paths.KeyPath = ("sweep", _GLOBAL if strong else _DEVICE)
    samples = table.batch_size if strong else table.per_device_batch_size
    if samples is None and of == own:
        for key, value in args.items():
            if keys.argument(key) == path and type(value) is int and value > 0:
                samples, at = value, ("args", key)
    return Fixed(samples=samples, path=path, of=of, at=at)


def misfit(table: records.Table, batch: Fixed, spec: jobs.JobSpec) -> str:
    """Return why a study cannot tell this program its batch; empty where it can."""
    way = "command" if spec.launch.command else "program" if spec.launch.program else ""
    if way and batch.samples is not None:
        return f"cannot go with launch.{way}, which takes no arguments: leave it out"
    if batch.samples is None and not way:
        return f'is missing: the kind "{table.kind}" needs it, or {".".join(batch.path)}'
    return ""


def setting(table: records.Table, batch: Fixed, spec: jobs.JobSpec) -> records.Setting:
    """Return the argument for a job of this shape."""
    assert batch.samples is not None
    value, devices = batch.samples, ranks.world_size(spec)
    if table.kind == "strong" and batch.of == "gpu":
        value //= devices
    elif table.kind == "weak" and batch.of == "global":
        value *= devices
    return records.Setting(path=batch.path, value=value, at=batch.at)


def contradiction(table: records.Table, batch: Fixed, spec: jobs.JobSpec) -> str:
    """Return the argument that fixes the global batch of a weak study; empty without one."""
    if table.kind != "weak" or batch.path == ("args", _GLOBAL):
        return ""
    return next((key for key in spec.args if keys.argument(key) == ("args", _GLOBAL)), "")


def indivisible(spec: jobs.JobSpec, total: int | None) -> str:
    """Return why the batch of a job does not come out; empty where it does.

    `total` is the global batch that the sweep fixes; none: what the trainers here are told.
    """
    given = {arguments.flag(key): value for key, value in spec.args.items()}
    ours = (spec.launch.module or "").split(".")[0] == "trainers"
    found = total if total is not None else given.get(arguments.flag(_GLOBAL)) if ours else None
    if type(found) is not int or found < 1:
        return ""
    among = ranks.world_size(spec)
    what = f"{among} GPUs" if ranks.gpus_per_node(spec) else f"{among} ranks"
    each = given.get(arguments.flag(_DEVICE)) if ours else None
    passes = given.get(arguments.flag(_PASSES)) if ours else None
    if type(each) is int and each > 0:
        among, what = among * each, f"{what} of {each} samples each"
    elif type(passes) is int and passes > 1:
        among, what = among * passes, f"{what} in {passes} passes each"
    if found % among == 0:
        return ""
    below, above = found - found % among, found + among - found % among
    cure = f"{below} or {above}" if below else str(above)
    return f"a global batch of {found} cannot be divided among {what}: use {cure}"
