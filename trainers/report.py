"""The lines that rank 0 prints: the log format of the published Olivia DDP example.

Each function returns a block of whole lines, and `write` prints it with a single write, because the
ranks share one log file.
"""

import dataclasses
import sys
from collections.abc import Sequence

from trainers import data_paths, evaluation, metrics, progress, ranks, stopping

# Waiting for data is reported above this share of the time.
DATA_WAIT_SHARE = 0.1

REASONS = {
    stopping.Reason.STOP_FILE: "the stop file exists",
    stopping.Reason.TIME_LIMIT: "the time limit is near",
    stopping.Reason.SIGNAL: "a signal was received",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stop:
    """A stop before the end of a run."""

    #: Reason of the stop.
    reason: stopping.Reason
    #: Completed steps of the run.
    step: int
    #: First step of this attempt.
    first_step: int

    @property
    def words(self) -> str:
        """The reason as text."""
        return REASONS[self.reason]


def start_lines(place: ranks.Ranks, mode: str, gpus_per_node: int) -> str:
    """Report the number of processes, nodes and GPUs."""
    if mode == "dp":
        return f"Using {gpus_per_node} GPUs.\n"
    return (
        f"Training started with {place.world_size} processes across {place.num_nodes} nodes.\n"
        f"Using {gpus_per_node} GPUs per node.\n"
    )


def resume_lines(done: progress.Progress, changes: Sequence[str]) -> str:
    """Report the step at which the run resumes, and what has changed."""
    if done.finished:
        return f"Training was complete after step {done.step}: nothing to do.\n"
    lines = f"Resumed after step {done.step}, in epoch {done.epoch}.\n"
    if changes:
        lines += (
            f"Changed since the checkpoint: {'; '.join(changes)}. The order of samples is the same;"
            " rounding and the random numbers of dropout differ.\n"
        )
    return lines


def epoch_lines(
    epoch: int,
    num_epochs: int,
    span: metrics.Span,
    result: evaluation.Evaluation,
    *,
    sample_name: str,
) -> str:
    """Report an epoch; time and throughput exclude the evaluation."""
    return (
        f"Epoch {epoch}/{num_epochs} completed in {span.seconds:.3f} seconds\n"
        f"Validation Loss: {result.loss:.4f}, Validation Accuracy: {result.accuracy:.4f}\n"
        f"Epoch Throughput: {span.samples_per_second:.3f} {sample_name}/second\n"
    )


def target_line(epoch: int) -> str:
    """Report that the target accuracy was reached."""
    return f"Target accuracy reached. Early stopping after epoch {epoch}.\n"


def patience_line(epoch: int, best_accuracy: float | None) -> str:
    """Report that the accuracy has stopped improving."""
    return (
        f"Validation accuracy no longer improves (best {best_accuracy or 0:.4f}). Early stopping"
        f" after epoch {epoch}.\n"
    )


def stop_line(stop: Stop, *, is_saved: bool) -> str:
    """Report that the run was stopped before its end."""
    saved = "checkpoint saved" if is_saved else "no checkpoint saved"
    return f"Stopped after step {stop.step}, because {stop.words}: {saved}.\n"


def advise(span: metrics.Span, source: data_paths.DataPath) -> None:
    """Report on stderr if much time was spent waiting for data, with a fix."""
    if span.data_wait_share > DATA_WAIT_SHARE:
        sys.stderr.write(
            f"trainers.train: {span.data_wait_share:.0%} of the epoch was spent waiting for data:"
            f" {source.advice}\n"
        )
        sys.stderr.flush()


def summary_lines(
    place: ranks.Ranks,
    *,
    num_samples: int,
    sample_name: str,
    seconds: float,
    gpus_per_node: int,
    num_gpus: int,
) -> str:
    """Report the whole run; its time is the sum of the epochs."""
    return (
        "\n"
        "Training Summary:\n"
        f"Total training time: {seconds:.3f} seconds\n"
        f"Throughput: {num_samples / seconds:.3f} {sample_name}/second\n"
        f"Number of nodes: {place.num_nodes}\n"
        f"Number of GPUs per node: {gpus_per_node}\n"
        f"Total GPUs used: {num_gpus}\n"
        f"Total processes: {place.world_size}\n"
        "Training completed successfully.\n"
    )


def write(lines: str) -> None:
    """Print lines with a single write."""
    sys.stdout.write(lines)
    sys.stdout.flush()
