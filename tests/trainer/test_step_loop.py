"""The training loop: no synchronization with the device, the same samples by both data paths."""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from torch.utils import _python_dispatch  # noqa: E402

from tests.trainer import one_rank  # noqa: E402
from trainers import (  # noqa: E402
    metrics,
    models,
    parallel,
    report,
    stop,
    train,
)
from trainers.data import loading, memory  # noqa: E402

pytestmark = pytest.mark.trainer

BASE = [
    "--device=cpu", "--dataset=synthetic", "--synthetic-shape=3,8,8", "--synthetic-samples=50",
    "--batch-size=12", "--gradient-accumulation-steps=2", "--model=cnn", "--max-gradient-norm=1",
    "--window-steps=3", "--label-smoothing=0.1", "--schedule=cosine",
]  # fmt: skip


class Watch(_python_dispatch.TorchDispatchMode):
    """Counts what makes the host wait for a device, at edges and within the loop of steps."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.at_edge = False
        self.synchronizations: dict[bool, list[str]] = {True: [], False: []}
        self.num_operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.num_operations += 1
        name = func._schema.name.removeprefix("aten::")
        devices = {arg.device for arg in args if isinstance(arg, torch.Tensor)}
        to_host = (
            isinstance(result, torch.Tensor)
            and result.device.type == "cpu"
            and any(device.type != "cpu" for device in devices)
        )
        # What the result's shape depends on is read by the host as well. Adam counts its steps in
        # the host's memory: those are no numbers of the device.
        reads = name in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero")
        if to_host or (reads and any(device.type == self.device for device in devices)):
            self.synchronizations[self.at_edge].append(name)
        return result

    def edge(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what happens at the edge of a window, an epoch, the run."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            before, self.at_edge = self.at_edge, True
            try:
                return call(*args, **kwargs)
            finally:
                self.at_edge = before

        return wrapper


def test_steps_never_wait_for_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    watch = Watch("cpu")
    for kind, name in (
        (train.Trainer, "__init__"),
        (train.Trainer, "_report_first_step"),
        (train.Trainer, "report_window"),
        (train.Trainer, "end_epoch"),
        (train.Trainer, "_close"),
        (metrics.Meter, "start"),
        (loading.Source, "begin_epoch"),
    ):
        monkeypatch.setattr(kind, name, watch.edge(getattr(kind, name)))
    with watch:
        one_rank.run([*BASE, "--epochs=2", f"--run-dir={tmp_path}"])
    assert watch.synchronizations[False] == []
    # It can see them: windows and epochs do read numbers.
    assert "_local_scalar_dense" in watch.synchronizations[True]
    assert watch.num_operations > 1000


@pytest.mark.parametrize("optimizer", ("adadelta", "adamw", "sgd"))
def test_steps_on_a_device_without_numbers(optimizer: str) -> None:
    # Tensors on "meta" have no content, so reading one fails. A step reads none.
    words = ["--synthetic-shape=3,32,32", "--model=wrn-16-4", f"--optimizer={optimizer}"]
    trainer = one_rank.make([*BASE, *words, "--ema-decay=0.9"], device="meta")
    assert trainer.source._reader._dataset.augment
    for group in trainer.optimizer.param_groups:
        group["fused"] = None  # no kernels for "meta"
    trainer.source.begin_epoch(1, 0)
    with Watch("meta") as watch:
        for _ in range(trainer.plan.steps_per_epoch):
            trainer.train_step()
    assert watch.synchronizations[False] == []
    with pytest.raises((RuntimeError, NotImplementedError)):
        trainer.meter.snapshot()


def test_data_parallel_computes_in_the_requested_precision() -> None:
    # Each part of a batch has its own thread, in which autocast is on with the thread's format:
    # on a CPU bf16, on a GPU fp16.
    words = ["--dataset=synthetic", "--synthetic-shape=20", "--synthetic-samples=64"]
    trainer = one_rank.make([*words, "--model=lesson-mlp", "--precision=fp16"])
    trainer.mode = "dp"
    wrapped = parallel.wrap(trainer, gpu_ids=[0, 1])
    result = []

    def replica() -> None:
        with torch.autocast("cpu"):
            result.append(wrapped.module(torch.zeros(2, 20)).dtype)

    thread = threading.Thread(target=replica)
    thread.start()
    thread.join()
    assert result == [torch.float16]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("data_path", ["device", "loader"])
def test_steps_never_wait_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, precision: str, data_path: str
) -> None:
    step = train.Trainer.train_step

    def strict(self: train.Trainer) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(self)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(train.Trainer, "train_step", strict)
    words = [f"--precision={precision}", "--epochs=2", f"--run-dir={tmp_path}", "--compile=off"]
    words += ["--device=cuda", f"--data-path={data_path}", "--num-workers=0"]
    one_rank.run([*BASE, *words], device="cuda")


def final_weights(*words: str) -> tuple[loading.Source, dict[str, Any]]:
    trainer = one_rank.run([*BASE, *words, "--epochs=2"])
    return trainer.source, trainer.model.state_dict()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_both_data_paths_give_the_same_samples(num_workers: int) -> None:
    source, expected = final_weights("--data-path=device")
    assert source.name == "device" and source.wait_seconds == 0
    source, result = final_weights("--data-path=loader", f"--num-workers={num_workers}")
    assert source.name == "loader" and source.wait_seconds > 0
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(result[name], value), name


def test_data_loading_time_is_measured_and_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    read, step = memory.TensorData.batch, train.Trainer.train_step

    def slow_read(self: Any, *indices: torch.Tensor) -> Any:
        clock[0] += 3.0
        return read(self, *indices)

    def slow_step(self: train.Trainer) -> None:
        clock[0] += 2.0
        step(self)

    monkeypatch.setattr(memory.TensorData, "batch", slow_read)
    monkeypatch.setattr(train.Trainer, "train_step", slow_step)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    one_rank.run([*BASE, "--data-path=loader", "--num-workers=0", "--epochs=1"])
    # 5 steps of 2 s, the last of one pass and the others of two, each waiting 3 s: 27 s of 37.
    assert capsys.readouterr().err == (
        "trainers.train: warning: 73% of the epoch was spent waiting for data: increase"
        " --num-workers (now 0; only if a stream has samples_at, as each worker reads all of it),"
        " --prefetch-factor and the number of CPUs; of data in memory, use --data-path device.\n"
    )


def records(folder: pathlib.Path, name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["name"] == name]


@pytest.mark.parametrize("words", [["--window-seconds=0.000001"], ["--window-steps=3"], []])
def test_windows_cover_each_step_once(
    words: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = []
    report_window = train.Trainer.report_window

    def watched(self: train.Trainer, begin: metrics.Snapshot, end: metrics.Snapshot) -> None:
        span = self.meter.span(begin, end)
        windows.append((begin.step, end.step, span.num_samples, span.means["loss"]))
        report_window(self, begin, end)

    monkeypatch.setattr(train.Trainer, "report_window", watched)
    base = [word for word in BASE if not word.startswith("--window")]
    trainer = one_rank.run(
        [*base, *words, "--epochs=3", f"--run-dir={tmp_path}"],
        stopper=stop.Stopper(poll_seconds=0),
    )
    # 5 steps an epoch, the last of 2 samples: per step, every 3 steps, and the whole epoch.
    ends = {"--window-seconds=0.000001": [1, 2, 3, 4, 5], "--window-steps=3": [3, 5]}
    expected = [5 * epoch + end for epoch in range(3) for end in ends.get("".join(words), [5])]
    assert [end for _, end, _, _ in windows] == expected
    assert [begin for begin, _, _, _ in windows] == [0, *expected[:-1]]
    assert [line["step"] for line in records(tmp_path, "loss")] == expected
    assert [line["value"] for line in records(tmp_path, "loss")] == [loss for *_, loss in windows]
    totals: dict[int, list[float]] = collections.defaultdict(lambda: [0, 0.0])
    for begin, _, num_samples, loss in windows:
        totals[begin // 5][0] += num_samples
        totals[begin // 5][1] += num_samples * loss
    for epoch, (num_samples, loss) in totals.items():
        assert num_samples == 50
        assert loss / 50 == pytest.approx(trainer.progress.history[epoch]["train_loss"], rel=1e-12)
    # The first window includes allocation and compilation.
    assert [line["step"] for line in records(tmp_path, "step_time")] == expected[1:]


def test_steps_continue_while_the_disk_hangs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_2 = threading.Event()
    append, step = metrics.Outputs._append, train.Trainer.train_step
    waited = []

    def hanging(self: metrics.Outputs, lines: bytes) -> None:
        # The first write, of the first step's time, ends only after another step.
        waited.append(step_2.wait(timeout=60))
        append(self, lines)

    def watched(self: train.Trainer) -> None:
        step(self)
        if self.progress.step == 2:
            step_2.set()

    monkeypatch.setattr(metrics.Outputs, "_append", hanging)
    monkeypatch.setattr(train.Trainer, "train_step", watched)
    one_rank.run([*BASE, "--epochs=1", f"--run-dir={tmp_path}"])
    assert waited and all(waited)
    assert records(tmp_path, "first_step_time")[0]["step"] == 1


def test_progress_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: clock[0])
    progress = report.Log(30, None)
    for step in range(1, 11):
        clock[0] += 7
        progress.update("Epoch 1/3", step, 23, 1 / step, "1234.5 images/second")
    # The lines of an epoch show the progress as well.
    progress.end()
    clock[0] += 29
    progress.update("Epoch 2/3", 1, 23, 0.1, "1234.5 images/second")
    assert capsys.readouterr().out == (
        "Epoch 1/3, step 5/23, train loss: 0.2000, 1234.5 images/second\n"
        "Epoch 1/3, step 10/23, train loss: 0.1000, 1234.5 images/second\n"
    )


def test_progress_of_a_run_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    one_rank.run([*BASE, "--epochs=2", "--log-seconds=0.000001"])
    lines = re.findall(
        r"^Epoch (\d)/2, step (\d)/5, train loss: \d\.\d{4}, \d+\.\d images/second$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert lines == [("1", "3"), ("1", "5"), ("2", "3"), ("2", "5")]


def test_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = os.openpty()
    shown: list[bytes] = []

    def read() -> None:
        # EIO: the other end is closed.
        with contextlib.suppress(OSError):
            while block := os.read(parent, 65536):
                shown.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("COLUMNS", "150")
    with open(child, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        one_rank.run([*BASE, "--epochs=2"])
        monkeypatch.undo()
    reader.join()
    os.close(parent)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())
    assert re.search(r"\r\[#{20}\] Epoch 2/2, step 5/5, train loss: \d\.\d{4}, \d+", text)
    # The other lines are unharmed.
    assert re.search(r"[\r\n]Epoch 2/2 completed in \d\.\d{3} seconds\r\n", text), text


class Uncompilable(torch.nn.Module):
    """A model whose compilation fails."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def test_a_model_that_cannot_be_compiled_runs_uncompiled_and_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no compiler for this processor")

    # Not inductor, whose import takes ten seconds.
    compile_with = functools.partial(torch.compile, backend=broken)
    monkeypatch.setattr(torch, "compile", lambda model, mode: compile_with(model))
    monkeypatch.setitem(models.MODELS, "uncompilable", lambda shape, classes: Uncompilable())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    words = ["--model=uncompilable", "--compile=default", "--epochs=1", f"--run-dir={tmp_path}"]
    trainer = one_rank.run([*BASE, *words])
    torch._dynamo.reset()
    assert trainer.progress.finished
    warning = (
        "trainers.train: warning: rank 0: torch.compile failed: 1 of 1 parts run uncompiled. Its"
        " messages above say why.\n"
    )
    assert warning in capsys.readouterr().err
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["run"]["compile"] == "default (1 of 1 parts run uncompiled)"


def test_images_keep_the_memory_format() -> None:
    inputs = torch.zeros(2, 3, 4, 4)
    arranged = loading.arrange(inputs, torch.channels_last)
    assert arranged.is_contiguous(memory_format=torch.channels_last)
    # Token numbers and vectors are left alone.
    assert loading.arrange(inputs.long(), torch.channels_last).is_contiguous()


def test_short_epochs_of_data_in_memory_use_all_of_it() -> None:
    seen: set[int] = set()
    trainer = one_rank.make([*BASE, "--steps-per-epoch=2", "--no-augmentation"])
    data = trainer.source._reader._dataset
    numbered = torch.arange(len(data), dtype=torch.uint8)[:, None, None, None]
    samples = numbered.expand_as(data.samples)
    statistics = {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}
    data = dataclasses.replace(data, samples=samples, **statistics)
    trainer.source._reader._dataset = data
    for epoch in range(1, 13):
        trainer.source.begin_epoch(epoch, 0)
        for step in range(2):
            for _, (images, _) in trainer.source.micro_batches(step):
                seen |= set(images[:, 0, 0, 0].int().tolist())
    assert seen == set(range(50))
