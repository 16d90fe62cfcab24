"""PyTorch's profiler over a few steps of rank 0, after the warm-up."""

import torch
from torch import profiler

from trainers import metrics

WARM_UP_STEPS = 10


def make_profiler(
    outputs: metrics.Outputs | None, num_steps: int | None
) -> profiler.profile | None:
    """Return a profiler that writes a trace and a table of `num_steps` steps after the first ten.

    It is a context; the caller calls `step` after each step. None without steps or on other ranks.
    """
    if outputs is None or not num_steps:
        return None
    folder = outputs.run_dir / f"profile{outputs.suffix}"

    def write(done: profiler.profile) -> None:
        folder.mkdir(exist_ok=True)
        done.export_chrome_trace(str(folder / "trace.json"))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / "operators.txt").write_text(done.key_averages().table(sort_by=by, row_limit=40))

    return profiler.profile(
        # The last warm-up step runs under the profiler without being recorded.
        schedule=profiler.schedule(wait=WARM_UP_STEPS - 1, warmup=1, active=num_steps, repeat=1),
        on_trace_ready=write,
        profile_memory=True,
    )
