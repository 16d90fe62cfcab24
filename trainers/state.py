"""The state of a run that changes during training; saved and restored bit-identically."""

import argparse
import dataclasses
import hashlib
import math
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp_state

from trainers import checkpoint, distributed, errors, metrics, parallel
from trainers.data import loading

if TYPE_CHECKING:
    from trainers import train


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Progress of a run between two steps; the same on all ranks, and saved in checkpoints."""

    #: Current epoch, counted from 1.
    epoch: int = 1
    #: Completed steps of the current epoch.
    step_in_epoch: int = 0
    #: Completed steps of the run.
    step: int = 0
    #: Samples of the completed epochs over all ranks.
    num_samples: int = 0
    #: Training time of the completed epochs, without evaluation.
    seconds: float = 0.0
    eval_seconds: float = 0.0
    #: Time in which training waited for checkpoints.
    checkpoint_seconds: float = 0.0
    finished: bool = False
    #: Metrics of each epoch by name.
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def end_epoch(
        self, span: metrics.Span, evaluation: dict[str, float], learning_rate: float
    ) -> None:
        """Record the results of an epoch and move to the next."""
        self.history.append(
            {
                "epoch": self.epoch,
                **{f"train_{name}": value for name, value in span.means.items()},
                **{f"val_{name}": value for name, value in evaluation.items()},
                "seconds": span.seconds,
                "num_samples": span.num_samples,
                "learning_rate": learning_rate,
            }
        )
        self.num_samples += span.num_samples
        self.seconds += span.seconds
        self.epoch += 1
        self.step_in_epoch = 0

    @property
    def last_epoch(self) -> int:
        """Epoch of the last completed step."""
        return self.epoch if self.step_in_epoch else max(1, self.epoch - 1)

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of the completed epochs; None before the first."""
        return self.num_samples / self.seconds if self.seconds else None

    # These are computed from the history, so a resumed run may have other goals.

    def best(self, metric: str) -> float | None:
        """Return the best validation result so far; None before the first evaluation."""
        values = self._values(metric)
        return None if not values else (min(values) if metric == "loss" else max(values))

    def is_best(self, metric: str) -> bool:
        """Return whether the last epoch is better than all before."""
        *before, last = self._values(metric)
        return all(is_better(last, value, metric) for value in before)

    def check_finished(self, args: argparse.Namespace, metric: str) -> str:
        """Set `finished`; return why training ends early: `target`, `patience` or nothing."""
        why = ""
        if self.has_reached_target(args):
            why = "target"
        elif self.has_lost_patience(args, metric):
            why = "patience"
        self.finished = bool(why) or self.epoch > args.epochs
        return why

    def has_reached_target(self, args: argparse.Namespace) -> bool:
        """Return whether --patience consecutive epochs reached --target-accuracy."""
        target = args.target_accuracy
        last = self._values("accuracy")[-args.patience :]
        return (
            target is not None
            and len(last) == args.patience
            and all(accuracy >= target for accuracy in last)
        )

    def has_lost_patience(self, args: argparse.Namespace, metric: str) -> bool:
        """Return whether --early-stopping-patience epochs brought no better result."""
        best, epochs_without_better = -math.inf if metric != "loss" else math.inf, 0
        for value in self._values(metric):
            if is_better(value, best, metric, args.early_stopping_min_delta):
                best, epochs_without_better = value, 0
            else:
                epochs_without_better += 1
        limit = args.early_stopping_patience
        return limit is not None and epochs_without_better >= limit

    def _values(self, metric: str) -> list[float]:
        return [epoch[f"val_{metric}"] for epoch in self.history if f"val_{metric}" in epoch]


def is_better(value: float, than: float, metric: str, min_delta: float = 0.0) -> bool:
    """Return whether a result is better: a loss if it is smaller, any other metric if larger."""
    return value < than - min_delta if metric == "loss" else value > than + min_delta


def capture(trainer: "train.Trainer") -> checkpoint.State:
    """Return a copy of everything that the next step depends on; all ranks must call it.

    Ranks other than 0 get an empty state. With FSDP, model and optimizer are not part of it.
    """
    device = trainer.device
    of_rank = {
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        # Saved per rank: they depend on the samples of the rank until the epoch ends.
        "buffers": copied(dict(batch_norm_buffers(trainer.model))),
        "meter": trainer.meter.state(),
    }
    ranks = distributed.gather(of_rank)
    if not ranks:
        return {}
    state = {
        "format": 2,
        "settings": dict(trainer.settings),
        "environment": dict(trainer.environment),
        "scaler": trainer.scaler.state_dict(),
        "progress": dataclasses.asdict(trainer.progress),
        "ranks": ranks,
    }
    if trainer.mode != "fsdp":
        state["model"] = copied(trainer.model.state_dict())
        state["optimizer"] = copied(trainer.optimizer.state_dict())
        if trainer.ema is not None:
            state["ema"] = copied(trainer.ema.state_dict())
    return state


