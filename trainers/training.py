"""The state that changes during training; saved and restored bit-identically."""

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import batchnorm

from trainers import checkpoints, errors, metrics, progress, ranks, steps

Tree = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """The state of a run on this rank."""

    #: Rank of this process, and the size of the run.
    place: ranks.Ranks
    #: Device of the model.
    device: torch.device
    #: The unwrapped model.
    model: nn.Module
    #: The model wrapped for DDP or DataParallel.
    wrapped: nn.Module
    #: The model for full batches: `wrapped`, or its compiled form.
    compiled: nn.Module
    #: Updates the weights.
    optimizer: torch.optim.Optimizer
    #: Configuration of all steps.
    rules: steps.Rules
    #: Measures the epoch.
    epoch_meter: metrics.SpanMeter
    #: Measures a window of steps.
    window_meter: metrics.SpanMeter
    #: Progress of the run.
    progress: progress.Progress

    def state(self, settings: dict[str, Any], surroundings: dict[str, Any]) -> checkpoints.State:
        """Return a copy of everything that the next step depends on; all ranks must call it.

        Returns an empty state on ranks other than 0.
        """
        parts = ranks.gather_on_rank_0(self._rank_state(), self.place)
        if self.place.rank != 0:
            return {}
        return {
            "format": 1,
            "settings": settings,
            "surroundings": surroundings,
            "model": copied(self.model.state_dict()),
            "optimizer": copied(self.optimizer.state_dict()),
            "scaler": self.rules.scaler.state_dict(),
            "progress": dataclasses.asdict(self.progress),
            "ranks": parts,
        }

    def restore(self, state: checkpoints.State, seed: int) -> None:
        """Resume from a checkpoint of any number of ranks; all ranks must call it."""
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(self._with_own_rules(state["optimizer"]))
        except (RuntimeError, ValueError, KeyError) as error:
            what = " ".join(str(error).split())
            raise errors.CheckpointError(
                f"The checkpoint does not match the model and the optimizer: {what}"
            ) from error
        self.rules.scaler.load_state_dict(state["scaler"])
        for name, value in state["progress"].items():
            setattr(self.progress, name, value)
        parts = state["ranks"]
        if len(parts) == self.place.world_size:
            self._restore_rank(parts[self.place.rank])
            return
        # With another number of ranks, random states cannot be restored. Rank 0 continues the sums
        # of all ranks, and batch-norm statistics are averaged as at the end of an epoch.
        seed_rank(seed, self.place.rank, self.progress.step)
        buffers = {name: _mean([part["buffers"][name] for part in parts]) for name in _names(parts)}
        self._load_buffers(buffers)
        for name, meter in self._meters():
            merged = {key: sum(part[name][key] for part in parts) for key in parts[0][name]}
            for key in ("seconds", "wait_seconds"):
                merged[key] = max(part[name][key] for part in parts)
            if self.place.rank != 0:
                merged |= {"num_samples": 0, "loss": 0.0, "correct": 0}
            meter.restore(merged)

    def _with_own_rules(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return a saved optimizer state with this run's weight decay, momentum and kernels.

        These differ after --resume force or on another type of device.
        """
        groups = [
            {**before, **{key: value for key, value in now.items() if key != "params"}}
            for before, now in zip(saved["param_groups"], self.optimizer.param_groups, strict=True)
        ]
        return {**saved, "param_groups": groups}

    def _rank_state(self) -> dict[str, Any]:
        on_gpu = self.device.type == "cuda"
        return {
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if on_gpu else None,
            # Saved per rank: they depend on the samples of the rank until the epoch ends.
            "buffers": copied(dict(batch_norm_buffers(self.model))),
            **{name: meter.state() for name, meter in self._meters()},
        }

    def _restore_rank(self, part: dict[str, Any]) -> None:
        # The trainer does not use the generators of Python and NumPy.
        torch.set_rng_state(part["rng"])
        if self.device.type == "cuda" and part["cuda_rng"] is not None:
            torch.cuda.set_rng_state(part["cuda_rng"], self.device)
        self._load_buffers(part["buffers"])
        for name, meter in self._meters():
            meter.restore(part[name])

    def _load_buffers(self, buffers: dict[str, torch.Tensor]) -> None:
        for name, buffer in batch_norm_buffers(self.model):
            buffer.copy_(buffers[name])

    def _meters(self) -> tuple[tuple[str, metrics.SpanMeter], ...]:
        return ("epoch_meter", self.epoch_meter), ("window_meter", self.window_meter)


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed dropout with a different stream per rank; the initial weights are the same on all."""
    digest = hashlib.sha256(f"dropout:{seed}:{rank}:{step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8]) >> 1)


def batch_norm_buffers(model: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield the batch-norm statistics by name."""
    for name, module in model.named_modules():
        if isinstance(module, batchnorm._BatchNorm):
            for part, buffer in module.named_buffers(recurse=False):
                yield f"{name}.{part}", buffer


def copied(tree: Tree) -> Tree:
    """Return a copy in host memory, which further training does not change."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(copied(value) for value in tree)
    return tree


def _names(parts: list[dict[str, Any]]) -> list[str]:
    return list(parts[0]["buffers"])


def _mean(tensors: list[torch.Tensor]) -> torch.Tensor:
    stacked = torch.stack(tensors)
    return stacked.double().mean(dim=0).to(stacked.dtype)
