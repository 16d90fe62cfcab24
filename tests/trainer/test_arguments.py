"""The command line: modes, messages for invalid arguments, help."""

import re

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")

from trainers import arguments, distributed, errors, parallel, train  # noqa: E402

pytestmark = pytest.mark.trainer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--batch-size", "1"],
            "--batch-size 1 is smaller than the number of ranks, 2: use 2 or a multiple of it.",
        ),
        (
            ["--batch-size", "12", "--per-device-batch-size", "4"],
            "--batch-size 12 is not a multiple of --per-device-batch-size 4 times the number of"
            " ranks, 8: use 8 or 16.",
        ),
        (
            [
                "--batch-size=16",
                "--per-device-batch-size=4",
                "--gradient-accumulation-steps=4",
            ],
            "--batch-size 16 and --per-device-batch-size 4 on 2 devices require 2 passes per step,"
            " not --gradient-accumulation-steps 4: omit one of the three.",
        ),
        (
            ["--batch-size", "8", "--gradient-accumulation-steps", "3"],
            "--batch-size 8 is not a multiple of the number of ranks times"
            " --gradient-accumulation-steps, 6: use 6 or 12.",
        ),
        (
            ["--mode", "dp"],
            "--mode dp uses one process, but 2 were started: run `python -m trainers.train` without"
            " torchrun, or use --mode ddp.",
        ),
        (
            ["--device", "cpu", "--precision", "tf32", "--gpu-ids", "1"],
            "--gpu-ids requires --mode dp; in other modes CUDA_VISIBLE_DEVICES selects the GPUs.",
        ),
        (
            ["--epochs", "0"],
            "argument --epochs: 0 is less than 1 (--help lists the arguments)",
        ),
        (
            ["--epochs", "ten"],
            "argument --epochs: 'ten' is not an integer (--help lists the arguments)",
        ),
        (
            ["--synthetic-shape", "3,0"],
            "argument --synthetic-shape: 0 is less than 1 (--help lists the arguments)",
        ),
        (
            ["--seed", str(2**63)],
            "argument --seed: 9223372036854775808 is too large (--help lists the arguments)",
        ),
        (
            ["--base-lr", "nan"],
            "argument --base-lr: nan is not greater than 0 (--help lists the arguments)",
        ),
        # Options cannot be abbreviated.
        (
            ["--pres", "olivia"],
            "unrecognized arguments: --pres olivia: did you mean --preset? (--help lists the"
            " arguments)",
        ),
        (
            ["--batch-sise", "8"],
            "unrecognized arguments: --batch-sise 8: did you mean --batch-size? (--help lists the"
            " arguments)",
        ),
        (
            ["--qqq"],
            "unrecognized arguments: --qqq (--help lists the arguments)",
        ),
        (
            ["--keep-checkpoints", "1"],
            "argument --keep-checkpoints: 1 is less than 2: the newest checkpoint may be damaged"
            " (--help lists the arguments)",
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


def dist_info(
    world_size: int, launcher: distributed.Launcher = distributed.Launcher.TORCHRUN
) -> distributed.DistInfo:
    return distributed.DistInfo(
        launcher=launcher,
        rank=0,
        local_rank=0,
        world_size=world_size,
        local_world_size=world_size,
        num_nodes=1,
    )


@pytest.mark.parametrize(
    ("words", "num_gpus", "message"),
    [
        (
            ["--mode=dp"],
            0,
            "--mode dp requires GPUs, and PyTorch sees none: use --mode single.",
        ),
        (
            ["--mode=dp", "--device=cpu"],
            2,
            "--mode dp requires GPUs, and PyTorch sees none: use --mode single.",
        ),
        *(
            (
                [f"--mode={mode}"],
                2,
                f"--mode {mode} requires one process per GPU, and this is a single process. On one"
                " node: torchrun --standalone --nproc-per-node=GPUS -m trainers.train ...;"
                " or srun with one task per GPU; or --mode single.",
            )
            for mode in ("ddp", "fsdp")
        ),
    ],
)
def test_mode_that_does_not_match_the_launch(words: list[str], num_gpus: int, message: str) -> None:
    args = arguments.parse_arguments(words)
    dist = dist_info(1, distributed.Launcher.SINGLE)
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        parallel.resolve_mode(args, dist, num_gpus)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["--gpu-ids", "0,1"], [0, 1]),
        (["--gpu-ids", "0", "1"], [0, 1]),
        # A list in a spec repeats the option.
        (["--gpu-ids", "0", "--gpu-ids", "2,3"], [0, 2, 3]),
    ],
)
def test_gpu_ids(words: list[str], expected: list[int] | None) -> None:
    chosen = arguments.parse_arguments(words).gpu_ids
    assert chosen == expected
    assert parallel.data_parallel_gpus(chosen, num_gpus=4) == (expected or [0, 1, 2, 3])


@pytest.mark.parametrize("chosen", [[0, 2], [1, 1]])
def test_gpu_ids_that_do_not_exist(chosen: list[int]) -> None:
    message = (
        f"--gpu-ids {chosen[0]},{chosen[1]}, but PyTorch sees 2 GPU(s), numbered from 0: give each"
        " existing number at most once."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        parallel.data_parallel_gpus(chosen, num_gpus=2)


def test_help_shows_the_default_of_each_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    # An entry begins with its option; argparse puts the help of a long one on the next line.
    entries = re.split(r"\n  (?=-)", arguments.parser().format_help())[1:]
    described = {re.search(r"--[a-z-]+", entry)[0]: entry for entry in entries}
    missing = {option for option, entry in described.items() if "default: " not in entry}
    assert missing == {"--help"}
    assert len(described) == len(arguments.parser()._actions) > 60
    assert "(default: 0.05)" in described["--base-lr"]
    assert "(default: off)" in described["--drop-last"]
    assert "(default: none)" in described["--target-accuracy"]


def test_batch_larger_than_the_training_set() -> None:
    message = (
        "A batch of 2000 samples is larger than the training set (1438 samples): use a"
        " smaller batch or fewer ranks."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train.run(arguments.parse_arguments(["--device", "cpu", "--batch-size", "2000"]), {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_without_a_gpu() -> None:
    message = (
        "--device cuda, but PyTorch sees no GPU on this node: request GPUs (--gpus-per-node; in a"
        " container also --nv), install a CUDA build of PyTorch, or use --device cpu."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train.run(arguments.parse_arguments(["--device", "cuda"]), {})
