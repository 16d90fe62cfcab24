"""Lines that rank 0 prints, in the format of the published Olivia DDP example.

Each function returns whole lines, which are printed with a single write, because the ranks share
one log file.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainers import metrics, state, stop
from trainers.data import loading

if TYPE_CHECKING:
    from trainers import train

# Waiting for data is reported above this share of the time.
DATA_WAIT_SHARE = 0.1


def start_lines(trainer: "train.Trainer") -> str:
    """Report processes, nodes and GPUs, and what the run is."""
    lines = f"Using {gpus_per_node(trainer)} GPUs"
    if trainer.mode == "dp":
        lines += ".\n"
    else:
        processes, nodes = trainer.dist.world_size, trainer.dist.num_nodes
        lines = (
            f"Training started with {processes} processes across {nodes} nodes.\n"
            f"{lines} per node.\n"
        )
    run = trainer.description.items()
    return lines + "".join(f"  {name + ':':15} {text}\n" for name, text in run)


def gpus_per_node(trainer: "train.Trainer") -> int:
    """Return the number of GPUs of this node that the run uses."""
    if trainer.device.type != "cuda":
        return 0
    return trainer.num_devices if trainer.mode == "dp" else trainer.dist.local_world_size


def resume_lines(progress: state.Progress, changes: Sequence[str]) -> str:
    """Report the step at which the run resumes, and what has changed."""
    if progress.finished:
        return f"Training was complete after step {progress.step}: nothing to do.\n"
    lines = f"Resumed after step {progress.step}, in epoch {progress.epoch}.\n"
    if changes:
        lines += (
            f"Changed since the checkpoint: {'; '.join(changes)}. The order of samples is the same;"
            " rounding and the random numbers of dropout differ.\n"
        )
    return lines


def epoch_lines(
    epoch: int, num_epochs: int, span: metrics.Span, evaluation: Mapping[str, float], rate: str
) -> str:
    """Report an epoch; time and throughput exclude the evaluation."""
    accuracy = ""
    if "accuracy" in evaluation:
        accuracy = f", Validation Accuracy: {evaluation['accuracy']:.4f}"
    return (
        f"Epoch {epoch}/{num_epochs} completed in {span.seconds:.3f} seconds\n"
        f"Validation Loss: {evaluation['loss']:.4f}{accuracy}\n"
        f"Epoch Throughput: {rate}\n"
    )


def early_stopping_line(why: str, epoch: int, metric: str, best: float | None) -> str:
    """Report why training ends before its last epoch (see Progress.check_finished)."""
    if not why:
        return ""
    cause = "Target accuracy reached"
    if why == "patience":
        cause = f"Validation {metric} no longer improves (best {best or 0.0:.4f})"
    return f"{cause}. Early stopping after epoch {epoch}.\n"


def stop_line(reason: stop.Reason, step: int, is_saved: bool) -> str:
    """Report that the run was stopped before its end."""
    saved = "checkpoint saved" if is_saved else "no checkpoint saved (no --run-dir)"
    return f"Stopped after step {step}, because {stop.REASONS[reason]}: {saved}.\n"


def summary_lines(trainer: "train.Trainer", *, is_success: bool) -> str:
    """Report the whole run; its time is the sum of the epochs."""
    progress, dist, task = trainer.progress, trainer.dist, trainer.task
    per_second = (progress.samples_per_second or 0.0) * task.units_per_sample
    num_gpus = trainer.num_devices if trainer.device.type == "cuda" else 0
    return (
        "\n"
        "Training Summary:\n"
        f"Total training time: {progress.seconds:.3f} seconds\n"
        f"Throughput: {per_second:.3f} {task.unit}/second\n"
        f"Number of nodes: {dist.num_nodes}\n"
        f"Number of GPUs per node: {gpus_per_node(trainer)}\n"
        f"Total GPUs used: {num_gpus}\n"
        f"Total processes: {dist.world_size}\n"
        f"Evaluation: {progress.eval_seconds:.3f} seconds\n"
        f"Waiting for checkpoints: {progress.checkpoint_seconds:.3f} seconds\n"
        + ("Training completed successfully.\n" if is_success else "")
    )


def advise(share: float, source: loading.Source) -> None:
    """Report on stderr if much time was spent waiting for data, with a fix."""
    if share > DATA_WAIT_SHARE:
        text = (
            f"trainers.train: {share:.0%} of the epoch was spent waiting for data:"
            f" {source.advice()}.\n"
        )
        print(text, end="", file=sys.stderr, flush=True)


class EpochProgress:
    """Progress within an epoch: a bar on a terminal, else a line now and then."""

    def __init__(self, log_seconds: float) -> None:
        self._log_seconds = log_seconds
        self._last = time.monotonic()
        self._bar: Any = None
        self._row: Any = None
        if sys.stdout.isatty():
            try:
                from rich import progress
            except ImportError:
                return
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                transient=True,
            )

    def update(self, epoch: str, step: int, num_steps: int, loss: float, rate: str) -> None:
        """Show the loss and the throughput of the last window."""
        if self._bar is not None:
            if self._row is None:
                self._bar.start()
                self._row = self._bar.add_task("", total=num_steps)
            text = f"{epoch} loss {loss:.4f} {rate}"
            self._bar.update(self._row, completed=step, total=num_steps, description=text)
        elif time.monotonic() - self._last >= self._log_seconds:
            self._last = time.monotonic()
            text = f"{epoch}, step {step}/{num_steps}, train loss: {loss:.4f}, {rate}\n"
            print(text, end="", flush=True)

    def end(self) -> None:
        """Remove the bar before other lines are printed; short epochs need no progress lines."""
        self._last = time.monotonic()
        if self._row is not None:
            self._bar.stop()
            self._bar.remove_task(self._row)
            self._row = None
