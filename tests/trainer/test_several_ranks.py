"""One rank and several ranks compute the same."""

import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer

Results = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def results(
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Results:
    program = pathlib.Path(__file__).with_name("several_ranks.py")
    output = tmp_path_factory.mktemp("several_ranks") / "results"
    done = launch([str(program), str(output)])
    assert done.returncode == 0, done.stderr
    return {
        world_size: torch.load(f"{output}.{world_size}", weights_only=False)
        for world_size in (1, 2, 3)
    }


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_gradients_equal_those_of_one_process(results: Results, world_size: int) -> None:
    several = results[world_size]
    assert len(several["gradients"]) == 10
    for (size, passes), gradients in several["gradients"].items():
        # One process with the whole batch in one pass.
        single = results[1]["whole"][size]
        assert several["losses"][size, passes] == pytest.approx(single["loss"], rel=1e-5)
        for name, gradient in single["gradients"].items():
            assert gradient.abs().max() > 0
            torch.testing.assert_close(
                gradients[name], gradient, rtol=0, atol=1e-6, msg=f"{name} {size} {passes}"
            )


def test_data_parallel_equals_single(results: Results) -> None:
    # On a CPU DataParallel is the model itself; with GPUs see test_gpu.py.
    for step, (loss, gradients) in results[1]["dp"].items():
        assert loss == results[1]["losses"][step]
        for name, gradient in gradients.items():
            assert torch.equal(gradient, results[1]["gradients"][step][name])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_clipping_is_of_the_true_gradient(results: Results, world_size: int) -> None:
    plain, scaled = (results[world_size]["clipped"][scale] for scale in (1.0, 1024.0))
    norm = torch.cat([gradient.flatten() for gradient in plain.values()]).norm()
    assert norm.item() == pytest.approx(0.05, rel=1e-4)
    for name, gradient in plain.items():
        torch.testing.assert_close(scaled[name], gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_sees_each_image_once(results: Results, world_size: int) -> None:
    several, single = results[world_size]["evaluations"], results[1]["evaluations"]
    assert [item.count for item in several] == [101, 2, 1]
    assert [item.correct for item in several] == [item.correct for item in single]
    assert [item.loss for item in several] == pytest.approx(
        [item.loss for item in single], rel=1e-6
    )


def test_bytes_of_rank_0_reach_all(results: Results) -> None:
    assert [results[world_size]["spread"] for world_size in (1, 2, 3)] == [b"whole"] * 3


def test_ranks_that_differ_are_seen(results: Results) -> None:
    result = [results[world_size]["alike"] for world_size in (1, 2, 3)]
    assert result == [(True, True), (True, False), (True, False)]


@pytest.mark.parametrize(("world_size", "mean", "var"), [(1, 0, 1), (2, 0.5, 1.5), (3, 1, 2)])
def test_batch_norm_is_averaged(results: Results, world_size: int, mean: float, var: float) -> None:
    assert results[world_size]["running_mean"] == [mean, mean]
    assert results[world_size]["running_var"] == [var, var]


def test_group_ends_with_its_threads(results: Results) -> None:
    # A thread that outlives the group may abort the process at its end: see trainers/ranks.py.
    assert results[2]["gloo_threads_during"]
    assert results[2]["gloo_threads_after"] == []
