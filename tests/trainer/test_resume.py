"""A run that was stopped or killed, and resumed, is bit-identical to one that was not."""

import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from torch.distributed.checkpoint import format_utils  # noqa: E402

from tests.trainer import numbered, resumes  # noqa: E402
from trainers import checkpoint  # noqa: E402
from trainers.data import batches  # noqa: E402

pytestmark = pytest.mark.trainer

BATCH_SIZE, NUM_EPOCHS = 12, 3
#: Keys with measured times.
TIMES = {"seconds", "wait_seconds", "eval_seconds", "checkpoint_seconds"}


@pytest.fixture(scope="module")
def output(
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    program = pathlib.Path(__file__).with_name("resumes.py")
    folder = tmp_path_factory.mktemp("resumes")
    done = launch([str(program), str(folder / "output")])
    assert done.returncode == 0, done.stderr
    return folder / "output"


def final(folder: pathlib.Path) -> dict[str, Any]:
    """The state at the end of the run, without measured times."""
    paths = (folder / "checkpoints").iterdir()
    path = max(path for path in paths if checkpoint.NAME.fullmatch(path.name))
    assert path.stem == "checkpoint-0000000015"
    checkpoint.verify(path)
    state = checkpoint.load(path)
    if path.is_dir():
        whole = folder / "whole.pt"
        format_utils.dcp_to_torch_save(path, whole)
        state |= torch.load(whole, weights_only=True)
    # --num-workers may differ, and with it nothing else.
    for part in [state["progress"], *state["progress"]["history"], state["span"]]:
        for name in TIMES & set(part):
            del part[name]
    return state


def assert_same(left: Any, right: Any, at: str = "state") -> None:
    """Compare with tolerance 0."""
    assert type(left) is type(right), at
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and torch.equal(left, right), at
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), at
        for key in left:
            assert_same(left[key], right[key], f"{at}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), at
        for number, (item, other) in enumerate(zip(left, right, strict=True)):
            assert_same(item, other, f"{at}.{number}")
    else:
        assert left == right, at


def test_fsdp_equals_ddp(output: pathlib.Path) -> None:
    sharded, replicated = final(output / "2" / "fsdp"), final(output / "2" / "ddp")
    for part in ("model", "ema"):
        assert replicated[part].keys() == sharded[part].keys()
        for name, weight in replicated[part].items():
            # Batch norm subtracts the bias of the convolution, so its gradient is rounding, which
            # AdamW scales to whole steps. They differ by 0.0015, all other weights by 5e-5.
            is_free = name in ("0.0.bias", "0.1.running_mean")
            torch.testing.assert_close(
                sharded[part][name], weight, rtol=1e-3, atol=1e-2 if is_free else 1e-4, msg=name
            )
    for one, other in zip(
        sharded["progress"]["history"], replicated["progress"]["history"], strict=True
    ):
        assert one == pytest.approx(other, rel=1e-4)


def test_forced_run_of_fsdp_begins_averages(output: pathlib.Path) -> None:
    states = []
    for step in (5, 10):
        whole = output / f"averaged.{step}.pt"
        folder = output / "2" / "averaged" / "checkpoints" / f"checkpoint-{step:010d}"
        format_utils.dcp_to_torch_save(folder, whole)
        states.append(torch.load(whole, weights_only=True))
    first, second = states
    assert "ema" not in first
    # The decay is 1, so the averages are still the weights of the checkpoint.
    assert_same(second["ema"], {name: first["model"][name] for name in second["ema"]})
    assert not torch.equal(second["model"]["0.0.weight"], first["model"]["0.0.weight"])
    # Another optimizer is refused.
    message = (output / "2" / "averaged" / "error.0").read_text()
    assert re.fullmatch(
        r"1 The checkpoint does not match the model and the optimizer: Missing key in checkpoint"
        r" state_dict: optimizer\.state\..+\. Use those of the checkpoint, or another"
        r" --checkpoint-dir\.",
        message,
    ), message


MESSAGE = (
    "65 training diverged: {}. Use a lower --base-lr, a longer --warmup-epochs or"
    " --max-gradient-norm; earlier checkpoints are kept."
)


@pytest.mark.parametrize(
    ("world_size", "name", "steps", "what"),
    [
        *(
            (world_size, name, steps, what)
            for world_size in (1, 2)
            for name, steps, what in (
                ("nan_loss", [1], "a weight became NaN or infinite by step 2"),
                ("nan_weight", [], "a weight became NaN or infinite by step 4"),
                ("nan_evaluation", [], "the loss became NaN in the evaluation of epoch 1"),
            )
        ),
        (2, "nan_fsdp", [], "a weight became NaN or infinite by step 4"),
    ],
)
def test_diverged_run_ends_on_all_ranks(
    output: pathlib.Path, world_size: int, name: str, steps: list[int], what: str
) -> None:
    folder = output / str(world_size) / name
    for rank in range(world_size):
        assert (folder / f"error.{rank}").read_text() == MESSAGE.format(what)
    assert json.loads((folder / "result.json").read_text())["ending"] == "diverged"
    names = {f"checkpoint-{step:010d}.pt{end}" for step in steps for end in ("", ".sha256")}
    assert {path.name for path in (folder / "checkpoints").iterdir()} == names
    for step in steps:
        state = checkpoint.load(folder / "checkpoints" / f"checkpoint-{step:010d}.pt")
        assert all(weight.isfinite().all() for weight in state["model"].values())


@pytest.mark.parametrize("world_size", [1, 2])
def test_one_sample_of_batch_norm(output: pathlib.Path, world_size: int) -> None:
    # The last batch of an epoch has one sample: two ranks share it.
    whole, dropped = (
        json.loads((output / str(world_size) / name / "result.json").read_text())
        for name in ("one_sample", "drop_last")
    )
    assert (whole["ending"], whole["steps"], whole["num_samples"]) == ("complete", 15, 3 * 49)
    assert (dropped["ending"], dropped["steps"], dropped["num_samples"]) == ("complete", 4, 48)


def test_full_disk_of_one_rank(output: pathlib.Path) -> None:
    folder = output / "2" / "full_disk"
    path = folder / "checkpoints" / "checkpoint-0000000015"
    message = (
        f"cannot write checkpoint {path}: the disk is full. Free space, or set another folder with"
        " --checkpoint-dir."
    )
    for rank in range(2):
        assert (folder / f"error.{rank}").read_text() == f"1 {message}"
    result = json.loads((folder / "result.json").read_text())
    assert (result["ending"], result["checkpoint_failure"]) == ("complete", message)
    # The earlier checkpoints can be used, and no parts of later ones fill the disk.
    store = checkpoint.Store(folder / "checkpoints", keep=2, sharded=True)
    assert store.newest() == folder / "checkpoints" / "checkpoint-0000000005"
    names = sorted(path.name for path in store.folder.iterdir() if path.suffix != ".sha256")
    assert names == ["best", "checkpoint-0000000004", "checkpoint-0000000005"]


@pytest.mark.parametrize("damage", ["truncated shard", "flipped shard", "no shard", "no checksums"])
def test_damaged_shard_falls_back(
    output: pathlib.Path, tmp_path: pathlib.Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(output / "2" / "fsdp" / "checkpoints", tmp_path / "checkpoints", symlinks=True)
    newest = tmp_path / "checkpoints" / "checkpoint-0000000015"
    shard = newest / "__1_0.distcp"
    content = shard.read_bytes()
    if damage == "truncated shard":
        shard.write_bytes(content[:-1])
    elif damage == "flipped shard":
        shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "no shard":
        shard.unlink()
    else:
        checkpoint.checksum_path(newest).unlink()
    store = checkpoint.Store(tmp_path / "checkpoints", keep=2, sharded=True)
    assert store.newest() == tmp_path / "checkpoints" / "checkpoint-0000000014"
    assert capsys.readouterr().err.endswith(" Renamed to checkpoint-0000000015.damaged.\n")


def metric_values(folder: pathlib.Path) -> list[tuple[str, int, float]]:
    """Names, steps and values of the metrics of epochs, except times. A stop ends a window."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        (record["name"], record["step"], record["value"])
        for record in records
        if record["unit"] not in ("seconds", "images/second")
        and record["name"] != "loss"
        and "data_wait" not in record["name"]
    ]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize(
    ("stopped", "whole"),
    [
        ("inside_a_group", "whole"),
        ("at_an_epoch_end", "whole"),
        ("at_the_first_step", "whole"),
        ("half_stopped", "half"),
    ],
)
def test_resumed_run_is_the_same(
    output: pathlib.Path, world_size: int, stopped: str, whole: str
) -> None:
    folder = output / str(world_size)
    state = final(folder / whole)
    assert_same(final(folder / stopped), state)
    assert len(state["progress"]["history"]) == NUM_EPOCHS
    assert all(
        "momentum_buffer" in s or "exp_avg" in s for s in state["optimizer"]["state"].values()
    )
    assert metric_values(folder / stopped) == metric_values(folder / whole)


def test_signal_to_one_rank_stops_all(output: pathlib.Path) -> None:
    assert_same(final(output / "2" / "signalled"), final(output / "2" / "whole"))


def seen(folder: pathlib.Path, attempt: int) -> dict[int, list[int]]:
    """The samples of each completed step of an attempt, over all ranks."""
    ranks = [
        dict(map(json.loads, path.read_text().splitlines()))
        for path in folder.glob(f"seen.{attempt}.*")
    ]
    steps = set.intersection(*(set(rank) for rank in ranks))
    return {step: sorted(label for rank in ranks for label in rank[step]) for step in sorted(steps)}


def expected(world_size: int, *, is_stream: bool = False) -> dict[int, list[int]]:
    """The samples of each step, of any run; a rank without a sample repeats another's."""
    steps: dict[int, list[int]] = {}
    size = numbered.NUM_SAMPLES
    for epoch in range(1, NUM_EPOCHS + 1):
        order = batches.permutation(0, epoch, size).tolist()
        if is_stream:
            order = [(position + 7 * epoch) % size for position in range(size)]
        for first in range(0, size, BATCH_SIZE):
            batch = order[first : first + BATCH_SIZE]
            extra = [batch[0]] * (world_size - 1) if len(batch) == 1 else []
            steps[len(steps)] = sorted(batch + extra)
    return steps


@pytest.mark.parametrize("world_size", [1, 2])
def test_each_sample_is_seen_once_by_any_number_of_ranks(
    output: pathlib.Path, world_size: int
) -> None:
    folder = output / str(world_size) / "inside_a_group"
    before, after = seen(folder, 0), seen(folder, 1)
    assert list(before) == list(range(7)) and list(after) == list(range(7, 15))
    assert before | after == expected(world_size)


def states(folder: pathlib.Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The final states of a killed and resumed run, and of the whole run."""
    killed, whole = final(folder / name), final(folder / name.partition(".")[0])
    return killed, whole


NAMES = [f"{name}.{seed}" for name, seed in resumes.SEEDS]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_killed_run_resumes_bit_identically(
    output: pathlib.Path, world_size: int, name: str
) -> None:
    folder = output / str(world_size) / name
    before, after = seen(folder, 0), seen(folder, 1)
    steps = expected(world_size, is_stream=name.startswith("stream"))
    assert before == {step: steps[step] for step in before}
    # Saved every two steps, and the last checkpoint may not have been complete.
    assert 0 < min(after) <= max(before) + 1 <= min(after) + 4
    assert after == {step: steps[step] for step in range(min(after), 15)}
    assert_same(*states(output / str(world_size), name))
    assert not list(folder.glob("checkpoints/draft*"))


@pytest.mark.parametrize(("before_size", "after_size"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_ranks_sees_the_same_samples(
    output: pathlib.Path, before_size: int, after_size: int, name: str
) -> None:
    folder = output / f"to_{after_size}" / name
    is_stream = name.startswith("stream")
    before, after = seen(folder, 0), seen(folder, 1)
    steps = expected(before_size, is_stream=is_stream)
    assert before == {step: steps[step] for step in before}
    steps = expected(after_size, is_stream=is_stream)
    assert min(after) > 0 and after == {step: steps[step] for step in range(min(after), 15)}
    # Dropout and batch norm differ slightly: weights and averages continue from the checkpoint.
    state, whole = final(folder), final(output / str(before_size) / name.partition(".")[0])
    for part in ("model", "ema"):
        for key, weight in whole[part].items():
            torch.testing.assert_close(state[part][key].float(), weight.float(), rtol=0.3, atol=0.3)
