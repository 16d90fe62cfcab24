"""`--task`: a model, data, loss and metrics of one's own."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from tests.trainer import one_rank, own_tasks  # noqa: E402
from trainers import arguments, errors, metrics, tasks  # noqa: E402

pytestmark = pytest.mark.trainer

Runs = dict[int, dict[str, dict[str, Any]]]
OWN = "tests.trainer.own_tasks:Tokens"


@pytest.fixture(scope="module")
def runs(
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Runs:
    """The runs of own_tasks.py by the number of ranks."""
    output = tmp_path_factory.mktemp("own_tasks") / "runs"
    done = launch([own_tasks.__file__, str(output)])
    assert done.returncode == 0, done.stderr
    return {world_size: torch.load(f"{output}.{world_size}") for world_size in (1, 2)}


@pytest.mark.parametrize("data", ["map", "stream"])
def test_two_ranks_train_as_one_does(runs: Runs, data: str) -> None:
    single, several = (runs[world_size][f"{data}-2"] for world_size in (1, 2))
    for name, weight in single["weights"].items():
        torch.testing.assert_close(several["weights"][name], weight, rtol=0, atol=1e-6)
    for one, two in zip(single["history"], several["history"], strict=True):
        assert one.keys() == two.keys() >= {"val_loss", "val_right_share", "train_right_share"}
        for name in one.keys() - {"seconds"}:
            assert two[name] == pytest.approx(one[name], rel=1e-5), name
        assert one["num_samples"] == own_tasks.NUM_SAMPLES
    losses = [epoch["val_loss"] for epoch in single["history"]]
    assert losses[1] < losses[0]


@pytest.mark.parametrize("data", ["map", "stream"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_workers_change_nothing(runs: Runs, data: str, world_size: int) -> None:
    without, with_workers = (runs[world_size][f"{data}-{number}"] for number in (0, 2))
    for name, weight in without["weights"].items():
        assert torch.equal(with_workers["weights"][name], weight)


@pytest.mark.parametrize("world_size", [1, 2])
def test_printed_lines(runs: Runs, world_size: int) -> None:
    number, share = r"[0-9]+\.[0-9]{3}", r"[0-9]+\.[0-9]{4}"
    expected = rf"""Training started with {world_size} processes across 1 nodes\.
