"""examples/own_task: a task of one's own outside of the checkout, with one rank and with two."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, errors, tasks  # noqa: E402
from trainers.data import loading  # noqa: E402

pytestmark = pytest.mark.trainer

CHECKOUT = pathlib.Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples/own_task"
PAGE = CHECKOUT / "docs/howto/own-task.md"

STEPS, BATCH_SIZE, LENGTH = 10, 64, 32
#: A smaller network and shorter epochs.
SMALLER = (
    'args.task_options=["folder=texts", "length=32", "width=16"]',
    f"args.steps_per_epoch={STEPS}",
    "args.epochs=2",
)


def test_two_ranks_train_like_one(orchestrator: Callable[..., str], tmp_path: pathlib.Path) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(40):
        (texts / f"{number:02}.py").write_text(f"print({number})\n" * 90)
    options = [word for change in SMALLER for word in ("--set", change)]
    series: dict[int, dict[str, list[float]]] = {}
    for ranks in (1, 2):
        further = ["--set", f"resources.gpus_per_node={ranks}", "--parsable"]
        job_id = orchestrator("submit", "train.toml", *options, *further).strip()
        orchestrator("wait", job_id)
        log = orchestrator("logs", job_id)
        assert f"Training started with {ranks} processes across 1 nodes.\n" in log
        assert "  data:           NextByte: a stream for training, a stream for evaluation\n" in log
        assert log.endswith("Training completed successfully.\n")
        items = json.loads(orchestrator("metrics", job_id, "--json"))["items"]
        epochs = [item for item in items if item["epoch"] is not None]
        series[ranks] = {
            name: [item["value"] for item in epochs if item["name"] == name]
            for name in ("throughput", "epoch_time", "train_loss", "val_loss", "val_accuracy")
        }
        rates = [item for item in epochs if item["name"] == "throughput"]
        assert {item["unit"] for item in rates} == {"tokens/second"}
        assert [
            rate * seconds
            for rate, seconds in zip(
                series[ranks]["throughput"], series[ranks]["epoch_time"], strict=True
            )
        ] == pytest.approx([STEPS * BATCH_SIZE * LENGTH] * 2)
        printed = re.findall(r"Epoch Throughput: (\S+) tokens/second\n", log)
        assert [float(rate) for rate in printed] == pytest.approx(
            series[ranks]["throughput"], abs=1e-3
        )
    # The same samples in each step, and each sample of the evaluation once.
    for name in ("train_loss", "val_loss", "val_accuracy"):
        assert series[2][name] == pytest.approx(series[1][name], rel=1e-4)
    assert series[1]["val_loss"][1] < series[1]["val_loss"][0] < 5.6  # ln 256: no knowledge


def test_the_page_quotes_the_example() -> None:
    text = PAGE.read_text()
    for kind, name in (("python", "tasks.py"), ("toml", "train.toml")):
        (quoted,) = re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.M | re.S)
        assert quoted == (EXAMPLE / name).read_text()
    assert len((EXAMPLE / "tasks.py").read_text().splitlines()) < 60


class Mean(tasks.Task):
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
        loading.make_source(args, stream, stream, Any, Any, Any)
    assert str(caught.value) == (
        "--data-path device requires a data set in memory (TensorData), and this one is read sample"
        " by sample: use --data-path loader."
    )
