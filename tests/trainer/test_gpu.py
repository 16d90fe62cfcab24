"""Tests that need a GPU; skipped without one."""

import contextlib
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, models, steps, train  # noqa: E402

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs here")
def test_data_parallel_equals_single() -> None:
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(12, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (12,), generator=generator)
    gradients = {}
    for mode, gpu_ids in (("single", []), ("dp", [0, 1])):
        torch.manual_seed(0)
        device = torch.device("cuda", 0)
        model = models.cnn(samples.shape[1:], 10).to(device)
        trained = steps.wrap(model, mode, device, gpu_ids=gpu_ids)
        steps.train_step(
            trained,
            torch.optim.SGD(trained.parameters(), lr=0.0),
            [
                steps.Micro(
                    samples=samples.to(device), labels=labels.to(device), counted=True, last=True
                )
            ],
            batch_size=12,
            rules=steps.Rules(
                world_size=1,
                autocast=contextlib.nullcontext(),
                scaler=torch.amp.GradScaler("cuda", enabled=False),
            ),
        )
        gradients[mode] = [parameter.grad.cpu() for parameter in model.parameters()]
    for single, parallel in zip(gradients["single"], gradients["dp"], strict=True):
        torch.testing.assert_close(parallel, single, rtol=0, atol=1e-6)


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
