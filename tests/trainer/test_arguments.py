"""The command line: modes, messages for invalid arguments, help."""

import re

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")

from tests.trainer import forked  # noqa: E402
from trainers import arguments, distributed, errors, parallel, train  # noqa: E402

pytestmark = pytest.mark.trainer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--batch-size", "1"],
            "--batch-size 1 cannot be divided among 2 devices in 1 pass(es): use 2.",
        ),
        (
            ["--batch-size", "12", "--per-device-batch-size", "4"],
            "--batch-size 12 cannot be divided among 2 devices with 4 samples each: use 8 or 16.",
        ),
        (
            [
                "--batch-size=16",
                "--per-device-batch-size=4",
                "--gradient-accumulation-steps=4",
            ],
            "--batch-size 16 and --per-device-batch-size 4 on 2 devices require"
            " --gradient-accumulation-steps 2, not 4.",
        ),
        (
            ["--batch-size", "8", "--gradient-accumulation-steps", "3"],
            "--batch-size 8 cannot be divided among 2 devices in 3 pass(es): use 6 or 12.",
        ),
        (
            ["--mode", "dp"],
            "--mode dp is one process, and 2 were started: use --mode ddp.",
        ),
        (
            ["--device", "cpu", "--precision", "tf32", "--gpu-ids", "1"],
            "--gpu-ids requires --mode dp: set CUDA_VISIBLE_DEVICES instead.",
        ),
        (
            ["--device", "cpu", "--profile-steps", "3"],
            "--profile-steps requires --run-dir, the folder for the profile.",
        ),
        (
            ["--device", "cpu", "--run-dir", "/dev/null/run"],
            "Cannot create the run folder: [Errno 20] Not a directory: '/dev/null/run'. Set another"
            " one with --run-dir.",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(words: list[str], message: str) -> None:
    environ = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train.run(arguments.parse_arguments(words), environ)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "argument --epochs: 0 is not a positive integer"),
        (["--epochs", "ten"], "argument --epochs: ten is not a positive integer"),
        (
            ["--synthetic-shape", "3,0"],
            "argument --synthetic-shape: 0 is not a positive integer",
        ),
        (
            ["--seed", str(2**63)],
            "argument --seed: 9223372036854775808 is not 0 or a positive integer",
        ),
        (["--base-lr", "inf"], "argument --base-lr: inf is not a positive number"),
        (["--ema-decay", "2"], "argument --ema-decay: 2 is not a number between 0 and 1"),
        (
            ["--prefetch-factor", "101"],
            "argument --prefetch-factor: 101 is not an integer from 1 to 100",
        ),
        (
            ["--keep-checkpoints", "1"],
            "argument --keep-checkpoints: 1 is not an integer of at least 2",
        ),
        # Options cannot be abbreviated.
        (["--pres", "olivia"], "unrecognized arguments: --pres olivia"),
    ],
)
def test_invalid_option_is_one_line_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parse_arguments(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        f"usage: python -m trainers.train [OPTIONS]\ntrainers.train: error: {message}\n"
    )


@pytest.mark.parametrize(
    ("mode", "world_size", "expected"),
    [
        ("auto", 1, "single"),
        ("auto", 2, "ddp"),
        ("ddp", 2, "ddp"),
        # torchrun with one GPU: nothing to reduce.
        ("ddp", 1, "single"),
        ("fsdp", 2, "fsdp"),
        ("single", 1, "single"),
        ("dp", 1, "dp"),
    ],
)
def test_mode_under_torchrun(mode: str, world_size: int, expected: str) -> None:
    args = arguments.parse_arguments([f"--mode={mode}"])
    assert parallel.resolve_mode(args, dist_info(world_size), num_gpus=4) == expected


def dist_info(world_size: int, launcher: str = "torchrun") -> distributed.DistInfo:
    return forked.dist_info(0, world_size, launcher)


@pytest.mark.parametrize(
    ("words", "num_gpus", "message"),
    [
        (
            ["--mode=dp"],
            0,
            "--mode dp requires GPUs: use --mode single.",
        ),
        (
            ["--mode=dp", "--device=cpu"],
            2,
            "--mode dp requires GPUs: use --mode single.",
        ),
        *(
            (
                [f"--mode={mode}"],
                2,
                f"--mode {mode} requires one process per GPU, and this is a single process: start"
                " with torchrun --standalone --nproc-per-node=GPUS -m trainers.train, or with one"
                " srun task per GPU, or use --mode single.",
            )
            for mode in ("ddp", "fsdp")
        ),
    ],
)
def test_mode_that_does_not_match_the_launch(words: list[str], num_gpus: int, message: str) -> None:
    args = arguments.parse_arguments(words)
    dist = dist_info(1, "single")
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        parallel.resolve_mode(args, dist, num_gpus)


def test_fsdp_with_one_rank_shards_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    args = arguments.parse_arguments(["--mode=fsdp"])
    assert parallel.resolve_mode(args, dist_info(1), num_gpus=1) == "single"
    assert capsys.readouterr().err == (
        "trainers.train: warning: --mode fsdp with a single rank is --mode single: nothing is"
        " sharded.\n"
    )


def test_gpu_ids() -> None:
    assert arguments.parse_arguments(["--gpu-ids", "0,1,3"]).gpu_ids == (0, 1, 3)


def test_help_shows_the_default_of_each_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    # An entry begins with its option; argparse puts the help of a long one on the next line.
    entries = re.split(r"\n  (?=-)", arguments.parser().format_help())[1:]
    described = {re.search(r"--[a-z-]+", entry)[0]: entry for entry in entries}
    missing = {option for option, entry in described.items() if "default: " not in entry}
    assert missing == {"--help"}
    assert len(described) == len(arguments.parser()._actions) > 55
    assert "(default: 0.05)" in described["--base-lr"]
    assert "(default: False)" in described["--drop-last"]
    assert "(default: None)" in described["--target-accuracy"]


def test_batch_larger_than_the_training_set() -> None:
    message = (
        "The training set (1438 samples) is smaller than 1 batch(es) of 2000 samples: use a smaller"
        " batch, fewer --steps-per-epoch or fewer ranks."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train.run(arguments.parse_arguments(["--device", "cpu", "--batch-size", "2000"]), {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_without_a_gpu() -> None:
    message = (
        "1 rank(s) on this node, but PyTorch sees 0 GPU(s): start one rank per GPU, request more"
        " GPUs (in a container also --nv), install a CUDA build of PyTorch, or use --device cpu."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train.run(arguments.parse_arguments(["--device", "cuda"]), {})
