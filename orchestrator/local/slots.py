"""The slots of this machine: its GPUs, or so many jobs at a time on the CPU."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as `nvidia-smi -L` shows it."""

    index: str
    model: str
    #: "GPU-7b1c6f0e-..."
    uuid: str
    #: UUIDs of its MIG instances; empty where it is not divided
    instances: tuple[str, ...] = ()


def find(environ: Mapping[str, str], *, count: int | None, dev: Path = Path("/dev")) -> Slots:
    """Return the slots; `count`: so many GPUs at the most, or jobs at a time without a GPU."""
    gpus = _gpus(environ, dev)
    if gpus:
        return Slots(devices=tuple(gpus[:count]), are_gpus=True)
    return Slots(devices=tuple(f"{_PLAIN}{n}" for n in range(count or 1)), are_gpus=False)


def is_plain(device: str) -> bool:
    """Return whether this is a slot without a GPU."""
    return device.startswith(_PLAIN)


def parse_gpu_list(text: str) -> list[Gpu]:
    """Return what `nvidia-smi -L` prints, a line a GPU, and behind it one a MIG instance."""
    found: list[Gpu] = []
    for line in text.splitlines():
        if gpu := re.match(r"GPU (\d+): (.*) \(UUID: (\S+)\)", line):
            found.append(Gpu(index=gpu[1], model=gpu[2], uuid=gpu[3]))
        elif (instance := re.match(r"\s+MIG .*\(UUID: (\S+)\)", line)) and found:
            instances = (*found[-1].instances, instance[1])
            found[-1] = dataclasses.replace(found[-1], instances=instances)
    return found


def names(gpus: Sequence[Gpu], visible: str | None, *, in_bus_order: bool) -> list[str]:
    """Return one name a slot for CUDA_VISIBLE_DEVICES, whichever of its names `visible` uses.

    Two shells may call one GPU by its number and by its UUID, and two jobs must not get it.
    `in_bus_order`: CUDA counts as nvidia-smi does, which it does by itself for GPUs of one model
    (CUDA_DEVICE_ORDER, CUDA C++ Programming Guide).
    """
    is_uniform = len({gpu.model for gpu in gpus}) == 1

    def told(gpu: Gpu) -> str:
        return gpu.index if is_uniform else gpu.uuid

    if visible is None:
        return [name for gpu in gpus for name in gpu.instances or (told(gpu),)]
    found = []
    for name in _split(visible):
        if name.isdecimal() and not (is_uniform or in_bus_order):
            found.append(name)
            continue
        for gpu in gpus:
            # A beginning of the UUID will do; a divided GPU is its first instance (MIG User Guide).
            if name.isdecimal() and int(name) == int(gpu.index):
                found.append((*gpu.instances, told(gpu))[0])
            elif name.startswith("GPU-") and gpu.uuid.startswith(name):
                found.append((*gpu.instances, told(gpu))[0])
            found += [
                one for one in gpu.instances if name.startswith("MIG-") and one.startswith(name)
            ]
    return list(dict.fromkeys(found))


def _split(visible: str) -> list[str]:
    # CUDA stops at the first name that is none ("-1", or nothing at all).
    words = [name.strip() for name in visible.split(",")]
    bad = next((n for n, name in enumerate(words) if name in ("", "-1")), len(words))
    return list(dict.fromkeys(words[:bad]))


def _gpus(environ: Mapping[str, str], dev: Path) -> list[str]:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _split(visible):
        return []
    listed = _listed(environ)
    if listed:
        in_bus_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        return names(listed, visible, in_bus_order=in_bus_order)
    if visible is not None:
        return _split(visible)
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return [str(number) for number in sorted(int(name[1]) for name in found if name)]


def _listed(environ: Mapping[str, str]) -> list[Gpu]:
    """Return what nvidia-smi lists; nothing where there is none, or it does not answer."""
    command = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpu_list(done.stdout.decode(errors="replace")) if done.returncode == 0 else []
