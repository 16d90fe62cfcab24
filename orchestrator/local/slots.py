"""The slots of this machine: its GPUs, or so many jobs at a time on the CPU."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: nvidia-smi with a hung driver never answers.
_TIMEOUT_SECONDS = 20.0
_PLAIN = "slot"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slots:
    """What jobs can get at a time."""

    #: as CUDA_VISIBLE_DEVICES names them, or names of our own on a machine without GPUs
    devices: tuple[str, ...]
    are_gpus: bool


def find(environ: Mapping[str, str], *, count: int | None, dev: Path = Path("/dev")) -> Slots:
    """Return the slots; `count`: so many GPUs at the most, or jobs at a time without a GPU."""
    gpus = _gpus(environ, dev)
    if gpus:
        return Slots(devices=tuple(gpus[:count]), are_gpus=True)
    return Slots(devices=tuple(f"{_PLAIN}{n}" for n in range(count or 1)), are_gpus=False)


def is_plain(device: str) -> bool:
    """Return whether this is a slot without a GPU."""
    return device.startswith(_PLAIN)


def parse_gpu_list(text: str) -> list[str]:
    """Return the indices in what `nvidia-smi -L` prints: "GPU 0: NVIDIA H100 ... (UUID: ...)"."""
    return re.findall(r"^GPU (\d+):", text, re.MULTILINE)


def _gpus(environ: Mapping[str, str], dev: Path) -> list[str]:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # CUDA stops at the first name that is none ("-1", or nothing at all).
        names = [name.strip() for name in visible.split(",")]
        bad = next((n for n, name in enumerate(names) if name in ("", "-1")), len(names))
        return list(dict.fromkeys(names[:bad]))
    command = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
    if command is not None:
        try:
            done = subprocess.run(
                [command, "-L"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is not None and done.returncode == 0:
            return parse_gpu_list(done.stdout.decode(errors="replace"))
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return [str(number) for number in sorted(int(name[1]) for name in found if name)]
