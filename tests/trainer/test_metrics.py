"""Content of metrics.jsonl."""

import json
import math
import pathlib
import re
import subprocess
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import errors, fence, metrics  # noqa: E402

pytestmark = pytest.mark.trainer

METRIC = metrics.Metric(name="val_accuracy", value=0.5, unit="", step=3, epoch=1)


def metrics_file(
    path: pathlib.Path, attempt_fence: fence.Fence | None = None
) -> metrics.MetricsFile:
    return metrics.MetricsFile(path, attempt_fence=attempt_fence, world_size=2)


def test_line_after_an_incomplete_line_is_complete(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"name": "thr')
    metrics_file(path).append([METRIC, METRIC])
    torn, *whole = path.read_text().splitlines()
    assert torn == '{"name": "thr'
    assert len(whole) == 2
    record = json.loads(whole[0])
    assert record.pop("time")[10] == "T"
    assert record == {
        "name": "val_accuracy",
        "value": 0.5,
        "unit": "",
        "step": 3,
        "epoch": 1,
        "rank": 0,
        "world_size": 2,
        "attempt": 0,
    }


def test_not_a_number_is_null(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    diverged = metrics.Metric(name="loss", value=math.nan, unit="", step=1, epoch=1)
    metrics_file(path).append([diverged])
    assert '"value": null' in path.read_text()


def test_full_disk_costs_metrics_only(capsys: pytest.CaptureFixture[str]) -> None:
    metrics_file(pathlib.Path("/dev/full")).append([METRIC])
    assert capsys.readouterr().err == (
        "trainers.train: warning: cannot write metrics: [Errno 28] No space left on device\n"
    )


def test_older_attempt_appends_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    environ = {
        "ORCHESTRATOR_RUN_DIR": str(tmp_path),
        "ORCHESTRATOR_TASK": "4",
        "ORCHESTRATOR_ATTEMPT": "9",
    }
    older = metrics_file(path, fence.read_fence(environ, tmp_path))
    # Our own link, and a newer one of another array task.
    for link in ("attempt.4.9", "attempt.41.11", "attempt.4.10.tmp"):
        (tmp_path / link).touch()
    older.append([METRIC])
    before = path.read_bytes()
    assert b'"attempt": 9' in before
    (tmp_path / "attempt.4.10").touch()
    with pytest.raises(errors.SupersededError):
        older.append([METRIC])
    assert path.read_bytes() == before


@pytest.mark.parametrize(("shape", "unit"), [("9,16", "samples"), ("1,4,4", "images")])
def test_unit_of_the_throughput(
    shape: str,
    unit: str,
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    # Signals such as those of UCI HAR are no images.
    done = launch(
        [
            *("-m", "trainers.train", "--device=cpu", "--dataset=synthetic", "--model=mlp"),
            *(f"--synthetic-shape={shape}", "--synthetic-samples=512", "--epochs=2"),
            "--window-steps=2",
        ],
        ORCHESTRATOR_METRICS_FILE=str(path),
    )
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"Throughput: [0-9.]+ (.*)", done.stdout)) == {f"{unit}/second"}
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    units = {each["name"]: each["unit"] for each in recorded if "throughput" in each["name"]}
    names = ("window_throughput", "throughput", "total_throughput")
    assert units == dict.fromkeys(names, f"{unit}/second")


def test_place_of_the_file(tmp_path: pathlib.Path) -> None:
    environ = {"ORCHESTRATOR_METRICS_FILE": "/r/metrics.4.jsonl", "ORCHESTRATOR_RUN_DIR": "/r"}
    assert metrics.file_path(tmp_path, environ) == tmp_path / "metrics.jsonl"
    assert metrics.file_path(None, environ) == pathlib.Path("/r/metrics.4.jsonl")
    del environ["ORCHESTRATOR_METRICS_FILE"]
    assert metrics.file_path(None, environ) == pathlib.Path("/r/metrics.jsonl")
    assert metrics.file_path(None, {}) is None
