"""Progress of a run, and whether it is finished."""

import dataclasses
import math

from trainers import evaluation, metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goals:
    """Conditions that end training before the last epoch."""

    #: Validation accuracy to reach; None: no target.
    target_accuracy: float | None = None
    #: Consecutive epochs that must reach it.
    patience: int = 2
    #: Consecutive epochs without a better accuracy after which training ends; None: never.
    early_stopping_patience: int | None = None
    #: Smallest increase in accuracy that counts as better.
    min_delta: float = 0.0


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Progress of a run between two steps; the same on all ranks."""

    #: Current epoch, counted from 1.
    epoch: int = 1
    #: Completed steps of the current epoch.
    step_in_epoch: int = 0
    #: Completed steps of the run.
    step: int = 0
    #: First step of the current window.
    window_begin: int = 0
    #: Samples of the completed epochs over all ranks.
    num_samples: int = 0
    #: Training time of the completed epochs, without evaluation.
    seconds: float = 0.0
    #: Best validation accuracy, None before the first evaluation.
    best_accuracy: float | None = None
    #: Whether training is complete.
    finished: bool = False
    #: Metrics of each epoch by name.
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def end_epoch(
        self,
        span: metrics.Span,
        result: evaluation.Evaluation,
        learning_rate: float,
    ) -> None:
        """Record the results of an epoch and move to the next."""
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
        """Whether the last epoch has a better accuracy than all others."""
        *before, last = self._accuracies() or [-1.0]
        return last > max(before, default=-1.0)

    # Both are computed from the history, so a resumed run may have other goals.

    def reached_target(self, goals: Goals) -> bool:
        """Return whether enough consecutive epochs reached the target accuracy."""
        target, last = goals.target_accuracy, self._accuracies()[-goals.patience :]
        return (
            target is not None
            and len(last) == goals.patience
            and all(accuracy >= target for accuracy in last)
        )

    def lost_patience(self, goals: Goals) -> bool:
        """Return whether the accuracy has not improved for too many epochs."""
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
