"""How far a run has come, and whether it should go on."""

import dataclasses
import math

from trainers import evaluation, metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goals:
    """When training ends before its last epoch."""

    #: Validation accuracy that is enough, None for never.
    target_accuracy: float | None = None
    #: Epochs in a row that must have it.
    patience: int = 2
    #: Epochs in a row without a better accuracy that end the training, None for never.
    early_stopping_patience: int | None = None
    #: How much more accuracy counts as better.
    min_delta: float = 0.0


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Where a run stands between two steps; the same on all ranks."""

    #: Epoch in progress, counted from 1.
    epoch: int = 1
    #: Its steps that are done.
    step_in_epoch: int = 0
    #: Steps of the run that are done.
    step: int = 0
    #: Step at which the window in progress began.
    window_begin: int = 0
    #: Samples of the epochs that are done, over all ranks.
    num_samples: int = 0
    #: Time they took, without evaluation.
    seconds: float = 0.0
    #: Best validation accuracy, None before the first evaluation.
    best_accuracy: float | None = None
    #: Whether the run has come to its end.
    finished: bool = False
    #: What was measured of each epoch: numbers by name.
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def end_epoch(
        self,
        span: metrics.Span,
        result: evaluation.Evaluation,
        learning_rate: float,
    ) -> None:
        """Count an epoch that was evaluated."""
        accuracy = result.accuracy
        self.history.append(
            {
                "epoch": self.epoch,
                "train_loss": span.loss,
                "train_accuracy": span.accuracy,
                "val_loss": result.loss,
                "val_accuracy": accuracy,
                "learning_rate": learning_rate,
            }
        )
        self.num_samples += span.num_samples
        self.seconds += span.seconds
        if self.best_accuracy is None or accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
        self.epoch += 1
        self.step_in_epoch = 0

    @property
    def is_best(self) -> bool:
        """Whether no epoch before the last one was as good."""
        *before, last = self._accuracies() or [-1.0]
        return last > max(before, default=-1.0)

    # Both follow from the history, so that a resumed run may have other goals.

    def reached_target(self, goals: Goals) -> bool:
        """Tell whether the target accuracy has been met for long enough."""
        target, last = goals.target_accuracy, self._accuracies()[-goals.patience :]
        return (
            target is not None
            and len(last) == goals.patience
            and all(accuracy >= target for accuracy in last)
        )

    def lost_patience(self, goals: Goals) -> bool:
        """Tell whether the accuracy has not become better for too long."""
        limit = goals.early_stopping_patience
        to_beat, epochs_without_better = -math.inf, 0
        for accuracy in self._accuracies():
            if accuracy > to_beat + goals.min_delta:
                to_beat, epochs_without_better = accuracy, 0
            else:
                epochs_without_better += 1
        return limit is not None and epochs_without_better >= limit

    def _accuracies(self) -> list[float]:
        return [epoch["val_accuracy"] for epoch in self.history]
