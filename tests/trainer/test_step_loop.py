"""The training loop: no synchronization with the device, the same samples by both data paths."""

import contextlib
import dataclasses
import functools
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from torch.utils import _python_dispatch  # noqa: E402

from trainers import (  # noqa: E402
    arguments,
    batches,
    data_paths,
    datasets,
    metrics,
    models,
    optimizers,
    precisions,
    runs,
    steps,
    train,
)

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

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            before, self.at_edge = self.at_edge, True
            try:
                return call(*args, **kwargs)
            finally:
                self.at_edge = before

        return wrapper


def launch_of(words: list[str]) -> runs.Launch:
    return runs.prepare(arguments.parse_arguments([*BASE, *words]), {})


def test_steps_never_wait_for_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    watch = Watch("cpu")
    for module, name in (
        (runs, "make"),
        (train, "report_first_step"),
        (train, "end_window"),
        (train, "end_epoch"),
        (train, "write_result"),
    ):
        monkeypatch.setattr(module, name, watch.edge(getattr(module, name)))
    for kind in (metrics.SpanMeter, data_paths.DevicePath):
        for name in ("start", "begin_epoch"):
            if hasattr(kind, name):
                monkeypatch.setattr(kind, name, watch.edge(getattr(kind, name)))
    launch = launch_of(["--epochs=2", f"--run-dir={tmp_path}"])
    with watch:
        assert train.train(launch) is None
    assert watch.synchronizations[False] == []
    # It can see them: windows and epochs do read numbers.
    assert "_local_scalar_dense" in watch.synchronizations[True]
    assert watch.num_operations > 1000


@pytest.mark.parametrize("optimizer", optimizers.NAMES)
def test_steps_on_a_device_without_numbers(optimizer: str) -> None:
    # Tensors on "meta" have no content, so reading one fails. A step reads none.
    meta = torch.device("meta")
    launch = launch_of(["--synthetic-shape=3,32,32", f"--optimizer={optimizer}"])
    args = launch.wanted
    data = datasets.load("synthetic", datasets.read_options(args))
    data = dataclasses.replace(data, augmentation="crop-flip")
    plan = batches.make_plan(args, num_samples=50, rank=0, world_size=1, num_devices=1)
    model = models.MODELS["wrn-16-4"](data.train_samples.shape[1:], data.num_classes).to(meta)
    source = data_paths.DevicePath(data.to(meta), plan, 0, torch.channels_last)
    moving = optimizers.make(args, model.parameters(), meta)
    meter = metrics.SpanMeter(meta, source)
    source.begin_epoch(1, 0)
    with Watch("meta") as watch:
        for step in range(plan.steps_per_epoch):
            optimizers.set_learning_rate(moving, 0.1 / (step + 1))
            sums = steps.train_step(
                model,
                moving,
                source.micro_batches(step),
                batch_size=plan.batch_size(step),
                rules=steps.Rules(
                    world_size=1,
                    autocast=contextlib.nullcontext(),
                    scaler=torch.amp.GradScaler("cpu", enabled=False),
                    label_smoothing=0.1,
                    max_gradient_norm=1.0,
                ),
            )
            meter.add(sums)
    assert watch.synchronizations[False] == []
    with pytest.raises((RuntimeError, NotImplementedError)):
        meter.state()


def test_data_parallel_computes_in_the_requested_precision() -> None:
    # Each part of a batch has its own thread, in which autocast is on with the thread's format:
    # on a CPU bf16, on a GPU fp16.
    device = torch.device("cpu")
    trained = steps.wrap(
        models.MODELS["lesson-mlp"](torch.Size([20]), 10),
        "dp",
        device,
        autocast=functools.partial(precisions.autocast, "fp16", device),
        gpu_ids=[0, 1],
    )
    result = []

    def replica() -> None:
        with torch.autocast("cpu"):
            result.append(trained.module(torch.zeros(2, 20)).dtype)

    thread = threading.Thread(target=replica)
    thread.start()
    thread.join()
    assert result == [torch.float16]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_steps_never_wait_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, precision: str
) -> None:
    step = steps.train_step

    def strict(*args: Any, **kwargs: Any) -> steps.Sums:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(*args, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(steps, "train_step", strict)
    words = ["--device=cuda", f"--precision={precision}", "--epochs=2", f"--run-dir={tmp_path}"]
    assert train.train(launch_of(words)) is None


def weights(words: list[str], folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder.mkdir()
    made = []
    make = runs.make
    monkeypatch.setattr(runs, "make", lambda launch: made.append(make(launch)) or made[0])
    assert train.train(launch_of([*words, "--epochs=2", f"--run-dir={folder}"])) is None
    monkeypatch.undo()
    (run, moving) = made[0]
    return run, moving.model.state_dict()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_both_data_paths_give_the_same_samples(
    num_workers: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, expected = weights(["--data-path=device"], tmp_path / "device", monkeypatch)
    assert isinstance(run.source, data_paths.DevicePath) and run.source.wait_seconds == 0
    words = ["--data-path=loader", f"--num-workers={num_workers}"]
    run, result = weights(words, tmp_path / "loader", monkeypatch)
    assert isinstance(run.source, data_paths.LoaderPath) and run.source.wait_seconds > 0
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(result[name], value), name


def test_data_loading_time_is_measured_and_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    take = data_paths._Samples.__getitem__

    def slow(self: Any, indices: torch.Tensor) -> Any:
        clock[0] += 3.0
        return take(self, indices)

    def at_work(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
            clock[0] += 2.0
            return call(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(data_paths._Samples, "__getitem__", slow)
    monkeypatch.setattr(steps, "train_step", at_work(steps.train_step))
    for module in (data_paths, metrics):
        monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    words = ["--data-path=loader", "--num-workers=0", "--epochs=1", "--data-path=loader"]
    assert train.train(launch_of(words)) is None
    # 5 steps of 2 s, the last of one pass and the others of two, each waiting 3 s: 27 s of 37.
    assert capsys.readouterr().err == (
        "trainers.train: 73% of the epoch was spent waiting for data: increase --num-workers (now"
        " 0) and the number of CPUs, increase --prefetch-factor (now 2), or use --data-path"
        " device.\n"
    )
