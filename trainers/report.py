"""The lines that rank 0 prints: the log format of the published Olivia DDP example.

Each function returns a block of whole lines, and `write` passes it on with a single write, because
the lines of many ranks share one file.
"""

import sys

from trainers import evaluation, metrics, ranks


def start_lines(place: ranks.Ranks, gpus_per_node: int) -> str:
    """Say where the run takes place."""
    return (
        f"Training started with {place.world_size} processes across {place.num_nodes} nodes.\n"
        f"Using {gpus_per_node} GPUs per node.\n"
    )


def epoch_lines(
    epoch: int, num_epochs: int, span: metrics.Span, result: evaluation.Evaluation
) -> str:
    """Report an epoch; time and throughput are those of training, without the evaluation."""
    return (
        f"Epoch {epoch}/{num_epochs} completed in {span.seconds:.3f} seconds\n"
        f"Validation Loss: {result.loss:.4f}, Validation Accuracy: {result.accuracy:.4f}\n"
        f"Epoch Throughput: {span.samples_per_second:.3f} images/second\n"
    )


def early_stop_line(epoch: int) -> str:
    """Say that the target was reached."""
    return f"Target accuracy reached. Early stopping after epoch {epoch}.\n"


def summary_lines(
    place: ranks.Ranks, *, num_samples: int, seconds: float, gpus_per_node: int, num_gpus: int
) -> str:
    """Sum up the run; its time is the sum of the epochs' times."""
    return (
        "\n"
        "Training Summary:\n"
        f"Total training time: {seconds:.3f} seconds\n"
        f"Throughput: {num_samples / seconds:.3f} images/second\n"
        f"Number of nodes: {place.num_nodes}\n"
        f"Number of GPUs per node: {gpus_per_node}\n"
        f"Total GPUs used: {num_gpus}\n"
        f"Total processes: {place.world_size}\n"
        "Training completed successfully.\n"
    )


def write(lines: str) -> None:
    """Print whole lines at once."""
    sys.stdout.write(lines)
    sys.stdout.flush()
