"""Tests that need a GPU; skipped without one."""

import pathlib

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from tests.trainer import one_rank  # noqa: E402
from trainers import arguments, train  # noqa: E402

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]


def weights(*words: str, **options: object) -> dict[str, torch.Tensor]:
    trainer = one_rank.run(
        [
            *("--device=cuda", "--dataset=synthetic", "--synthetic-shape=1,8,8", "--model=cnn"),
            *("--synthetic-samples=48", "--batch-size=12", "--epochs=1", "--no-augmentation"),
            *("--precision=fp32", "--compile=off", *words),
        ],
        device="cuda",
        **options,
    )
    return {name: value.cpu() for name, value in trainer.model.state_dict().items()}


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=0, atol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs here")
def test_data_parallel_equals_single() -> None:
    assert_close(weights(), weights("--mode=dp", mode="dp", gpu_ids=[0, 1]))


def test_both_data_paths_give_the_same_samples() -> None:
    expected = weights("--data-path=device", "--deterministic")
    words = ("--data-path=loader", "--num-workers=2", "--deterministic")
    torch.use_deterministic_algorithms(False)
    assert_close(expected, weights(*words))
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("compile_mode", ["off", "default"])
def test_learns_in_each_precision(
    precision: str, compile_mode: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    words = [
        "--device=cuda", "--epochs=8", f"--precision={precision}", f"--compile={compile_mode}",
        f"--run-dir={tmp_path}", "--target-accuracy=0.9", "--patience=1",
    ]  # fmt: skip
    train.run(arguments.parse_arguments(words), {})
    assert "Target accuracy reached." in capsys.readouterr().out
    assert "gpu_memory_allocated_peak" in (tmp_path / "metrics.jsonl").read_text()
