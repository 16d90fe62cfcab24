"""What of the command line decides the numbers of a run, to compare a checkpoint with."""

import argparse
from collections.abc import Mapping
from typing import Any

#: Arguments that a run can't be gone on with when they change.
DECISIVE = (
    "dataset",
    "no_augmentation",
    "model",
    "seed",
    "optimizer",
    "base_lr",
    "lr_scaling",
    "lr_base_batch_size",
    "schedule",
    "warmup_epochs",
    "warmup_steps",
    "momentum",
    "nesterov",
    "weight_decay",
    "label_smoothing",
    "max_gradient_norm",
)

#: Arguments that decide only with some schedules.
OF_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": (),
    "cosine": ("epochs", "min_lr"),
    "linear": ("epochs", "min_lr"),
    "step": ("lr_gamma", "lr_step_epochs"),
}

#: What may change; the numbers then agree to rounding only.
HARMLESS = ("mode", "world_size", "device", "torch", "cuda", "nccl")


def read(
    wanted: argparse.Namespace, *, precision: str, batch_size: int, fingerprint: str
) -> dict[str, Any]:
    """Return what a checkpoint of this run must agree with; plain values only."""
    names = DECISIVE + OF_SCHEDULES[wanted.schedule]
    return {
        **{name: getattr(wanted, name) for name in names},
        "precision": precision,
        "batch_size": batch_size,
        "data_fingerprint": fingerprint,
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what differs, in the words of the command line: `--seed 0, now 1`."""
    return [
        f"--{name.replace('_', '-')} {saved.get(name)}, now {now.get(name)}"
        for name in sorted(saved.keys() | now.keys())
        if saved.get(name) != now.get(name)
    ]


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what differs of the surroundings: `world_size 2, now 1`."""
    return [
        f"{name} {saved.get(name)}, now {now.get(name)}"
        for name in HARMLESS
        if saved.get(name) != now.get(name)
    ]
