"""When training ends before its last epoch."""

from __future__ import annotations

import json
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, state, train  # noqa: E402

pytestmark = pytest.mark.trainer


def after(*values: float, metric: str = "accuracy") -> state.Progress:
    return state.Progress(history=[{f"val_{metric}": value} for value in values])


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
    words = [] if target is None else [f"--target-accuracy={target}"]
    args = arguments.parse_arguments([*words, f"--patience={patience}"])
    why = "Target accuracy reached" if expected else ""
    assert after(*accuracies).check_finished(args, "accuracy") == why


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
    words = [] if limit is None else [f"--early-stopping-patience={limit}"]
    args = arguments.parse_arguments([*words, f"--early-stopping-min-delta={min_delta}"])
    why = f"Validation accuracy no longer improves (best {max(accuracies, default=0):.4f})"
    assert after(*accuracies).check_finished(args, "accuracy") == (why if expected else "")
    # Of losses the smaller is better.
    losses = after(*(-accuracy for accuracy in accuracies), metric="loss")
    assert bool(losses.check_finished(args, "loss")) is expected


def test_best_is_better_than_all_before() -> None:
    runs = ([0.0], [0.5, 0.5], [0.5, 0.6], [0.6, 0.5])
    assert [after(*values).is_best("accuracy") for values in runs] == [True, False, True, False]
    losses = [after(*values, metric="loss").is_best("loss") for values in runs]
    assert losses == [True, False, False, True]
    assert (after(0.5, 0.6).best("accuracy"), after().best("accuracy")) == (0.6, None)
    assert after(0.5, 0.6, metric="loss").best("loss") == 0.5


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
