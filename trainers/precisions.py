"""Number format of the forward and backward pass; weights are always fp32."""

import contextlib

import torch

from trainers import errors

NAMES = ("auto", "fp32", "tf32", "bf16", "fp16")
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(name: str, device: torch.device) -> str:
    """Return the format to use on this device; raise UsageError if it does not support it."""
    has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bf16" if device.type == "cuda" and has_bf16 else "fp32"
    if name == "bf16" and not has_bf16:
        raise errors.UsageError(
            f"--precision bf16, but {torch.cuda.get_device_name(device)} does not support bf16:"
            " use fp32 or fp16."
        )
    if name == "tf32" and device.type != "cuda":
        raise errors.UsageError("--precision tf32 requires a GPU: use fp32.")
    return name


def autocast(name: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context of forward passes; it can be entered repeatedly."""
    return torch.autocast(
        device.type, dtype=AUTOCAST.get(name, torch.bfloat16), enabled=name in AUTOCAST
    )


def grad_scaler(name: str, device: torch.device) -> torch.amp.GradScaler:
    """Return the loss scaler; enabled only for fp16, in which small gradients underflow."""
    return torch.amp.GradScaler(device.type, enabled=name == "fp16")


def set_fp32_rules(name: str) -> None:
    """Set whether fp32 products may be rounded to tf32; PyTorch's default allows it in cuDNN."""
    allowed = "tf32" if name != "fp32" else "ieee"
    if hasattr(torch.backends, "fp32_precision"):
        # Since torch 2.9, which warns about the older names.
        torch.backends.cuda.matmul.fp32_precision = allowed
        torch.backends.cudnn.conv.fp32_precision = allowed
    else:
        torch.backends.cuda.matmul.allow_tf32 = allowed == "tf32"
        torch.backends.cudnn.allow_tf32 = allowed == "tf32"
