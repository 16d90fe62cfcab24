"""The state of a run that changes during training; saved and restored bit-identically."""

import argparse
import dataclasses
import math
import pathlib
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.utils import data as torch_data

from trainers import checkpoint, distributed, errors, metrics, optim, parallel
from trainers.data import batches, loading, memory

if TYPE_CHECKING:
    from trainers import train

#: Arguments that must be the same to resume a run.
DECISIVE = (
    "dataset", "no_augmentation", "model", "task", "task_options", "seed", "steps_per_epoch",
    "drop_last", "optimizer", "base_lr", "lr_scaling", "lr_base_batch_size", "schedule", "min_lr",
    "lr_gamma", "lr_step_epochs", "warmup_epochs", "momentum", "nesterov", "weight_decay",
    "label_smoothing", "max_gradient_norm", "ema_decay",
)  # fmt: skip

#: What may differ; the results then agree only up to rounding.
HARMLESS = ("mode", "world_size", "device", "torch", "cuda", "nccl")


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Progress of a run between two steps; the same on all ranks, and saved in checkpoints."""

    #: Current epoch, counted from 1.
    epoch: int = 1
    #: Completed steps of the current epoch; `step` are those of the run.
    step_in_epoch: int = 0
    step: int = 0
    #: Samples of the completed epochs over all ranks.
    num_samples: int = 0
    #: Training time of the completed epochs, without evaluation.
    seconds: float = 0.0
    eval_seconds: float = 0.0
    #: Time in which training waited for checkpoints.
    checkpoint_seconds: float = 0.0
    finished: bool = False
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def end_epoch(self, span: metrics.Span, evaluation: dict[str, float], lr: float) -> None:
        results = {f"train_{name}": value for name, value in span.means.items()}
        results |= {f"val_{name}": value for name, value in evaluation.items()}
        results |= {"seconds": span.seconds, "num_samples": span.num_samples}
        self.history.append({"epoch": self.epoch, **results, "learning_rate": lr})
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
        best = max(self._scores(metric), default=None)
        return -best if best is not None and metric == "loss" else best

    def is_best(self, metric: str) -> bool:
        """Return whether the last epoch is better than all before."""
        *before, last = self._scores(metric)
        return all(last > score for score in before)

    def check_finished(self, args: argparse.Namespace, metric: str) -> str:
        """Set `finished`; return why training ends before its last epoch, or nothing."""
        why = ""
        last = self._scores("accuracy")[-args.patience :]
        best, epochs_without_better = -math.inf, 0
        for score in self._scores(metric):
            epochs_without_better += 1
            if score > best + args.early_stopping_min_delta:
                best, epochs_without_better = score, 0
        if args.target_accuracy is not None and len(last) == args.patience:
            why = "Target accuracy reached" if min(last) >= args.target_accuracy else ""
        if not why and epochs_without_better >= (args.early_stopping_patience or math.inf):
            why = f"Validation {metric} no longer improves (best {self.best(metric) or 0.0:.4f})"
        self.finished = bool(why) or self.epoch > args.epochs
        return why

    def _scores(self, metric: str) -> list[float]:
        """Return the validation results: the larger, the better. The sign of losses is changed."""
        sign, name = -1 if metric == "loss" else 1, f"val_{metric}"
        return [sign * epoch[name] for epoch in self.history if name in epoch]


def decisive(trainer: "train.Trainer", fingerprint: str) -> dict[str, Any]:
    """Return the settings that a checkpoint of this run must match; plain values only."""
    args = trainer.args
    return {
        **{name: getattr(args, name) for name in DECISIVE},
        **({} if args.task is None else {"dataset": None, "model": None}),
        # These schedules depend on it.
        "epochs": args.epochs if args.schedule in ("cosine", "linear") else None,
        "precision": trainer.precision,
        "batch_size": trainer.plan.global_batch_size,
        "data_fingerprint": fingerprint,
    }


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted(name for name in now if saved.get(name) != now[name])
    return [f"{name} {saved.get(name)}, now {now[name]}" for name in names]


def data_fingerprint(trainer: "train.Trainer", *parts: torch_data.Dataset[Any]) -> str:
    """Return a fingerprint of the data; raise DataError if the ranks have different data."""
    fingerprint = "".join(memory.fingerprint(part) for part in parts)
    number = int(fingerprint, 16) % 2**63
    largest, smallest = distributed.all_reduce(torch.tensor([number, -number]), "max").tolist()
    if largest != -smallest:
        raise errors.DataError(
            f"The ranks have different data, on rank {trainer.dist.rank} ({socket.gethostname()})"
            f" with the fingerprint {fingerprint}: stage it again on the nodes that differ."
        )
    return fingerprint


def capture(trainer: "train.Trainer") -> checkpoint.State:
    """Return to rank 0 a copy of what the next step needs, but FSDP's shards; all must call it."""
    device = trainer.device
    of_rank = {
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        # Saved per rank: they depend on the samples of the rank until the epoch ends.
        "buffers": copied(batch_norm_buffers(trainer.model)),
    }
    span = trainer.meter.read()
    ranks = distributed.gather(of_rank)
    if not ranks:
        return {}
    return {
        "settings": trainer.settings,
        "environment": trainer.environment,
        "scaler": trainer.scaler.state_dict(),
        "progress": dataclasses.asdict(trainer.progress),
        "span": dataclasses.asdict(span),
        "ranks": ranks,
        **({} if trainer.mode == "fsdp" else copied(weights(trainer))),
    }


