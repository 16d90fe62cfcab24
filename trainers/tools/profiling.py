"""Model FLOPs utilization, the achieved fraction of the GPUs' peak, and PyTorch's profiler."""

from typing import TYPE_CHECKING

import torch
from torch import profiler
from torch.utils import flop_counter

from trainers import metrics

if TYPE_CHECKING:
    from trainers import train

#: Dense peaks in FLOP/s for bf16 (NVIDIA's data sheets); the first part of the GPU's name counts.
PEAKS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,  # also GH200
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "NVIDIA A10": 125e12,
    "V100": 125e12,
}
WARM_UP_STEPS = 10


@torch.no_grad()
def peak_samples_per_second(trainer: "train.Trainer") -> float | None:
    """Return how many samples a GPU could train on at its peak, if known, before wrapping."""
    gpu = str(trainer.environment["device"])
    peak = next((flops for name, flops in PEAKS.items() if name in gpu), None)
    batch = None if peak is None else next(trainer.source.eval_batches(), None)
    if peak is None or batch is None:
        return None
    trainer.model.eval()
    # The fused evaluation path of nn.TransformerEncoderLayer is not counted.
    torch.backends.mha.set_fastpath_enabled(False)
    with flop_counter.FlopCounterMode(display=False) as counter:
        losses, _ = trainer.task.losses(trainer.model, batch)
    torch.backends.mha.set_fastpath_enabled(True)
    trainer.model.train()
    # A forward pass needs a third of the operations of a training step: the backward pass computes
    # the gradients of inputs and of weights (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
    flops = 3 * counter.get_total_flops()
    return peak * len(losses) / flops if flops else None


def make_profiler(outputs: metrics.Outputs | None, steps: int | None) -> profiler.profile | None:
    """Return a profiler that writes a trace and a table of some steps after the first ten."""
    if outputs is None or not steps:
        return None
    folder = metrics.beside(outputs.path, "profile")

    def write(done: profiler.profile) -> None:
        folder.mkdir(exist_ok=True)
        done.export_chrome_trace(str(folder / "trace.json"))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / "operators.txt").write_text(done.key_averages().table(sort_by=by, row_limit=40))

    # The last warm-up step runs under the profiler without being recorded.
    schedule = profiler.schedule(wait=WARM_UP_STEPS - 1, warmup=1, active=steps, repeat=1)
    return profiler.profile(schedule=schedule, on_trace_ready=write, profile_memory=True)
