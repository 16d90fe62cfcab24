"""Optimizers, learning rate schedules, precision, and the moving average of the weights."""

import argparse
import contextlib
import math
import os
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from trainers import errors
from trainers.data import batches

AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(
    args: argparse.Namespace, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer; the training loop sets its learning rate."""
    options = {"lr": args.base_lr, "weight_decay": args.weight_decay}
    if args.optimizer == "adadelta":
        return torch.optim.Adadelta(parameters, **options)
    # Fused: one kernel for all parameters, and with fp16 no synchronization with the device.
    if args.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **options, fused=True)
    # PyTorch has no fused SGD for the sharded weights of FSDP (torch 2.15).
    options |= {"momentum": args.momentum, "nesterov": args.nesterov}
    return torch.optim.SGD(parameters, **options, fused=args.mode != "fsdp")


class Schedule:
    """The learning rate as a function of the step: a linear warm-up followed by a decay."""

    def __init__(self, args: argparse.Namespace, plan: batches.Plan) -> None:
        self._args = args
        #: Learning rate at the end of the warm-up.
        self.peak: float = args.base_lr
        if args.lr_scaling != "none":
            if args.lr_base_batch_size is None:
                raise errors.UsageError("--lr-scaling requires --lr-base-batch-size.")
            ratio = plan.global_batch_size / args.lr_base_batch_size
            self.peak *= ratio if args.lr_scaling == "linear" else math.sqrt(ratio)
        #: Number of warm-up steps; step `warmup_steps - 1` has the peak.
        self.warmup_steps = round(args.warmup_epochs * plan.steps_per_epoch)
        self._num_steps = args.epochs * plan.steps_per_epoch
        self._decay_every_steps = args.lr_step_epochs * plan.steps_per_epoch

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        name, minimum = self._args.schedule, self._args.min_lr
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if name == "constant":
            return self.peak
        if name == "step":
            return float(self.peak * self._args.lr_gamma ** (step // self._decay_every_steps))
        # The last step has the minimum, and the last warm-up step has the peak.
        start = max(1, self.warmup_steps) - 1
        done = min(1.0, (step - start) / max(1, self._num_steps - 1 - start))
        factor = (1 + math.cos(math.pi * done)) / 2 if name == "cosine" else 1 - done
        return float(minimum + (self.peak - minimum) * factor)


def resolve_precision(name: str, device: torch.device) -> str:
    """Return the precision for `auto`; raise UsageError if the device does not have it."""
    on_gpu = device.type == "cuda"
    if name == "auto":
        has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if has_bf16 else "fp32"
    if name == "tf32" and not on_gpu:
        raise errors.UsageError("--precision tf32 requires a GPU: use fp32.")
    return name


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context of forward passes; it can be entered repeatedly."""
    if precision not in AUTOCAST_DTYPES:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST_DTYPES[precision])


def configure_torch(precision: str, *, deterministic: bool) -> None:
    """Set PyTorch's older switches; the newer `fp32_precision` would make their getters raise."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        # cuBLAS reads it at its first use (PyTorch, notes on reproducibility).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


class ExponentialMovingAverage:
    """Moving average of the weights, used for evaluation and saved in checkpoints."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._weights = {name: weight.detach() for name, weight in model.named_parameters()}
        self.averages = {name: weight.clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Include the current weights; called after each step."""
        averages, weights = list(self.averages.values()), list(self._weights.values())
        torch._foreach_lerp_(averages, weights, 1 - self._decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Exchange the weights of the model for the averages while the body runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self._weights.items():
            kept = weight.clone()
            weight.copy_(self.averages[name])
            self.averages[name].copy_(kept)