def restore(trainer: "train.Trainer", path: pathlib.Path, state: checkpoint.State) -> None:
    """Continue from a checkpoint of any number of ranks; all ranks must call it."""
    try:
        # Own weight decay, momentum and kernels: these may differ with --resume force.
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in trainer.optimizer.param_groups
        ]
        if path.is_dir():
            _load_sharded(trainer, path)
        elif trainer.mode == "fsdp":
            _load_unsharded(trainer, state)
        else:
            trainer.model.load_state_dict(state["model"])
            trainer.optimizer.load_state_dict(state["optimizer"])
            if trainer.ema is not None:
                # With --resume force, the checkpoint may have no averages.
                trainer.ema.load_state_dict(state.get("ema", state["model"]))
        for group, own in zip(trainer.optimizer.param_groups, groups, strict=True):
            group.update(own)
    # CheckpointException of PyTorch is a BaseException.
    except (RuntimeError, ValueError, KeyError, dcp.api.CheckpointException) as error:
        message = " ".join(str(checkpoint.root_cause(error)).split())
        raise errors.CheckpointError(
            f"The checkpoint does not match the model and the optimizer: {message.rstrip('.')}. Use"
            " those of the checkpoint, or another --checkpoint-dir."
        ) from error
    # Empty after a run with another precision.
    if state["scaler"]:
        trainer.scaler.load_state_dict(state["scaler"])
    for name, value in state["progress"].items():
        setattr(trainer.progress, name, value)
    ranks, rank = state["ranks"], trainer.dist.rank
    if len(ranks) == trainer.dist.world_size:
        torch.set_rng_state(ranks[rank]["rng"])
        if trainer.device.type == "cuda" and ranks[rank]["cuda_rng"] is not None:
            torch.cuda.set_rng_state(ranks[rank]["cuda_rng"], trainer.device)
        buffers = ranks[rank]["buffers"]
    else:
        # With another number of ranks, random states cannot be restored, and batch-norm statistics
        # are averaged as at the end of an epoch.
        seed_rank(trainer.args.seed, rank, trainer.progress.step)
        buffers = {}
        for name in ranks[0]["buffers"]:
            values = torch.stack([each["buffers"][name] for each in ranks])
            buffers[name] = values.double().mean(dim=0).to(values.dtype)
    for name, buffer in batch_norm_buffers(trainer.model):
        buffer.copy_(buffers[name])
    trainer.meter.restore([each["meter"] for each in ranks], trainer.dist)


def sharded(trainer: "train.Trainer") -> checkpoint.State:
    """Return this rank's parts of the model, the optimizer and the averages (FSDP)."""
    model_state, optimizer_state = dcp_state.get_state_dict(trainer.model, trainer.optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    return state if trainer.ema is None else {**state, "ema": trainer.ema.state_dict()}


def _load_sharded(trainer: "train.Trainer", path: pathlib.Path) -> None:
    """Load this rank's parts from a folder written by any number of ranks."""
    state = sharded(trainer)
    saved = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    # With --resume force, the checkpoint may have no averages.
    is_averaged = any(name.startswith("ema.") for name in saved)
    if not is_averaged:
        state.pop("ema", None)
    dcp.load(state, checkpoint_id=path)
    if trainer.ema is not None and not is_averaged:
        trainer.ema.load_state_dict(state["model"])
    dcp_state.set_state_dict(
        trainer.model,
        trainer.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )


def _load_unsharded(trainer: "train.Trainer", state: checkpoint.State) -> None:
    """Load this rank's parts from the state of a run without FSDP."""
    names = [name for name, _ in trainer.model.named_parameters()]
    saved = state["optimizer"]
    optimizer_state = {
        "state": {names[number]: values for number, values in saved["state"].items()},
        "param_groups": [
            {**group, "params": [names[number] for number in group["params"]]}
            for group in saved["param_groups"]
        ],
    }
    options = dcp_state.StateDictOptions(full_state_dict=True)
    dcp_state.set_state_dict(
        trainer.model,
        trainer.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=optimizer_state,
        options=options,
    )
    if trainer.ema is not None:
        averages = {**state["model"], **state.get("ema", {})}
        with trainer.ema.applied():
            dcp_state.set_model_state_dict(trainer.model, averages, options=options)


def copied(tree: Any) -> Any:
    """Return a copy in host memory, which further training does not change."""
    return loading.map_tensors(tree, lambda tensor: tensor.detach().to("cpu", copy=True))


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed dropout with a different stream per rank; the initial weights are the same on all."""
    digest = hashlib.sha256(f"dropout:{seed}:{rank}:{step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8]) >> 1)


def batch_norm_buffers(model: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield the batch-norm statistics by name."""
    for name, module in model.named_modules():
        if parallel.is_batch_norm(module):
            for part, buffer in module.named_buffers(recurse=False):
                yield f"{name}.{part}", buffer


@torch.no_grad()
def is_finite(model: nn.Module) -> bool:
    """Return whether all weights and statistics are finite on all ranks; all must call it."""
    values = [*model.parameters(), *model.buffers()]
    local = [value.to_local() if hasattr(value, "to_local") else value for value in values]
    finite = [value.isfinite().all() for value in local if value.is_floating_point()]
    bad = 0 if not finite or torch.stack(finite).all() else 1
    return not distributed.all_reduce(torch.tensor(bad), "max").item()
