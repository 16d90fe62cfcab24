"""The smoke matrix: its combinations, their commands, and a run of one of them."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers.tools import smoke  # noqa: E402

pytestmark = pytest.mark.trainer

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_a_machine_with_gpus_gets_all_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    precisions = ["fp32", "tf32", "bf16", "fp16"]
    monkeypatch.setattr(smoke.benchmark, "precisions", lambda: precisions)
    assert len(smoke.machine_matrix(1, 1)) == 5 * 4 * 3 * 2
    names = [each.name for each in smoke.machine_matrix(4, 4)]
    assert len(set(names)) == len(names)
    # FSDP has no fp16, and DataParallel no compilation.
    assert len(names) == 5 * 2 * ((4 * 3) + (4 * 3) + (3 * 3) + (4 * 1))
    assert "cifar100/tf32/reduce-overhead/deterministic/ddp" in names
    assert not {"digits/fp16/off/fast/fsdp", "digits/fp32/default/fast/dp"} & {*names}


@on_cpu
def test_the_combinations_of_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main(["--list", "--ranks=2", "--only=digits", "--only=fast"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "digits/fp32/off/fast/single",
        "digits/fp32/off/fast/ddp",
        "digits/fp32/off/fast/fsdp",
        "digits/bf16/off/fast/single",
        "digits/bf16/off/fast/ddp",
        "digits/bf16/off/fast/fsdp",
    ]
    with pytest.raises(SystemExit):
        smoke.main(["--only=digits", "--only=none"])
    assert "no combination contains digits and none: see --list" in capsys.readouterr().err


def test_ranks_are_started_by_torchrun_except_for_data_parallel() -> None:
    def command(mode: str, algorithms: str = "fast") -> tuple[str, ...]:
        return smoke.train_command(smoke.Combination("mnist", "bf16", "off", algorithms, mode), 4)

    single, ddp, dp = command("single"), command("ddp"), command("dp", "deterministic")
    same = (
        "-m", "trainers.train", "--preset=mnist", "--dataset=synthetic",
        "--synthetic-shape=1,28,28", "--synthetic-classes=10",
    )  # fmt: skip
    assert single == (
        sys.executable, *same, "--synthetic-samples=44", "--batch-size=8",
        "--per-device-batch-size=8", "--epochs=2", "--warmup-epochs=1", "--run-dir=.",
        "--precision=bf16", "--compile=off", "--mode=single",
    )  # fmt: skip
    # Four ranks train on four times as many samples, in as many steps.
    assert ddp == (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        "--nproc-per-node=4", *same, "--synthetic-samples=176", "--batch-size=32",
        "--per-device-batch-size=8", "--epochs=2", "--warmup-epochs=1", "--run-dir=.",
        "--precision=bf16", "--compile=off", "--mode=ddp",
    )  # fmt: skip
    assert dp[:3] == (sys.executable, "-m", "trainers.train")
    assert dp[-3:] == ("--mode=dp", "--deterministic", "--gpu-ids=0,1,2,3")


@pytest.mark.parametrize(
    ("program", "line", "exit_code"),
    [
        ("print('Training completed successfully.')", "ok     ", 0),
        ("raise SystemExit('train: error: no GPU.')", ": train: error: no GPU.", 1),
        ("print('Stopped.')", ": the training did not report its completion", 1),
        (
            "print('rank 0: torch.compile failed for 2 parts of the model.\\n"
            "Training completed successfully.')",
            ": torch.compile failed for 2 parts of the model.",
            1,
        ),
    ],
)  # fmt: skip
def test_each_run_is_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
    line: str,
    exit_code: int,
) -> None:
    combination = smoke.Combination("digits", "fp32", "off", "fast", "single")
    monkeypatch.setattr(smoke, "machine_matrix", lambda num_gpus, ranks: [combination])
    command = (sys.executable, "-c", program)
    monkeypatch.setattr(smoke, "train_command", lambda combination, ranks: command)
    assert smoke.main([]) == exit_code
    _, result, total = capsys.readouterr().out.splitlines()
    name = "digits/fp32/off/fast/single"
    assert result.startswith("FAILED " if exit_code else line)
    assert result.endswith(f"{name}{line}" if exit_code else name)
    assert total == f"{1 - exit_code} passed, {exit_code} failed"


@on_cpu
def test_one_combination_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main(["--only=lesson05/bf16/off/deterministic/single"]) == 0
    assert capsys.readouterr().out.endswith("1 passed, 0 failed\n")
