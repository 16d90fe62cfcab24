"""What README.md shows of a machine without Slurm, command by command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.slurm import variables
from tests import readme
from tests.flow import command_line

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer


def test_the_session(clean_environ: Mapping[str, str], tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "orchestrator"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    command.chmod(0o755)
    # torchrun is the one of this very Python.
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A variable that no local job gets is told on stderr.
    stored = variables.stored(clean_environ)
    own = {name: value for name, value in stored.items() if not name.startswith("XDG_")}
    environ = {**own, **readme.ENVIRON, "HOME": str(tmp_path), "PATH": path}
    for step in readme.sections()["Without Slurm"]:
        done = subprocess.run(
            readme.argv(step.command),
            cwd=command_line.CHECKOUT,
            env={**environ, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        print(f"$ {step.command}\n{done.stdout}")
        readme.check(step, done.stdout)
