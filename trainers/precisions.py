"""In which number format forward and backward compute; weights are fp32 always."""

import contextlib

import torch

from trainers import errors

NAMES = ("auto", "fp32", "tf32", "bf16", "fp16")
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(name: str, device: torch.device) -> str:
    """Return what is used on this device; raise UsageError where it has no such format."""
    has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bf16" if device.type == "cuda" and has_bf16 else "fp32"
    if name == "bf16" and not has_bf16:
        raise errors.UsageError(
            f"--precision bf16, but {torch.cuda.get_device_name(device)} has no bf16: use fp32"
            " or fp16."
        )
    if name == "tf32" and device.type != "cuda":
        raise errors.UsageError("--precision tf32 is a format of GPUs: use fp32.")
    return name


def autocast(name: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context of forward passes; it can be entered again and again."""
    return torch.autocast(
        device.type, dtype=AUTOCAST.get(name, torch.bfloat16), enabled=name in AUTOCAST
    )


def grad_scaler(name: str, device: torch.device) -> torch.amp.GradScaler:
    """Return the scaler of losses: small gradients are lost in fp16, and in fp16 only."""
    return torch.amp.GradScaler(device.type, enabled=name == "fp16")


def set_fp32_rules(name: str) -> None:
    """Say whether fp32 products may be rounded to tf32; without this convolutions are."""
    allowed = "tf32" if name != "fp32" else "ieee"
    if hasattr(torch.backends, "fp32_precision"):
        # Since torch 2.9; from then on the older names warn.
        torch.backends.cuda.matmul.fp32_precision = allowed
        torch.backends.cudnn.conv.fp32_precision = allowed
    else:
        torch.backends.cuda.matmul.allow_tf32 = allowed == "tf32"
        torch.backends.cudnn.allow_tf32 = allowed == "tf32"
