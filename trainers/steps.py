"""One optimizer step, for one process, DataParallel and DDP, with gradient accumulation."""

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

#: Returns the context of one forward pass.
Autocast = Callable[[], contextlib.AbstractContextManager[object]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Micro:
    """Input of one forward pass, on the device."""

    #: Samples in the format of the model.
    samples: torch.Tensor
    #: Class numbers.
    labels: torch.Tensor
    #: False if the samples are placeholders: see batches.MicroBatch.
    counted: bool
    #: Whether it is the last pass of the step.
    last: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
    """Sums of a step on this rank; tensors stay on the device."""

    #: Number of samples trained on.
    num_samples: int
    #: Sum of their losses.
    loss: torch.Tensor
    #: Number of samples classified correctly before the step.
    correct: torch.Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Configuration of all steps."""

    #: Number of ranks, whose gradients DDP averages.
    world_size: int
    #: Context of forward passes.
    autocast: contextlib.AbstractContextManager[object]
    #: Loss scaler; has no effect unless the precision is fp16.
    scaler: torch.amp.GradScaler
    #: Share of the label that is distributed over all classes.
    label_smoothing: float = 0.0
    #: Norm to which the gradient is clipped; None: no clipping.
    max_gradient_norm: float | None = None


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Iterable[Micro],
    *,
    batch_size: int,
    rules: Rules,
) -> Sums:
    """Run one optimizer step on this rank's part of a batch of `batch_size` over all ranks.

    Does not synchronize with the device.
    """
    optimizer.zero_grad()
    num_samples = 0
    losses, rights = [], []
    for micro in micro_batches:
        # Gradients are accumulated on the rank and reduced in the last pass. The forward pass must
        # also be inside no_sync (docs of DistributedDataParallel).
        with contextlib.nullcontext() if micro.last else _no_sync(model):
            if not micro.counted:
                # Batch norm must not count a sample that another rank counts too.
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
            # DDP divides the sum of the gradients by the world size. The factor makes the gradient
            # the mean over the batch, however it is divided.
            rules.scaler.scale(loss_sum * (rules.world_size / batch_size)).backward()
        losses.append(loss_sum.detach())
        if micro.counted:
            num_samples += len(micro.labels)
            rights.append((logits.detach().argmax(dim=1) == micro.labels).sum())
    if rules.max_gradient_norm is not None:
        # Clipping uses the norm of the unscaled gradient.
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
    """A model for DataParallel, which runs each part of a batch in a separate thread.

    Autocast is enabled in these threads, but always with fp16, because the format is thread-local
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
    module = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    if isinstance(module, parallel.DistributedDataParallel):
        return module.no_sync()
    return contextlib.nullcontext()


def resolve_mode(arguments: argparse.Namespace, place: ranks.Ranks) -> str:
    """Return `single`, `dp` or `ddp`; raise UsageError if the launch does not match."""
    mode = arguments.mode
    if arguments.gpu_ids and mode != "dp":
        raise errors.UsageError(
            "--gpu-ids requires --mode dp; in other modes CUDA_VISIBLE_DEVICES selects the GPUs."
        )
    if mode == "ddp" and place.launcher is ranks.Launcher.SINGLE:
        raise errors.UsageError(
            "--mode ddp requires one process per GPU, and this is a single process. On one node:"
            " torchrun --standalone --nproc-per-node=GPUS -m trainers.train ...;"
            " or srun with one task per GPU; or --mode single."
        )
    if mode in ("single", "dp") and place.world_size > 1:
        raise errors.UsageError(
            f"--mode {mode} uses one process, but {place.world_size} were started:"
            " run `python -m trainers.train` without torchrun, or use --mode ddp."
        )
    if mode in ("auto", "ddp"):
        # With a single rank of torchrun or srun there is nothing to reduce.
        return "ddp" if place.world_size > 1 else "single"
    return str(mode)


def data_parallel_gpus(gpu_ids: list[int] | None, device: torch.device) -> list[int]:
    """Return the GPUs of DataParallel; an empty list on a CPU."""
    if device.type != "cuda":
        return []
    visible = torch.cuda.device_count()
    wanted = gpu_ids or list(range(visible))
    if max(wanted) >= visible or len(set(wanted)) < len(wanted):
        raise errors.UsageError(
            f"--gpu-ids {' '.join(map(str, wanted))}, but PyTorch sees {visible} GPU(s), numbered"
            " from 0: give each existing number at most once."
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
    """Wrap a model for DataParallel or DDP; it must be on its device.

    `autocast` returns the context of a forward pass.
    """
    if mode == "dp" and len(gpu_ids) > 1:
        return nn.DataParallel(_InAutocast(model, autocast), device_ids=list(gpu_ids))
    if mode == "ddp":
        return _ddp(model, device, bucket_cap_mb)
    return model


def compiled(model: nn.Module, mode: str) -> nn.Module:
    """Return the wrapped model, compiled unless `mode` is off.

    The model is wrapped before it is compiled: the graph is then split at the bucket boundaries, so
    that the all-reduce overlaps with the backward pass (PyTorch, notes on DDP).
    """
    if mode == "off":
        return model
    # Code that cannot be compiled runs uncompiled.
    torch._dynamo.config.suppress_errors = True
    result: Any = torch.compile(model, mode=mode)
    return result


def _ddp(model: nn.Module, device: torch.device, bucket_cap_mb: int | None) -> nn.Module:
    # Batch-norm statistics are averaged before each evaluation, not broadcast in each forward pass.
    # The option was renamed in torch 2.13, which warns about the old name.
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
