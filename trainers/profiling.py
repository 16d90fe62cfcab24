"""Torch's profiler over a few steps of rank 0, when they have become regular."""

import pathlib

import torch
from torch import profiler

WARM_UP_STEPS = 10


class Profile:
    """Records `num_steps` steps after the first ten, and writes a trace and a table."""

    def __init__(self, folder: pathlib.Path, num_steps: int) -> None:
        self._folder = folder
        self._profiler = profiler.profile(
            # The last step of the warm-up already runs under the profiler, unrecorded.
            schedule=profiler.schedule(
                wait=WARM_UP_STEPS - 1, warmup=1, active=num_steps, repeat=1
            ),
            on_trace_ready=self._write,
            profile_memory=True,
        )

    def start(self) -> None:
        """Begin to count steps."""
        self._profiler.start()

    def step(self) -> None:
        """Say that a step is done."""
        self._profiler.step()

    def stop(self) -> None:
        """End; steps that were recorded so far are written."""
        self._profiler.stop()

    def _write(self, done: profiler.profile) -> None:
        self._folder.mkdir(exist_ok=True)
        done.export_chrome_trace(str(self._folder / "trace.json"))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = done.key_averages().table(sort_by=by, row_limit=40)
        (self._folder / "operators.txt").write_text(table)
