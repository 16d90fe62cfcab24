"""The sessions in README.md and docs/tutorial.md on a machine without Slurm, command by command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import sessions

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer


def check(page: Path, headings: Sequence[str], environ: Mapping[str, str], home: Path) -> None:
    steps = [step for heading in headings for step in sessions.sections(page)[heading]]
    for step, printed in sessions.run_locally(steps, environ, home):
        print(f"$ {step.command}\n{printed}")
        sessions.check(step, printed)


def test_readme(clean_environ: Mapping[str, str], tmp_path: Path) -> None:
    check(sessions.README, ["Run your own train.py"], clean_environ, tmp_path)
    check(sessions.README, ["When a job fails"], clean_environ, tmp_path)


@pytest.mark.slow
def test_tutorial(clean_environ: Mapping[str, str], tmp_path: Path) -> None:
    headings = ["First job", "First sweep", "First scaling study"]
    check(sessions.TUTORIAL, headings, clean_environ, tmp_path)
