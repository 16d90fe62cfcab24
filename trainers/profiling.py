"""PyTorch's profiler over a few steps of rank 0, after the warm-up."""

import pathlib

import torch
from torch import profiler

WARM_UP_STEPS = 10


class Profile:
    """Records `num_steps` steps after the first ten, and writes a trace and a table."""

    def __init__(self, folder: pathlib.Path, num_steps: int) -> None:
        self._folder = folder
        self._profiler = profiler.profile(
            # The last warm-up step runs under the profiler without being recorded.
            schedule=profiler.schedule(
                wait=WARM_UP_STEPS - 1, warmup=1, active=num_steps, repeat=1
            ),
            on_trace_ready=self._write,
            profile_memory=True,
        )

    def start(self) -> None:
        """Start the profiler."""
        self._profiler.start()

    def step(self) -> None:
        """Count a step."""
        self._profiler.step()

    def stop(self) -> None:
        """Stop the profiler and write the steps recorded so far."""
        self._profiler.stop()

    def _write(self, done: profiler.profile) -> None:
        self._folder.mkdir(exist_ok=True)
        done.export_chrome_trace(str(self._folder / "trace.json"))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = done.key_averages().table(sort_by=by, row_limit=40)
        (self._folder / "operators.txt").write_text(table)
