"""Content of metrics.jsonl."""

import json
import math
import pathlib
import re
import types
from collections.abc import Mapping

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from tests.trainer import one_rank  # noqa: E402
from trainers import errors, metrics, report  # noqa: E402

pytestmark = pytest.mark.trainer

METRIC = ("val_accuracy", 0.5, "")


def append(
    path: pathlib.Path, *values: metrics.Value, environ: Mapping[str, str] = {}, rank: int = 0
) -> None:
    outputs = metrics.Outputs(path, environ, 2, tensorboard=False)
    outputs.append(3, 1, *((*value[:3], rank) for value in values))
    outputs.close()


def test_line_after_an_incomplete_line_is_complete(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"name": "thr')
    append(path, METRIC, METRIC, rank=1)
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
        "rank": 1,
        "world_size": 2,
        "attempt": 0,
    }


def test_not_a_number_is_null(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append(path, ("loss", math.nan, ""))
    assert '"value": null' in path.read_text()


def test_full_disk_costs_metrics_only(capsys: pytest.CaptureFixture[str]) -> None:
    append(pathlib.Path("/dev/full"), METRIC)
    assert capsys.readouterr().err == (
        "trainers.train: warning: cannot write metrics: [Errno 28] No space left on device\n"
    )


def test_older_attempt_prints_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"ORCHESTRATOR_RUN_DIR": str(tmp_path), "ORCHESTRATOR_ATTEMPT": "0"}
    progress = report.Log(
        0, metrics.Outputs(tmp_path / "metrics.jsonl", environ, 1, tensorboard=False)
    )
    progress.print("Epoch 1\n")
    (tmp_path / "attempt.0.1").touch()
    with pytest.raises(errors.SupersededError):
        progress.print("Epoch 2\n")
    with pytest.raises(errors.SupersededError):
        progress.update("Epoch 2/9", 5, 10, 0.5, "3 images/s")
    assert capsys.readouterr().out == "Epoch 1\n"


def test_older_attempt_appends_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    environ = {
        "ORCHESTRATOR_RUN_DIR": str(tmp_path),
        "ORCHESTRATOR_TASK": "4",
        "ORCHESTRATOR_ATTEMPT": "9",
    }
    # Our own link, and a newer one of another array task.
    for link in ("attempt.4.9", "attempt.41.11", "attempt.4.10.tmp"):
        (tmp_path / link).touch()
    append(path, METRIC, environ=environ)
    before = path.read_bytes()
    assert b'"attempt": 9' in before
    (tmp_path / "attempt.4.10").touch()
    with pytest.raises(errors.SupersededError):
        append(path, METRIC, environ=environ)
    assert path.read_bytes() == before


def test_sums_depend_neither_on_windows_nor_on_attempts() -> None:
    generator = torch.Generator().manual_seed(0)
    passes = [10 ** (8 * torch.rand(16, generator=generator) - 7) for _ in range(200)]
    source = types.SimpleNamespace(wait_seconds=0.0)

    def total(snapshots: int, attempts: int) -> float:
        meter = metrics.Meter(torch.device("cpu"), source)
        for number, losses in enumerate(passes, 1):
            meter.add(16, losses, {})
            if number % snapshots == 0:
                meter.snapshot()
            if number % attempts == 0:
                span = meter.read()
                meter = metrics.Meter(torch.device("cpu"), source)
                meter.start(span)
        return meter.read().sums["loss"]

    assert {total(3, 7), total(200, 200), total(1, 50), total(11, 199)} == {total(200, 201)}


# Signals such as those of UCI HAR are no images.
@pytest.mark.parametrize(("shape", "unit"), [("9,16", "samples"), ("1,4,4", "images")])
def test_unit_of_the_throughput(
    shape: str, unit: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--synthetic-shape={shape}", "--synthetic-samples=512", "--epochs=2"]
    words += ["--dataset=synthetic", "--model=mlp", "--window-steps=2", f"--run-dir={tmp_path}"]
    one_rank.run(words)
    out = capsys.readouterr().out
    assert set(re.findall(r"Throughput: [0-9.]+ (.*)", out)) == {f"{unit}/second"}
    recorded = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    units = {each["name"]: each["unit"] for each in recorded if "throughput" in each["name"]}
    names = ("window_throughput", "throughput", "total_throughput")
    assert units == dict.fromkeys(names, f"{unit}/second")


def test_paths_of_the_files(tmp_path: pathlib.Path) -> None:
    environ = {"ORCHESTRATOR_METRICS_FILE": "/r/metrics.4.jsonl", "ORCHESTRATOR_RUN_DIR": "/r"}
    path = metrics.file_path(tmp_path, environ)
    assert path == tmp_path / "metrics.jsonl"
    assert metrics.beside(path, "checkpoints") == tmp_path / "checkpoints"
    path = metrics.file_path(None, environ)
    assert path == pathlib.Path("/r/metrics.4.jsonl")
    assert metrics.beside(path, "result", ".json") == pathlib.Path("/r/result.4.json")
    del environ["ORCHESTRATOR_METRICS_FILE"]
    assert metrics.file_path(None, environ) == pathlib.Path("/r/metrics.jsonl")
    assert metrics.file_path(None, {}) is None