Using 0 GPUs per node\.
  model:          Tokens \(272 parameters\)
  data:           Tokens: 50 samples for training, a stream for evaluation
  data path:      loader, 2 worker\(s\) per rank
  batch:          12 samples in 5 steps an epoch, {12 // world_size} on each device in 1 pass\(es\) a step
  optimizer:      sgd, learning rate 1 constant
  precision:      fp32, compile off
  devices:        {world_size} x CPU
Epoch 1/2 completed in {number} seconds
Validation Loss: {share}
Epoch Throughput: {number} tokens/second
Epoch 2/2 completed in {number} seconds
Validation Loss: {share}
Epoch Throughput: {number} tokens/second

Training Summary:
Total training time: {number} seconds
Throughput: {number} tokens/second
Number of nodes: 1
Number of GPUs per node: 0
Total GPUs used: 0
Total processes: {world_size}
Evaluation: {number} seconds
Waiting for checkpoints: 0\.000 seconds
Training completed successfully\.
"""  # noqa: E501
    assert re.fullmatch(expected, runs[world_size]["stream-2"]["printed"])


def test_throughput_counts_units(runs: Runs) -> None:
    printed = runs[1]["map-0"]["printed"]
    rates = re.findall(r"Epoch Throughput: ([0-9.]+) tokens/second", printed)
    for rate, epoch in zip(rates, runs[1]["map-0"]["history"], strict=True):
        per_second = own_tasks.NUM_SAMPLES * own_tasks.LENGTH / epoch["seconds"]
        assert float(rate) == pytest.approx(per_second, rel=1e-3)


def load(*words: str) -> tasks.Task:
    return tasks.load(arguments.parse_arguments(words), one_rank.ONE_RANK)


TASK_FILE = """\
import my_helper
from trainers import tasks

class MyTask(tasks.Task):
    unit = my_helper.UNIT
    model = train_data = eval_data = losses = lambda *arguments: None
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory with a task; not on sys.path, as with PYTHONSAFEPATH."""
    (tmp_path / "my_tasks.py").write_text(TASK_FILE)
    (tmp_path / "my_helper.py").write_text('UNIT = "spectra"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", os.getcwd())])
    for name in ("my_tasks", "my_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["my_tasks:MyTask", "my_tasks.py:MyTask"])
def test_task_in_the_working_directory(folder: pathlib.Path, name: str) -> None:
    assert load("--task", name).unit == "spectra"


def test_task_in_another_folder(
    folder: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    task = load("--task", f"{folder}/my_tasks.py:MyTask")
    assert task.unit == "spectra"
    # Worker processes find the class by the name of its module.
    assert sys.modules[type(task).__module__].MyTask is type(task)


def test_the_working_directory_does_not_hide_installed_packages(folder: pathlib.Path) -> None:
    (folder / "trainers").mkdir()
    (folder / "trainers" / "__init__.py").write_text("raise SystemExit('not ours')")
    load("--task", "my_tasks:MyTask")
    assert sys.path[-1] == os.getcwd()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--task", "MyTask"],
            "--task MyTask: give package.module:Class or file.py:Class.",
        ),
        (
            ["--task", "no_such.tasks:MyTask"],
            "--task no_such.tasks:MyTask: cannot import no_such.tasks: No module named 'no_such'."
            " The working directory is FOLDER; a package elsewhere must be on PYTHONPATH or"
            " installed.",
        ),
        (
            ["--task", "nowhere.py:MyTask"],
            "--task nowhere.py:MyTask: cannot import nowhere.py: [Errno 2] No such file or"
            " directory: 'FOLDER/nowhere.py'. The working directory is FOLDER; a package"
            " elsewhere must be on PYTHONPATH or installed.",
        ),
        (
            ["--task", ".:MyTask"],
            "--task .:MyTask: give package.module:Class or file.py:Class.",
        ),
        (
            ["--task", "my_tasks.py:Task"],
            "--task my_tasks.py:Task: my_tasks.py has no class Task derived from"
            " trainers.tasks.Task.",
        ),
        (
            ["--task", "tests.trainer.own_tasks:NoBase"],
            "--task tests.trainer.own_tasks:NoBase: tests.trainer.own_tasks has no class NoBase"
            " derived from trainers.tasks.Task.",
        ),
        (["--task-options", "width=4"], "--task-options requires --task."),
        (
            ["--task", OWN, "--task-options", "width"],
            "--task-options width: give name=value.",
        ),
        (
            ["--task", OWN, "--task-options", "a-b=1"],
            "--task-options a-b=1: give name=value.",
        ),
        (
            ["--task", OWN, "--task-options", "widht=4"],
            "--task-options: got an unexpected keyword argument 'widht'."
            " tests.trainer.own_tasks:Tokens has: data, width.",
        ),
        (
            ["--task", "tests.trainer.own_tasks:Named"],
            "--task-options: missing a required argument: 'name'. tests.trainer.own_tasks:Named"
            " has: name.",
        ),
        (
            ["--task", "tests.trainer.own_tasks:Unfinished"],
            "--task tests.trainer.own_tasks:Unfinished: Unfinished must define eval_data, losses.",
        ),
    ],
)
def test_task_that_cannot_be_used(folder: pathlib.Path, words: list[str], message: str) -> None:
    expected = re.escape(message.replace("FOLDER", str(folder)))
    with pytest.raises(errors.UsageError, match=f"^{expected}$"):
        load(*words)


def test_types_of_the_options() -> None:
    words = ["a=1", "b=0.5", "c=True", "d=text", "e=(1, 2)", "f=None", "g=", "h=x=y", "i='7'"]
    assert tasks.parse_options(words) == {
        "a": 1, "b": 0.5, "c": True, "d": "text", "e": (1, 2), "f": None, "g": "", "h": "x=y",
        "i": "7",
    }  # fmt: skip


def test_options_may_be_repeated() -> None:
    # As a list in a spec is written on the command line.
    task = load("--task", OWN, "--task-options", "width=4", "--task-options", "data=stream")
    assert (task.width, task.data) == (4, "stream")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "OnlyLosses",
            "OnlyLosses.losses must return a pair, the losses and a dictionary of metrics ({} if"
            " there are none), but it returned Tensor.",
        ),
        (
            "TokenLosses",
            "TokenLosses.losses must return one loss per sample, and metrics of the same shape"
            " (12,), but it returned {'loss': (72,), 'right_share': (72,)}: use"
            ' reduction="none", and average over all other dimensions.',
        ),
        (
            "FloatMetric",
            "Changed.losses must return one loss per sample, and metrics of the same shape (12,),"
            " but it returned {'loss': (12,), 'perplexity': ()}: use reduction=\"none\", and"
            " average over all other dimensions.",
        ),
        (
            "Misspelt",
            "Misspelt.losses returned the metrics ['right_share']: they must include best_metric"
            " ('right_shar') unless it is 'loss', and none may be called loss.",
        ),
        (
            "LossMetric",
            "Changed.losses returned the metrics ['loss']: they must include best_metric ('loss')"
            " unless it is 'loss', and none may be called loss.",
        ),
        (
            "Changing",
            "losses returned the metrics ['tokensss'], and earlier in this epoch ['tokenss']:"
            " return the same in each step, in the same order.",
        ),
        ("EmptyData", "The evaluation data has no samples."),
    ],
)
def test_task_with_a_mistake(name: str, message: str) -> None:
    words = [f"--task=tests.trainer.own_tasks:{name}", "--batch-size=12", "--num-workers=0"]
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        one_rank.make(words).train()


def test_resumed_run_may_have_other_metrics() -> None:
    trainer = one_rank.make([f"--task={OWN}", "--batch-size=12", "--num-workers=0", "--epochs=1"])
    saved = {"loss": 0.0, "old": 0.0, "older": 0.0}
    span = metrics.Span(num_samples=0, sums=saved, seconds=0.0, wait_seconds=0.0)
    trainer.meter.start(span)
    assert trainer.train() is None
    assert {"train_loss", "train_right_share"} < trainer.progress.history[0].keys()


def test_stream_for_evaluation_without_samples() -> None:
    trainer = one_rank.make(
        [
            *("--task=tests.trainer.own_tasks:EmptyData", "--task-options", "data=stream"),
            *("--num-workers=0", "--batch-size=12"),
        ]
    )
    message = "The evaluation data has no samples."
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        trainer.evaluate()


def test_options_of_classification_are_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    load("--task", OWN, "--dataset=mnist", "--label-smoothing=0.1", "--download", "--epochs=3")
    assert capsys.readouterr().err == (
        "trainers.train: warning: Ignored with --task: --dataset, --download, --label-smoothing.\n"
    )


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "device"),
        (["--num-workers=3"], "device, in memory: --num-workers has no effect"),
        (["--data-path=loader"], "loader, 4 worker(s) per rank"),
        (["--data-path=loader", "--num-workers=1"], "loader, 1 worker(s) per rank"),
        ([f"--task={OWN}"], "loader, 4 worker(s) per rank"),
    ],
)
def test_data_path_at_the_start(words: list[str], line: str) -> None:
    trainer = one_rank.make(
        ["--dataset=synthetic", "--synthetic-samples=64", "--batch-size=8", *words]
    )
    assert trainer.description["data path"] == line


def test_default_task_is_classification() -> None:
    task = load(
        "--dataset=synthetic", "--synthetic-shape=20", "--model=mlp", "--label-smoothing=0.5"
    )
    assert isinstance(task, tasks.Classification)
    assert (task.unit, task.best_metric) == ("samples", "accuracy")
    model = torch.nn.Identity()
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    smooth, values = task.losses(model.train(), logits)
    sharp, _ = task.losses(model.eval(), logits)
    assert values["accuracy"].tolist() == [True, False]
    # Labels are smoothed in training only.
    expected = torch.nn.functional.cross_entropy(*logits, reduction="none")
    torch.testing.assert_close(sharp, expected)
    assert not torch.equal(smooth, sharp)
