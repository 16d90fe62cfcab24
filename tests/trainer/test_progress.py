"""When training ends before its last epoch."""

from __future__ import annotations

import json
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, progress, train  # noqa: E402

pytestmark = pytest.mark.trainer


def after(*accuracies: float) -> progress.Progress:
    return progress.Progress(history=[{"val_accuracy": accuracy} for accuracy in accuracies])


@pytest.mark.parametrize(
    ("accuracies", "target", "patience", "expected"),
    [
        ([], 0.9, 1, False),
        ([0.9], 0.9, 1, True),
        ([0.9], 0.9, 2, False),
        ([0.95, 0.89, 0.95], 0.9, 2, False),
        ([0.1, 0.9, 0.95], 0.9, 2, True),
        ([1.0, 1.0, 1.0], None, 1, False),
    ],
)
def test_target(
    accuracies: list[float], target: float | None, patience: int, expected: bool
) -> None:
    goals = progress.Goals(target_accuracy=target, patience=patience)
    assert after(*accuracies).reached_target(goals) is expected


@pytest.mark.parametrize(
    ("accuracies", "limit", "min_delta", "expected"),
    [
        ([], 1, 0.0, False),
        ([0.0], 1, 0.0, False),
        ([0.5, 0.5], 1, 0.0, True),
        ([0.5, 0.4, 0.6], 2, 0.0, False),
        ([0.5, 0.4, 0.3], 2, 0.0, True),
        # Small steps add up, but none of them counts; the first that is large enough does.
        ([0.50, 0.54, 0.58], 2, 0.1, True),
        ([0.50, 0.54, 0.61], 2, 0.1, False),
        ([0.5, 0.4, 0.3], None, 0.0, False),
    ],
)
def test_patience(
    accuracies: list[float], limit: int | None, min_delta: float, expected: bool
) -> None:
    goals = progress.Goals(early_stopping_patience=limit, min_delta=min_delta)
    assert after(*accuracies).lost_patience(goals) is expected


def test_best_is_better_than_all_before() -> None:
    assert [after(*all_).is_best for all_ in ([], [0.0], [0.5, 0.5], [0.5, 0.6])] == [
        False, True, False, True,
    ]  # fmt: skip


def test_ended_run_continues_towards_other_goals(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--device=cpu", "--dataset=synthetic", "--synthetic-shape=20", "--synthetic-samples=50",
        "--model=lesson-mlp", "--batch-size=25", "--epochs=5", f"--run-dir={tmp_path}",
    ]  # fmt: skip

    def epochs(*options: str) -> tuple[int, str]:
        train.run(arguments.parse_arguments([*words, *options]), {})
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["finished"] is True
        return result["epochs"], capsys.readouterr().out

    count, out = epochs("--early-stopping-patience=1", "--early-stopping-min-delta=1")
    assert count == 2
    assert "Validation accuracy no longer improves (best " in out
    count, out = epochs("--target-accuracy=0", "--patience=3")
    assert (count, "Target accuracy reached. Early stopping after epoch 3.\n" in out) == (3, True)
    count, out = epochs("--target-accuracy=0", "--patience=3")
    assert (count, out.partition(":")[0]) == (3, "Training was complete after step 6")
    assert epochs()[0] == 5
