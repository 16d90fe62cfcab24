"""The learning rate as a function of the step, so a resume has no state to restore."""

import dataclasses
import math

from trainers import errors

NAMES = ("constant", "cosine", "linear", "step")
SCALINGS = ("none", "linear", "sqrt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A linear warm-up followed by a decay."""

    #: One of NAMES.
    name: str
    #: Learning rate at the end of the warm-up.
    peak: float
    #: Final value of cosine and linear.
    minimum: float
    #: Number of warm-up steps; step `warmup_steps - 1` has the peak.
    warmup_steps: int
    #: Number of steps of the whole run.
    num_steps: int
    #: Factor of `step`.
    gamma: float
    #: Number of steps between two decays of `step`.
    fall_steps: int

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.name == "constant":
            return self.peak
        if self.name == "step":
            return float(self.peak * self.gamma ** (step // self.fall_steps))
        # The last step has the minimum, and the last warm-up step has the peak.
        decay_steps = max(1, self.num_steps - max(1, self.warmup_steps))
        done = min(1.0, (step - max(1, self.warmup_steps) + 1) / decay_steps)
        share = (1 + math.cos(math.pi * done)) / 2 if self.name == "cosine" else 1 - done
        return self.minimum + (self.peak - self.minimum) * share


def scale(base_lr: float, rule: str, *, batch_size: int, base_batch_size: int | None) -> float:
    """Return the learning rate for a global batch of `batch_size` samples."""
    if rule == "none":
        return base_lr
    if base_batch_size is None:
        raise errors.UsageError(
            f"--lr-scaling {rule} requires --lr-base-batch-size, the batch size for which --base-lr"
            " was chosen."
        )
    ratio = batch_size / base_batch_size
    return base_lr * (ratio if rule == "linear" else math.sqrt(ratio))
