"""One rank and several ranks compute the same."""

import pathlib
import re
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


def assert_equal_gradients(gradients: dict[str, Any], expected: dict[str, Any]) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_gradients_equal_those_of_one_process(results: Results, world_size: int) -> None:
    steps = results[world_size]["steps"]
    assert len(steps) == 10
    for (size, _), (loss, gradients) in steps.items():
        # One process with the whole batch in one pass, without the trainer.
        whole_loss, whole_gradients = results[1]["whole"][size]
        assert loss == pytest.approx(whole_loss, rel=1e-5)
        assert_equal_gradients(gradients, whole_gradients)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_clipping_is_of_the_true_gradient(results: Results, world_size: int) -> None:
    plain, scaled = (results[world_size]["clipped"][scale] for scale in (1.0, 1024.0))
    norm = torch.cat([gradient.flatten() for gradient in plain.values()]).norm()
    assert norm.item() == pytest.approx(0.05, rel=1e-4)
    for name, gradient in plain.items():
        torch.testing.assert_close(scaled[name], gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_counts_each_sample_once(results: Results, world_size: int) -> None:
    several, single = results[world_size]["evaluations"], results[1]["evaluations"]
    for count, one, other in zip((101, 2, 1), several, single, strict=True):
        assert one["accuracy"] * count == pytest.approx(round(one["accuracy"] * count))
        assert one == pytest.approx(other, rel=1e-6)


def test_the_time_of_a_step_ends_before_the_rank_waits(results: Results) -> None:
    own = results[2]["timed"]
    assert len(own) == 2
    assert min(own) > 0


def test_ranks_with_different_data_end(results: Results) -> None:
    for rank, message in enumerate(results[2]["differing"]):
        assert re.fullmatch(
            rf"The ranks have different data, on rank {rank} \(\S+\) with the fingerprint"
            r" [0-9a-f]{32}: stage it again on the nodes that differ\.",
            message,
        )
    assert len(set(results[2]["differing"])) == 2


def test_object_of_rank_0_reaches_all(results: Results) -> None:
    assert [results[world_size]["broadcast"] for world_size in (1, 2, 3)] == [b"whole"] * 3


@pytest.mark.parametrize(("world_size", "mean", "var"), [(1, 0, 1), (2, 0.5, 1.5), (3, 1, 2)])
def test_batch_norm_is_averaged(results: Results, world_size: int, mean: float, var: float) -> None:
    assert results[world_size]["running_mean"] == [mean, mean]
    assert results[world_size]["running_var"] == [var, var]


def test_group_ends_with_its_threads(results: Results) -> None:
    # A thread that outlives the group may abort the process at its end: see distributed.py.
    assert results[2]["gloo_threads_during"]
    assert results[2]["gloo_threads_after"] == []


def test_fsdp_equals_one_rank(results: Results) -> None:
    (loss, gradients), evaluation = results[2]["fsdp"]
    whole_loss, whole_gradients = results[1]["whole"][23]
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    assert_equal_gradients(gradients, whole_gradients)
    # Three samples: a rank repeats its sample, which does not count.
    assert evaluation == pytest.approx(results[1]["evaluation"], rel=1e-6)


def test_fsdp_with_a_parameter_without_dimensions(results: Results) -> None:
    # The rest is PyTorch's.
    message = results[2]["scaled"]
    assert message.startswith("--mode fsdp cannot shard this model: fully_shard doesn't support ")
    assert "scale" in message


def test_unused_parameters(results: Results) -> None:
    assert results[2]["unused"] == pytest.approx(results[1]["unused"], rel=1e-6)


def test_compressed_gradients_are_rounded_to_bf16(results: Results) -> None:
    options = results[2]["options"]
    for name, gradient in options["plain"]["gradients"].items():
        compressed = options["compressed"]["gradients"][name]
        assert torch.equal(compressed, compressed.bfloat16().float())
        # bf16 has 8 significant bits; the bias before batch norm has no gradient.
        torch.testing.assert_close(compressed, gradient, rtol=2**-6, atol=1e-3)


@pytest.mark.parametrize("name", ["static", "recomputed", "averaged"])
def test_option_does_not_change_the_step(results: Results, name: str) -> None:
    plain, other = (results[2]["options"][key] for key in ("plain", name))
    assert other["loss"] == plain["loss"]
    for key, gradient in plain["gradients"].items():
        torch.testing.assert_close(other["gradients"][key], gradient, rtol=0, atol=1e-6, msg=key)
    # Two passes: recomputation does not update the statistics again.
    assert other["num_batches"] == plain["num_batches"] == 2
    assert torch.equal(other["running_mean"], plain["running_mean"])


def test_average_of_weights(results: Results) -> None:
    averaged = results[2]["options"]["averaged"]
    for before, after, average in zip(
        averaged["before"], averaged["after"], averaged["averages"], strict=True
    ):
        assert not torch.equal(before, after)
        torch.testing.assert_close(average, 0.5 * before + 0.5 * after)
