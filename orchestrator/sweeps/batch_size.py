"""The batch size of strong and weak scaling, and whether it can be divided among the ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from orchestrator import jobs
from orchestrator.specs import ranks
from orchestrator.sweeps import keys, records
from orchestrator.toml.key_paths import KeyPath

#: Arguments of our trainers; other programs need `batch_argument`.
GLOBAL, _DEVICE = ("args", "batch_size"), ("args", "per_device_batch_size")
_PASSES = "gradient_accumulation_steps"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """The batch that is the same at all sizes."""

    kind: Literal["strong", "weak"]
    #: samples per step over all GPUs (strong) or on each (weak); None: not given
    samples: int | None
    #: the program's argument, ("args", "batch_size"), and what it counts
    path: tuple[str, ...]
    of: Literal["global", "gpu"]
    #: where it is, or is missing, in the file
    at: KeyPath

    @property
    def global_samples(self) -> int | None:
        return self.samples if self.kind == "strong" else None

    def problem(self, spec: jobs.JobSpec) -> str:
        """Return why a program cannot be told this batch; "" if it can."""
        way = "command" if spec.launch.command else "program" if spec.launch.program else ""
        if way and self.samples is not None:
            return f"cannot go with launch.{way}, which takes no arguments: remove it"
        if self.samples is None and not way:
            return f'is missing: kind "{self.kind}" needs it, or {".".join(self.path)}'
        return ""

    def setting(self, spec: jobs.JobSpec) -> records.Setting:
        """Return the argument for a job with these ranks."""
        assert self.samples is not None
        value = self.samples
        if self.kind == "strong" and self.of == "gpu":
            value //= ranks.world_size(spec)
        elif self.kind == "weak" and self.of == "global":
            value *= ranks.world_size(spec)
        return records.Setting(path=self.path, value=value, at=self.at)


def argument(table: records.Table) -> tuple[str, ...]:
    """Return the key of the program's argument for the batch."""
    if table.batch_argument:
        return keys.argument(table.batch_argument)
    return _DEVICE if table.kind == "weak" else GLOBAL


def batch_of(table: records.Table, args: Mapping[str, jobs.ArgumentValue]) -> Batch | None:
    """Return the batch of a strong or weak study; None for other sweeps."""
    own: Literal["global", "gpu"]
    if table.kind == "strong":
        own, name, samples = "global", "batch_size", table.batch_size
    elif table.kind == "weak":
        own, name, samples = "gpu", "per_device_batch_size", table.per_device_batch_size
    else:
        return None
    path, of = argument(table), table.batch_argument_of or own
    at: KeyPath = ("sweep", name)
    if samples is None and of == own:
        for key, value in args.items():
            if keys.argument(key) == path and type(value) is int and value > 0:
                samples, at = value, ("args", key)
    return Batch(kind=table.kind, samples=samples, path=path, of=of, at=at)


def indivisible(spec: jobs.JobSpec, global_samples: int | None) -> str:
    """Return why the batch cannot be divided among the ranks; "" if it can.

    `global_samples`: of the sweep; None: those in the arguments, if the program is our trainer.
    """
    is_trainer = (spec.launch.module or "").split(".")[0] == "trainers"
    given = spec.args if is_trainer else {}
    samples = given.get(GLOBAL[1]) if global_samples is None else global_samples
    if type(samples) is not int or samples < 1:
        return ""
    parts = ranks.world_size(spec)
    among = f"{parts} GPUs" if ranks.gpus_per_node(spec) else f"{parts} ranks"
    device, passes = given.get(_DEVICE[1]), given.get(_PASSES)
    if type(device) is int and device > 0:
        parts, among = parts * device, f"{among} of {device} samples each"
    elif type(passes) is int and passes > 1:
        parts, among = parts * passes, f"{among} in {passes} passes each"
    below, remainder = samples - samples % parts, samples % parts
    if not remainder:
        return ""
    fix = f"{below} or {below + parts}" if below else str(parts)
    return f"a global batch of {samples} cannot be divided among {among}: use {fix}"
