"""A run that was stopped and resumed is bit-identical to one that was not."""

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import checkpoints, datasets  # noqa: E402

pytestmark = pytest.mark.trainer

NUM_SAMPLES, BATCH_SIZE, NUM_EPOCHS = 49, 12, 3
#: Keys with measured times.
TIMES = {"seconds", "wait_seconds"}


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
    path = max((folder / "checkpoints").glob("checkpoint-*.pt"))
    assert path.name == "checkpoint-0000000015.pt"
    state = checkpoints.load(checkpoints.read(path))
    for part in [state["progress"], *(p[name] for p in state["ranks"] for name in p)]:
        for name in TIMES & set(part) if isinstance(part, dict) else ():
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


def metric_values(folder: pathlib.Path) -> list[tuple[str, int, float]]:
    """Names, steps and values of all metrics that no clock decides."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        (record["name"], record["step"], record["value"])
        for record in records
        if record["unit"] not in ("seconds", "images/second") and "data_wait" not in record["name"]
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


def seen(folder: pathlib.Path, *ranks: int) -> dict[int, list[int]]:
    """The samples of each step, over some ranks."""
    parts = [torch.load(folder / f"seen.{rank}") for rank in ranks]
    steps = sorted({step for part in parts for step in part})
    return {
        step: sorted(i for part in parts for indices in part.get(step, []) for i in indices)
        for step in steps
    }


def expected(stand_in: int) -> dict[int, list[int]]:
    """The samples of each step, of any run; a rank without a sample takes `stand_in` others'."""
    steps: dict[int, list[int]] = {}
    for epoch in range(1, NUM_EPOCHS + 1):
        order = datasets.permutation(0, epoch, NUM_SAMPLES).tolist()
        for first in range(0, NUM_SAMPLES, BATCH_SIZE):
            batch = order[first : first + BATCH_SIZE]
            extra = [batch[0]] * stand_in if len(batch) == 1 else []
            steps[len(steps)] = sorted(batch + extra)
    return steps


def test_each_sample_is_seen_once_by_any_number_of_ranks(output: pathlib.Path) -> None:
    assert seen(output / "1" / "inside_a_group", 0) == expected(stand_in=0)
    assert seen(output / "2" / "inside_a_group", 0, 1) == expected(stand_in=1)


def test_two_ranks_then_one_see_the_same_samples(output: pathlib.Path) -> None:
    before, after = seen(output / "moved", 0, 1), seen(output / "moved", 2)
    # Two ranks made steps 0 to 6, with the single sample of step 4; one rank made the others.
    assert list(before) == list(range(7)) and list(after) == list(range(7, 15))
    expected_weights = expected(stand_in=1)
    assert before == {step: expected_weights[step] for step in before}
    expected_weights = expected(stand_in=0)
    assert after == {step: expected_weights[step] for step in after}
