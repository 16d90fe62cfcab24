"""The presets reach their accuracy on real data.

Figures of the issue: MNIST 0.97, UCI HAR 0.85, digits 0.96, in five minutes on two cores.
"""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer

Launch = Callable[..., subprocess.CompletedProcess[str]]


# Five minutes of two cores. On a busy machine this takes longer.
CPU_SECONDS = 2 * 300


def _accuracies(start: Launch, *words: str) -> list[float]:
    before = _cpu_seconds()
    result = start(["-m", "trainers.train", "--device=cpu", *words])
    assert result.returncode == 0, result.stderr
    assert _cpu_seconds() - before < CPU_SECONDS
    return [float(text) for text in re.findall(r"Validation Accuracy: ([0-9.]+)", result.stdout)]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_digits(start: Launch) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    assert _accuracies(start, "--preset=digits")[-1] >= 0.96


def test_uci_har(start: Launch, shared_data: Path) -> None:
    words = ("--preset=har", "--epochs=4", f"--data-dir={shared_data}")
    assert _accuracies(start, *words)[-1] >= 0.85


@pytest.mark.slow
def test_mnist(start: Launch, shared_data: Path) -> None:
    assert _accuracies(start, "--preset=mnist", f"--data-dir={shared_data}")[-1] >= 0.97


def test_mnist_in_short(start: Launch, shared_data: Path) -> None:
    words = ("--preset=mnist", "--epochs=1", f"--data-dir={shared_data}")
    assert _accuracies(start, *words)[-1] >= 0.9
