"""`metrics export`, in this process: the exact text."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.unit.cli import test_metrics
from tests.unit.cli.conftest import Run
from tests.unit.trackers import event_reader

home = test_metrics.home
HEAD = "job_id\trun\tsweep\tvalues\tadded\tplace\n"


def test_tensorboard(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    done = run("metrics", "export", "1", "2", "--to", "tensorboard")
    lines = done[1].removeprefix(HEAD).splitlines()
    assert done[0] == 0 and len(lines) == 2
    _, name, *rest = lines[0].split("\t")
    assert rest == ["", "12", "12", str(home / "tensorboard" / name)]
    (file,) = (home / "tensorboard" / name).glob("events.out.tfevents.*.orchestrator")
    found = event_reader.scalars(file.read_bytes())
    assert sorted(found) == ["epoch_time", "throughput", "val_accuracy", "val_loss"]
    assert [(step, value) for step, _, value in found["throughput"]] == [
        (1, 100.0),
        (2, 200.0),
        (3, 300.0),
    ]
    again = run("metrics", "export", "1", "--to", "tensorboard", "--output", "tensorboard")[1]
    assert again == f"{HEAD}1\t{name}\t\t12\t0\t{home / 'tensorboard' / name}\n"
    # Another user may have put a link into a shared folder.
    other = home / "other"
    other.write_text("kept")
    file.unlink()
    file.symlink_to(other)
    code, _, error = run("metrics", "export", "1", "--to", "tensorboard")
    assert (code, other.read_text()) == (1, "kept")
    assert error.endswith(
        f"Error: cannot write {file}: it is a symbolic link; choose another --output\n"
    )


def test_what_is_missing_is_named(run: Run, home: Path) -> None:
    def error(*words: object) -> str:
        code, _, text = run("metrics", "export", "1", "--to", *words)
        assert code
        return text.partition("Error: ")[2]

    assert error("mlflow") == (
        "no server: give --uri, set MLFLOW_TRACKING_URI or tracking.mlflow_uri, such as "
        '"http://localhost:5000" or "sqlite:////path/mlflow.db"\n'
    )
    python = sys.executable
    assert error("wandb") == (
        f"{python} cannot import wandb (No module named 'wandb'): install it there with "
        f"`{python} -m pip install wandb`, or name another Python with --python\n"
    )
    fails = home / "python"
    fails.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'OSError: no network' >&2\nexit 7\n")
    fails.chmod(stat.S_IRWXU)
    assert error("mlflow", "--uri", "http://x", "--python", fails) == (
        "mlflow failed with exit code 7: OSError: no network\n"
    )
    fails.write_text('#!/bin/sh\necho \'{"added": 1, "experiment": "2", "run": "3"}\'\n')
    done = run(
        *("metrics", "export", "1", "--to", "mlflow", "--uri", "http://me:secret@x:5/"),
        *("--python", fails),
    )
    assert done[1].endswith("\t12\t1\thttp://me:***@x:5/#/experiments/2/runs/3\n")
    assert error("mlflow", "--output", "x") == "--to mlflow writes no folder: remove --output\n"
