"""Settings that affect the results of a run; those of a checkpoint must match."""

import argparse
from collections.abc import Mapping
from typing import Any

#: Arguments that must be the same to resume a run.
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

#: Arguments that must be the same only with some learning rate schedules.
OF_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": (),
    "cosine": ("epochs", "min_lr"),
    "linear": ("epochs", "min_lr"),
    "step": ("lr_gamma", "lr_step_epochs"),
}

#: What may differ; the results then agree only up to rounding.
HARMLESS = ("mode", "world_size", "device", "torch", "cuda", "nccl")


def read(
    wanted: argparse.Namespace, *, precision: str, batch_size: int, fingerprint: str
) -> dict[str, Any]:
    """Return the settings that a checkpoint of this run must match; plain values only."""
    names = DECISIVE + OF_SCHEDULES[wanted.schedule]
    return {
        **{name: getattr(wanted, name) for name in names},
        "precision": precision,
        "batch_size": batch_size,
        "data_fingerprint": fingerprint,
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differing settings as options: `--seed 0, now 1`."""
    return [
        f"--{name.replace('_', '-')} {saved.get(name)}, now {now.get(name)}"
        for name in sorted(saved.keys() | now.keys())
        if saved.get(name) != now.get(name)
    ]


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of the environment: `world_size 2, now 1`."""
    return [
        f"{name} {saved.get(name)}, now {now.get(name)}"
        for name in HARMLESS
        if saved.get(name) != now.get(name)
    ]
