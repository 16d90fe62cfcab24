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


@pytest.mark.parametrize("size", [12, 7, 2])
@pytest.mark.parametrize("world_size", [2, 3])
def test_gradients_equal_those_of_one_process(results: Results, world_size: int, size: int) -> None:
    single, several = results[1], results[world_size]
    assert several["losses"][size] == pytest.approx(single["losses"][size], rel=1e-5)
    for name, gradient in single["gradients"][size].items():
        assert gradient.abs().max() > 0
        torch.testing.assert_close(
            several["gradients"][size][name], gradient, rtol=0, atol=1e-6, msg=name
        )


@pytest.mark.parametrize("world_size", [2, 3])
def test_evaluation_sees_each_image_once(results: Results, world_size: int) -> None:
    single, several = results[1]["evaluation"], results[world_size]["evaluation"]
    assert several.count == single.count == 101
    assert several.correct == single.correct
    assert several.loss == pytest.approx(single.loss, rel=1e-6)


@pytest.mark.parametrize(("world_size", "mean", "var"), [(1, 0, 1), (2, 0.5, 1.5), (3, 1, 2)])
def test_batch_norm_is_averaged(results: Results, world_size: int, mean: float, var: float) -> None:
    assert results[world_size]["running_mean"] == [mean, mean]
    assert results[world_size]["running_var"] == [var, var]


def test_group_ends_with_its_threads(results: Results) -> None:
    # A thread that outlives the group may abort the process at its end: see trainers/ranks.py.
    assert results[2]["gloo_threads_during"]
    assert results[2]["gloo_threads_after"] == []
