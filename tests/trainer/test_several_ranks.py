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


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_clipping_is_of_the_true_gradient(results: Results, world_size: int) -> None:
    plain, scaled = (results[world_size]["clipped"][scale] for scale in (1.0, 1024.0))
    norm = torch.cat([gradient.flatten() for gradient in plain.values()]).norm()
    assert norm.item() == pytest.approx(0.05, rel=1e-4)
    for name, gradient in plain.items():
        torch.testing.assert_close(scaled[name], gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_sees_each_image_once(results: Results, world_size: int) -> None:
    # Means over 101, 2 and 1 images; with more ranks than images some have none.
    for several, single in zip(
        results[world_size]["evaluations"], results[1]["evaluations"], strict=True
    ):
        assert several["accuracy"] == single["accuracy"]
        assert several["loss"] == pytest.approx(single["loss"], rel=1e-6)


# Batch norm sees half of the batch on each of two ranks, so these are compared with plain DDP.
@pytest.mark.parametrize(
    ("mode", "option"),
    [
        ("ddp", "--find-unused-parameters"),
        ("ddp", "--activation-checkpointing"),
        ("ddp", "--gradient-compression=bf16"),
        ("fsdp", "--activation-checkpointing"),
        ("fsdp", "--max-gradient-norm=1e9"),
    ],
)
def test_options_give_the_same_gradients(results: Results, mode: str, option: str) -> None:
    plain = results[2]["options"]["ddp", "--static-graph"]
    done = results[2]["options"][mode, option]
    assert done["loss"] == pytest.approx(plain["loss"], rel=1e-6)
    assert plain["gradients"].keys() <= done["gradients"].keys()
    # bf16 has eight significant bits.
    tolerance = {"rtol": 0.01, "atol": 1e-3} if "bf16" in option else {"rtol": 0, "atol": 1e-6}
    for name, gradient in plain["gradients"].items():
        torch.testing.assert_close(done["gradients"][name], gradient, msg=name, **tolerance)
    # Also if the activations are computed twice.
    assert done["num_batches"] == plain["num_batches"] == 1
    torch.testing.assert_close(done["running_mean"], plain["running_mean"])
    # Three images on two ranks.
    assert done["evaluation"] == pytest.approx(plain["evaluation"], rel=1e-5)


def test_objects_of_rank_0_reach_all(results: Results) -> None:
    assert [results[world_size]["broadcast"] for world_size in (1, 2, 3)] == [b"whole"] * 3


def test_ranks_that_differ_are_seen(results: Results) -> None:
    result = [results[world_size]["is_same"] for world_size in (1, 2, 3)]
    assert result == [(True, True), (True, False), (True, False)]


@pytest.mark.parametrize(("world_size", "mean", "var"), [(1, 0, 1), (2, 0.5, 1.5), (3, 1, 2)])
def test_batch_norm_is_averaged(results: Results, world_size: int, mean: float, var: float) -> None:
    assert results[world_size]["running_mean"] == [mean, mean]
    assert results[world_size]["running_var"] == [var, var]


def test_group_ends_with_its_threads(results: Results) -> None:
    # A thread that outlives the group may abort the process: see trainers/distributed.py.
    # Not with FSDP, whose caches keep the group (torch 2.15): two ranks run it too.
    assert results[3]["gloo_threads_during"]
    assert results[3]["gloo_threads_after"] == []
