"""Optimizers, learning rate schedules, precision, and the moving average of the weights."""

import argparse
import contextlib
import math
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from trainers import errors
from trainers.data import batches

OPTIMIZERS = ("adadelta", "adamw", "sgd")
SCHEDULES = ("constant", "cosine", "linear", "step")
LR_SCALINGS = ("none", "linear", "sqrt")
PRECISIONS = ("auto", "fp32", "tf32", "bf16", "fp16")
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(
    args: argparse.Namespace, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer; the training loop sets its learning rate."""
    lr, weight_decay = args.base_lr, args.weight_decay
    if args.optimizer == "adadelta":
        # Has no fused implementation.
        return torch.optim.Adadelta(parameters, lr=lr, weight_decay=weight_decay)
    # Fused: one kernel for all parameters; with fp16 it also avoids a synchronization with the
    # device.
    if args.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=lr,
        momentum=args.momentum,
        nesterov=args.nesterov,
        weight_decay=weight_decay,
        # PyTorch has no fused SGD for the sharded weights of FSDP (torch 2.15).
        fused=args.mode != "fsdp",
    )


class Schedule:
    """The learning rate as a function of the step: a linear warm-up followed by a decay.

    Raises UsageError if --lr-scaling lacks its base batch size.
    """

    def __init__(self, args: argparse.Namespace, plan: batches.Plan) -> None:
        self._args = args
        #: Learning rate at the end of the warm-up.
        self.peak = _scale(args, plan.global_batch_size)
        #: Number of warm-up steps; step `warmup_steps - 1` has the peak.
        self.warmup_steps: int = args.warmup_steps
        if self.warmup_steps is None:
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
        decay_steps = max(1, self._num_steps - max(1, self.warmup_steps))
        done = min(1.0, (step - max(1, self.warmup_steps) + 1) / decay_steps)
        factor = (1 + math.cos(math.pi * done)) / 2 if name == "cosine" else 1 - done
        return float(minimum + (self.peak - minimum) * factor)

    def describe(self) -> str:
        """Return peak, decay and warm-up in words."""
        warmup = f", {self.warmup_steps} warm-up steps" if self.warmup_steps else ""
        return f"{self.peak:g} {self._args.schedule}{warmup}"


def _scale(args: argparse.Namespace, global_batch_size: int) -> float:
    """Return the learning rate for a global batch; both rules refer to the batch, not to ranks."""
    base_lr: float = args.base_lr
    if args.lr_scaling == "none":
        return base_lr
    if args.lr_base_batch_size is None:
        raise errors.UsageError(
            f"--lr-scaling {args.lr_scaling} requires --lr-base-batch-size, the batch size for"
            " which --base-lr was chosen."
        )
    ratio = global_batch_size / args.lr_base_batch_size
    return base_lr * (ratio if args.lr_scaling == "linear" else math.sqrt(ratio))


def resolve_precision(name: str, device: torch.device) -> str:
    """Return the precision to use on this device; raise UsageError if it does not support it."""
    has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bf16" if device.type == "cuda" and has_bf16 else "fp32"
    if name == "bf16" and not has_bf16:
        raise errors.UsageError(
            f"--precision bf16, but {torch.cuda.get_device_name(device)} does not support bf16:"
            " use fp32 or fp16."
        )
    if name == "tf32" and device.type != "cuda":
        raise errors.UsageError("--precision tf32 requires a GPU: use fp32.")
    return name


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context of forward passes; it can be entered repeatedly."""
    if precision not in AUTOCAST_DTYPES:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST_DTYPES[precision])


def set_fp32_precision(precision: str) -> None:
    """Set whether fp32 products may be rounded to tf32; PyTorch's default allows it in cuDNN.

    The newer settings `fp32_precision` must not be mixed with these: after that the getters of the
    older ones raise, and inductor reads them (torch 2.9 to 2.15).
    """
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"


class ExponentialMovingAverage:
    """Moving average of the weights, used for evaluation and saved in checkpoints."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._names = [name for name, _ in model.named_parameters()]
        self._weights = [weight.detach() for weight in model.parameters()]
        self.averages = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Include the current weights; called after each step."""
        torch._foreach_lerp_(self.averages, self._weights, 1 - self._decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Exchange the weights of the model for the averages while the body runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._names, self.averages, strict=True))

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, average in zip(self._names, self.averages, strict=True):
            average.copy_(state[name])

    @torch.no_grad()
    def _exchange(self) -> None:
        for weight, average in zip(self._weights, self.averages, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
