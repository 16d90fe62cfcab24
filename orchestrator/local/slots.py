"""The slots of this machine: its GPUs, or a number of jobs at a time without GPUs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: nvidia-smi never ends if the driver hangs.
_TIMEOUT_SECONDS = 20.0
_PLAIN = "slot"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slots:
    """What jobs can get at a time."""

    #: names for CUDA_VISIBLE_DEVICES, or `slot0`, `slot1` on a machine without GPUs
    devices: tuple[str, ...]
    are_gpus: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU in the output of `nvidia-smi -L`."""

    index: str
    model: str
    #: "GPU-7b1c6f0e-..."
    uuid: str
    #: UUIDs of its MIG instances
    instances: tuple[str, ...] = ()


def find(environ: Mapping[str, str], *, count: int | None, dev: Path = Path("/dev")) -> Slots:
    """Return the slots; `count`: the maximum number of GPUs, or of jobs at a time without GPU."""
    if gpus := _gpus(environ, dev):
        return Slots(devices=tuple(gpus[:count]), are_gpus=True)
    return Slots(devices=tuple(f"{_PLAIN}{n}" for n in range(count or 1)), are_gpus=False)


def is_plain(device: str) -> bool:
    """Return whether this is a slot without a GPU."""
    return device.startswith(_PLAIN)


def parse_gpu_list(text: str) -> list[Gpu]:
    """Parse `nvidia-smi -L`: one line per GPU, followed by one per MIG instance."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if gpu := re.match(r"GPU (\d+): (.*) \(UUID: (\S+)\)", line):
            gpus.append(Gpu(index=gpu[1], model=gpu[2], uuid=gpu[3]))
        elif (instance := re.match(r"\s+MIG .*\(UUID: (\S+)\)", line)) and gpus:
            instances = (*gpus[-1].instances, instance[1])
            gpus[-1] = dataclasses.replace(gpus[-1], instances=instances)
    return gpus


def device_names(gpus: Sequence[Gpu], visible: str | None, *, in_bus_order: bool) -> list[str]:
    """Return one name per slot for CUDA_VISIBLE_DEVICES.

    Two shells may name one GPU by its number and by its UUID, and two jobs must not get it.
    `in_bus_order`: CUDA numbers GPUs like nvidia-smi. It always does for GPUs of one model
    (CUDA_DEVICE_ORDER, CUDA C++ Programming Guide).
    """
    is_uniform = len({gpu.model for gpu in gpus}) == 1
    # A divided GPU is its first instance (MIG User Guide).
    slots = [(gpu, gpu.instances or (gpu.index if is_uniform else gpu.uuid,)) for gpu in gpus]
    if visible is None:
        return [name for _, names in slots for name in names]
    devices: list[str] = []
    for name in _split(visible):
        if name.isdecimal() and not (is_uniform or in_bus_order):
            devices.append(name)
            continue
        for gpu, names in slots:
            # The beginning of a UUID is enough.
            is_number = name.isdecimal() and int(name) == int(gpu.index)
            if is_number or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
                devices.append(names[0])
            elif name.startswith("MIG-"):
                devices += [instance for instance in gpu.instances if instance.startswith(name)]
    return list(dict.fromkeys(devices))


def _split(visible: str) -> list[str]:
    # CUDA stops at the first invalid name ("-1" or an empty one).
    names = [name.strip() for name in visible.split(",")]
    end = next((n for n, name in enumerate(names) if name in ("", "-1")), len(names))
    return list(dict.fromkeys(names[:end]))


def _gpus(environ: Mapping[str, str], dev: Path) -> list[str]:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _split(visible):
        return []
    if gpus := _nvidia_smi(environ):
        in_bus_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        return device_names(gpus, visible, in_bus_order=in_bus_order)
    if visible is not None:
        return _split(visible)
    matches = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return [str(number) for number in sorted(int(match[1]) for match in matches if match)]


def _nvidia_smi(environ: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that nvidia-smi lists; none if it is missing or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpu_list(done.stdout)
