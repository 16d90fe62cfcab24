"""Named sets of arguments: the runs of each source document, and recommended recipes.

`--preset NAME` stands for a set of arguments; arguments on the command line override it. Errors in
the commands of the sources are corrected; docs/trainer.md lists them.
"""

import argparse
from collections.abc import Mapping, Sequence

_SCA = (
    "--dataset=mnist --model=sca-cnn --epochs=10 --optimizer=adadelta --base-lr=1.0"
    " --weight-decay=0 --schedule=step --lr-gamma=0.7 --lr-step-epochs=1 --precision=fp32"
)
# The learning rate scales with the effective batch, not with the number of GPUs: the guide uses
# twice the rate for 8 x 16 samples as for 4 x 32, although both are 128.
_HAR = (
    "--dataset=har --model=har-flatten --epochs=20 --optimizer=adamw --base-lr=1e-3"
    " --lr-scaling=linear --lr-base-batch-size=32 --schedule=cosine --min-lr=1e-6"
    " --weight-decay=1e-4 --label-smoothing=0.1 --max-gradient-norm=1.0 --num-workers=4"
    " --early-stopping-patience=7 --early-stopping-min-delta=0.001"
)
_OLIVIA = (
    "--dataset=cifar100 --model=olivia-wrn --epochs=100 --optimizer=sgd --target-accuracy=0.95"
    " --patience=2"
)

PRESETS: Mapping[str, str] = {
    # S0. The guide compares 128 on one GPU with 256 on two, both as --batch-size: the batch per GPU
    # is the same.
    "sca-single": f"{_SCA} --mode=single --batch-size=128",
    "sca-dataparallel": f"{_SCA} --mode=dp --batch-size=256",
    # S1. Its batch sizes are per GPU.
    "har-single": f"{_HAR} --mode=single --per-device-batch-size=32 --warmup-epochs=2",
    "har-2gpu": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=2",
    "har-4gpu": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=3",
    "har-8gpu": f"{_HAR} --per-device-batch-size=16 --warmup-epochs=5",
    # With DataParallel the guide's batch of 32 would be divided among all GPUs.
    "har-dp": f"{_HAR} --mode=dp --batch-size=128 --warmup-epochs=2",
    "har-quick": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=2 --epochs=5",
    "har-production": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=3 --epochs=30",
    # S2. Its batch sizes are global; the single-GPU script uses plain SGD and fp32.
    "olivia-single": f"{_OLIVIA} --mode=single --batch-size=256 --base-lr=0.01 --momentum=0"
    " --weight-decay=0 --precision=fp32",
    "olivia": f"{_OLIVIA} --batch-size=1024 --base-lr=0.04 --momentum=0.9 --weight-decay=5e-4"
    " --precision=fp16",
    "olivia-two-nodes": f"{_OLIVIA} --batch-size=2048 --base-lr=0.04 --momentum=0.9"
    " --weight-decay=5e-4 --precision=fp16",
    # S4. AdamW without weight decay is Adam.
    "lesson05": "--dataset=synthetic --synthetic-shape=20 --synthetic-classes=10"
    " --synthetic-samples=10000 --model=lesson-mlp --epochs=10 --optimizer=adamw --base-lr=1e-3"
    " --weight-decay=0 --per-device-batch-size=32 --num-workers=2 --precision=fp32",
    # Recommended recipes. A cosine schedule to zero after a warm-up, Nesterov momentum, label
    # smoothing, and a learning rate for a batch of 256 that scales with the square root.
    "cifar100": "--dataset=cifar100 --model=wrn-16-10 --epochs=100 --batch-size=512 --optimizer=sgd"
    " --nesterov --base-lr=0.1 --lr-scaling=sqrt --lr-base-batch-size=256 --schedule=cosine"
    " --warmup-epochs=5 --weight-decay=5e-4 --label-smoothing=0.1",
    "mnist": "--dataset=mnist --model=cnn --epochs=6 --batch-size=64 --base-lr=0.02"
    " --schedule=cosine --warmup-epochs=0.5",
    "har": "--dataset=har --model=cnn1d --epochs=10 --batch-size=64 --base-lr=0.05"
    " --schedule=cosine --warmup-epochs=1",
    "digits": "--dataset=digits --model=cnn --epochs=10 --batch-size=64 --base-lr=0.05"
    " --schedule=cosine --warmup-epochs=1",
}


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--preset`."""
    parser.add_argument(
        "--preset",
        choices=sorted(PRESETS),
        help="named set of arguments; arguments on the command line override it",
    )


def expand(words: Sequence[str]) -> list[str]:
    """Insert the arguments of the preset before those of the command line, which override them."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--preset")
    try:
        options, _ = finder.parse_known_args(list(words))
    # The full parser reports the error.
    except argparse.ArgumentError:
        return list(words)
    return [*PRESETS.get(options.preset or "", "").split(), *words]
