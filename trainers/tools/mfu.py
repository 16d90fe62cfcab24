"""Model FLOPs utilization: the achieved fraction of the peak of the GPUs."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter

from trainers.data import loading

#: Dense peaks in FLOP/s for bf16 and fp16 (NVIDIA's data sheets of each product). The first name
#: that is part of the name of the GPU counts.
PEAKS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "NVIDIA A10": 125e12,
    "V100": 125e12,
}
# A forward pass needs a third of the operations of a training step: the backward pass computes the
# gradients of inputs and of weights (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
TRAINING_FACTOR = 3


def peak_flops(gpu_name: str) -> float | None:
    """Return the peak of a GPU in FLOP/s; None if it is not in the table."""
    return next((peak for name, peak in PEAKS.items() if name in gpu_name), None)


class Utilization:
    """Utilization of the GPUs by a model; on a CPU, or a GPU without a known peak, nothing."""

    def __init__(
        self,
        losses: Callable[[torch.nn.Module, Any], tuple[torch.Tensor, Any]],
        model: torch.nn.Module,
        source: loading.Source,
        device: torch.device,
    ) -> None:
        is_gpu = device.type == "cuda"
        self._peak = peak_flops(torch.cuda.get_device_name(device)) if is_gpu else None
        #: Floating-point operations of training on one sample; 0 if they are not counted.
        self.flops_per_sample = 0.0
        batch = None if self._peak is None else next(source.eval_batches(), None)
        if batch is not None:
            self.flops_per_sample = training_flops_per_sample(losses, model, batch)

    def values(self, samples_per_second: float) -> list[tuple[str, float, str]]:
        """Return the metric `mfu`, a fraction, of a throughput per GPU."""
        if self._peak is None or not self.flops_per_sample:
            return []
        return [("mfu", samples_per_second * self.flops_per_sample / self._peak, "")]


@torch.no_grad()
def training_flops_per_sample(
    losses: Callable[[torch.nn.Module, Any], Any], model: torch.nn.Module, batch: Any
) -> float:
    """Count the floating-point operations of training on one sample.

    The model is neither wrapped nor compiled; its state does not change.
    """
    was_training, was_fast = model.training, torch.backends.mha.get_fastpath_enabled()
    # The fused evaluation path of nn.TransformerEncoderLayer is not counted.
    torch.backends.mha.set_fastpath_enabled(False)
    model.eval()
    with flop_counter.FlopCounterMode(display=False) as counter:
        values, _ = losses(model, batch)
    model.train(was_training)
    torch.backends.mha.set_fastpath_enabled(was_fast)
    return TRAINING_FACTOR * counter.get_total_flops() / len(values)
