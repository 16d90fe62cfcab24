"""One optimizer step: the same for one process, DataParallel and DDP, with any accumulation."""

import argparse
import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional, parallel

from trainers import errors, ranks

#: Makes the context of one forward pass.
Autocast = Callable[[], contextlib.AbstractContextManager[object]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Micro:
    """What one forward pass gets, on the device."""

    #: Samples as the model wants them.
    samples: torch.Tensor
    #: Class numbers.
    labels: torch.Tensor
    #: False where the samples only stand in for none: see batches.MicroBatch.
    counted: bool
    #: Whether it is the last pass of its step.
    last: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
    """What a step adds up on this rank; tensors stay on the device."""

    #: Samples that were trained on.
    num_samples: int
    #: Sum of their losses.
    loss: torch.Tensor
    #: How many of them were classified right before the step.
    correct: torch.Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What does not change from step to step."""

    #: Number of ranks, whose gradients DDP averages.
    world_size: int
    #: Context of forward passes.
    autocast: contextlib.AbstractContextManager[object]
    #: Scaler of losses; does nothing unless the precision is fp16.
    scaler: torch.amp.GradScaler
    #: Share of the label that goes to all classes alike.
    label_smoothing: float = 0.0
    #: Norm that the gradient is clipped to, None for no clipping.
    max_gradient_norm: float | None = None


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Iterable[Micro],
    *,
    batch_size: int,
    rules: Rules,
) -> Sums:
    """Do one optimizer step on this rank's parts of a batch of `batch_size` over all ranks.

    It never waits for the device.
    """
    optimizer.zero_grad()
    num_samples = 0
    losses, rights = [], []
    for micro in micro_batches:
        # Gradients of the passes before the last stay on the rank; the last one's reduction takes
        # them along. Forward too must be inside no_sync (docs of DistributedDataParallel).
        with contextlib.nullcontext() if micro.last else _no_sync(model):
            if not micro.counted:
                # Batch norm must not count a sample that another rank counts.
                model.eval()
            with rules.autocast:
                logits = model(micro.samples)
            loss_sum = functional.cross_entropy(
                logits.float(),
                micro.labels,
                reduction="sum",
                label_smoothing=rules.label_smoothing,
            )
            if not micro.counted:
                model.train()
                loss_sum = loss_sum * 0
            # DDP divides the sum of the ranks' gradients by the world size; the mean is over the
            # batch, however it is cut.
            rules.scaler.scale(loss_sum * (rules.world_size / batch_size)).backward()
        losses.append(loss_sum.detach())
        if micro.counted:
            num_samples += len(micro.labels)
            rights.append((logits.detach().argmax(dim=1) == micro.labels).sum())
    if rules.max_gradient_norm is not None:
        # The norm is that of the true gradient, not of the scaled one.
        rules.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), rules.max_gradient_norm)
    rules.scaler.step(optimizer)
    rules.scaler.update()
    return Sums(
        num_samples=num_samples,
        loss=torch.stack(losses).sum(),
        correct=torch.stack(rights).sum() if rights else losses[0].new_zeros((), dtype=torch.int64),
    )


class _InAutocast(nn.Module):
    """A model for DataParallel, which computes each part of a batch in a thread of its own.

    There its own autocast context is on too, but always with fp16: the format is the thread's
    (torch.nn.parallel.parallel_apply, torch 2.13 to 2.15).
    """

    def __init__(self, model: nn.Module, autocast: Autocast) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        with self._autocast():
            logits: torch.Tensor = self.model(samples)
        return logits


def _no_sync(model: nn.Module) -> contextlib.AbstractContextManager[object]:
    module = getattr(model, "_orig_mod", model)  # where torch.compile keeps what it wrapped
    if isinstance(module, parallel.DistributedDataParallel):
        return module.no_sync()
    return contextlib.nullcontext()


def resolve_mode(arguments: argparse.Namespace, place: ranks.Ranks) -> str:
    """Return `single`, `dp` or `ddp`; raise UsageError where the launch does not fit."""
    mode = arguments.mode
    if arguments.gpu_ids and mode != "dp":
        raise errors.UsageError(
            "--gpu-ids is for --mode dp: elsewhere CUDA_VISIBLE_DEVICES chooses the GPUs."
        )
    if mode == "ddp" and place.launcher is ranks.Launcher.SINGLE:
        raise errors.UsageError(
            "--mode ddp needs one process a GPU, and this is a single one. On one node:"
            " torchrun --standalone --nproc-per-node=GPUS -m trainers.train ...;"
            " or srun with one task a GPU; or --mode single."
        )
    if mode in ("single", "dp") and place.world_size > 1:
        raise errors.UsageError(
            f"--mode {mode} is one process, but {place.world_size} were started:"
            " run `python -m trainers.train` without torchrun, or use --mode ddp."
        )
    if mode in ("auto", "ddp"):
        # A single rank of torchrun or srun has nobody to reduce gradients with.
        return "ddp" if place.world_size > 1 else "single"
    return str(mode)


def data_parallel_gpus(gpu_ids: list[int] | None, device: torch.device) -> list[int]:
    """Return the GPUs of DataParallel; none on a CPU, where it is the model itself."""
    if device.type != "cuda":
        return []
    visible = torch.cuda.device_count()
    wanted = gpu_ids or list(range(visible))
    if max(wanted) >= visible or len(set(wanted)) < len(wanted):
        raise errors.UsageError(
            f"--gpu-ids {' '.join(map(str, wanted))}, but PyTorch sees {visible} GPU(s), counted"
            " from 0: name each that is there once."
        )
    return wanted


def wrap(
    model: nn.Module,
    mode: str,
    device: torch.device,
    *,
    autocast: Autocast = contextlib.nullcontext,
    gpu_ids: Sequence[int] = (),
    bucket_cap_mb: int | None = None,
) -> nn.Module:
    """Wrap a model that is on its device, for DataParallel or DDP.

    `autocast` makes the context of a forward pass.
    """
    if mode == "dp" and len(gpu_ids) > 1:
        return nn.DataParallel(_InAutocast(model, autocast), device_ids=list(gpu_ids))
    if mode == "ddp":
        return _ddp(model, device, bucket_cap_mb)
    return model


def compiled(model: nn.Module, mode: str) -> nn.Module:
    """Return a wrapped model as torch.compile makes it, or as it is.

    DDP first, then compile: the graph is cut where the buckets end, so that their reduction goes on
    beside the backward pass (PyTorch, notes on DDP).
    """
    if mode == "off":
        return model
    # What can't be compiled runs as it is.
    torch._dynamo.config.suppress_errors = True
    result: Any = torch.compile(model, mode=mode)
    return result


def _ddp(model: nn.Module, device: torch.device, bucket_cap_mb: int | None) -> nn.Module:
    # Batch-norm statistics are averaged before each evaluation, not sent with each forward. The
    # option was renamed in torch 2.13, which warns about the old name.
    known = inspect.signature(parallel.DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {name: False}
    if bucket_cap_mb is not None:
        options["bucket_cap_mb"] = bucket_cap_mb
    return parallel.DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        **options,
    )