def weights(trainer: "train.Trainer") -> checkpoint.State:
    """Return model, optimizer and averages by the names of the parameters; with FSDP its shards."""
    model_state, optimizer_state = dcp_state.get_state_dict(trainer.model, trainer.optimizer)
    averages = {} if trainer.ema is None else {"ema": trainer.ema.averages}
    return {"model": model_state, "optimizer": optimizer_state, **averages}


def restore(trainer: "train.Trainer", path: pathlib.Path, state: checkpoint.State) -> list[str]:
    """Continue from a checkpoint of any number of ranks; return what has changed since."""
    changes = _differences(state["settings"], trainer.settings)
    if changes and trainer.args.resume != "force":
        raise errors.CheckpointError(
            f"The checkpoint has other settings: {'; '.join(changes)}. Use the settings of the"
            " checkpoint, another --checkpoint-dir, or --resume force."
        )
    groups = trainer.optimizer.param_groups
    # Own weight decay, momentum and kernels: these may differ with --resume force.
    own = [{key: group[key] for key in group.keys() - {"params"}} for group in groups]
    try:
        _load_weights(trainer, _read_shards(trainer, path) if path.is_dir() else state)
    # CheckpointException of PyTorch is a BaseException.
    except (RuntimeError, ValueError, KeyError, dcp.api.CheckpointException) as error:
        message = " ".join(str(checkpoint.root_cause(error)).split())
        raise errors.CheckpointError(
            f"The checkpoint does not match the model and the optimizer: {message.rstrip('.')}. Use"
            " those of the checkpoint, or another --checkpoint-dir."
        ) from error
    for group, options in zip(trainer.optimizer.param_groups, own, strict=True):
        group.update(options)
    # Empty after a run with another precision.
    if state["scaler"]:
        trainer.scaler.load_state_dict(state["scaler"])
    trainer.progress = Progress(**state["progress"])
    ranks, rank = state["ranks"], trainer.dist.rank
    if len(ranks) == trainer.dist.world_size:
        torch.set_rng_state(ranks[rank]["rng"])
        if trainer.device.type == "cuda" and ranks[rank]["cuda_rng"] is not None:
            torch.cuda.set_rng_state(ranks[rank]["cuda_rng"], trainer.device)
        saved = [ranks[rank]["buffers"]]
    else:
        # With another number of ranks, random states cannot be restored, and batch-norm statistics
        # are averaged as at the end of an epoch.
        step = trainer.progress.step
        torch.manual_seed(batches.seed_of("dropout", trainer.args.seed, rank, step))
        saved = [each["buffers"] for each in ranks]
    for name, buffer in batch_norm_buffers(trainer.model).items():
        buffer.copy_(torch.stack([buffers[name] for buffers in saved]).double().mean(dim=0))
    trainer.meter.start(metrics.Span(**state["span"]), rank=rank)
    environment = {name: trainer.environment[name] for name in HARMLESS}
    return changes + _differences(state["environment"], environment)


def _read_shards(trainer: "train.Trainer", path: pathlib.Path) -> checkpoint.State:
    """Read this rank's parts of a folder, written by any number of ranks, into its weights."""
    state = weights(trainer)
    saved = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    if not any(name.startswith("ema.") for name in saved):
        state.pop("ema", None)
    dcp.load(state, checkpoint_id=path)
    return state


def _load_weights(trainer: "train.Trainer", state: checkpoint.State) -> None:
    """Set model, optimizer and averages from a file or from what `_read_shards` returned."""
    is_file, model, optimizer = "ranks" in state, trainer.model, trainer.optimizer
    options = dcp_state.StateDictOptions(full_state_dict=is_file and trainer.mode == "fsdp")
    dcp_state.set_model_state_dict(model, state["model"], options=options)
    # A parameter that was never used has no state of the optimizer.
    lenient = dataclasses.replace(options, strict=False)
    dcp_state.set_optimizer_state_dict(model, optimizer, state["optimizer"], options=lenient)
    if trainer.ema is not None and "ema" not in state:
        # With --resume force.
        trainer.ema = optim.ExponentialMovingAverage(model, trainer.args.ema_decay)
    elif trainer.ema is not None and is_file:
        # Averages have one name of each parameter, and none of the other values.
        with trainer.ema.applied():
            dcp_state.set_model_state_dict(model, state["ema"], options=lenient)


def copied(tree: Any) -> Any:
    """Return nested tuples, lists and dictionaries with copies of their tensors on the CPU."""
    return loading.map_tensors(tree, lambda tensor: tensor.detach().to("cpu", copy=True))


def batch_norm_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{part}": buffer
        for name, norm in parallel.batch_norms(model).items()
        for part, buffer in norm.named_buffers(recurse=False)
    }


@torch.no_grad()
def is_finite(model: nn.Module) -> bool:
    """Return whether all weights and statistics are finite on all ranks; all must call it."""
    values = [*model.parameters(), *model.buffers()]
    local = [value.to_local() if hasattr(value, "to_local") else value for value in values]
    finite = [value.isfinite().all() for value in local if value.is_floating_point()]
    is_bad = bool(finite) and not torch.stack(finite).all()
    return not distributed.all_reduce(torch.tensor(int(is_bad)), "max").item()
