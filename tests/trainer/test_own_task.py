"""examples/own_task: a task of one's own outside of the checkout, with one rank and with two."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from tests.trainer import own_tasks  # noqa: E402
from trainers import arguments, errors, tasks  # noqa: E402
from trainers.data import loading  # noqa: E402

pytestmark = pytest.mark.trainer

CHECKOUT = pathlib.Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples/own_task"
PAGE = CHECKOUT / "docs/howto/own-task.md"

STEPS, BATCH_SIZE, LENGTH = 10, 64, 32
#: A smaller network and shorter epochs.
SMALLER: dict[str, Any] = {
    "task_options": ["folder=texts", f"length={LENGTH}", "width=16"],
    "steps_per_epoch": STEPS,
    "epochs": 2,
}


def series(records: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the values of each epoch."""
    names = ("throughput", "epoch_time", "train_loss", "val_loss", "val_accuracy")
    records = [record for record in records if record["epoch"] is not None]
    return {name: [each["value"] for each in records if each["name"] == name] for name in names}


def test_two_ranks_train_like_one(
    orchestrator: Callable[..., str],
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: pathlib.Path,
) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(40):
        (texts / f"{number:02}.py").write_text(f"print({number})\n" * 90)
    changes = [("--set", f"args.{key}={json.dumps(value)}") for key, value in SMALLER.items()]
    options = [word for change in changes for word in change]
    job_id = orchestrator("submit", "train.toml", *options, "--parsable").strip()
    orchestrator("wait", job_id)
    log = orchestrator("logs", job_id)
    assert "Training started with 2 processes across 1 nodes.\n" in log
    assert "  data:           NextByte: a stream for training, a stream for evaluation\n" in log
    assert log.endswith("Training completed successfully.\n")
    items = json.loads(orchestrator("metrics", job_id, "--json"))["items"]
    two = series(items)
    assert {item["unit"] for item in items if item["name"] == "throughput"} == {"tokens/second"}
    printed = re.findall(r"Epoch Throughput: (\S+) tokens/second\n", log)
    assert [float(rate) for rate in printed] == pytest.approx(two["throughput"], abs=1e-3)
    # One rank, without orchestrator.
    args = tomllib.loads((tmp_path / "train.toml").read_text())["args"] | SMALLER
    args |= {"task": f"{tmp_path}/{args['task']}", "run_dir": tmp_path, "device": "cpu"}
    args["task_options"] = [f"folder={texts}", *args["task_options"][1:]]
    task_options = args.pop("task_options")
    words = [f"--{key.replace('_', '-')}={value}" for key, value in args.items()]
    done = launch(["-m", "trainers.train", *words, "--task-options", *task_options])
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Training completed successfully.\n")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    one = series([json.loads(line) for line in lines])
    for values in (one, two):
        assert [
            rate * seconds
            for rate, seconds in zip(values["throughput"], values["epoch_time"], strict=True)
        ] == pytest.approx([STEPS * BATCH_SIZE * LENGTH] * 2)
    # The same samples in each step, and each sample of the evaluation once.
    for name in ("train_loss", "val_loss", "val_accuracy"):
        assert two[name] == pytest.approx(one[name], rel=1e-4)
    assert one["val_loss"][1] < one["val_loss"][0] < 5.6  # ln 256: no knowledge


def test_the_page_quotes_the_example() -> None:
    text = PAGE.read_text()
    for kind, name in (("python", "tasks.py"), ("toml", "train.toml")):
        (quoted,) = re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.M | re.S)
        assert quoted == (EXAMPLE / name).read_text()
    assert len((EXAMPLE / "tasks.py").read_text().splitlines()) < 60


class Mean(own_tasks.Tokens):
    """Returns the mean of a batch instead of the loss of each sample."""

    def losses(self, model: Any, batch: Any) -> Any:
        return batch.mean(), {"accuracy": batch > 0}


def test_a_mean_instead_of_losses_is_refused() -> None:
    with pytest.raises(errors.UsageError) as caught:
        tasks.losses(Mean(), torch.nn.Identity(), torch.ones(3))
    assert str(caught.value) == (
        "Mean.losses must return one loss per sample, and metrics of the same shape (B,), but it"
        " returned {'loss': (), 'accuracy': (3,)}: use reduction=\"none\", and average over all"
        " other dimensions."
    )


def test_a_stream_cannot_stay_on_the_device() -> None:
    stream: Any = iter([])
    with pytest.raises(errors.UsageError) as caught:
        args = arguments.parse_arguments(["--data-path=device"])
        loading.Source(args, stream, stream, Any, Any, Any)
    assert str(caught.value) == (
        "--data-path device requires data in memory: use --data-path loader."
    )
