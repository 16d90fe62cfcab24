"""Versions of PyTorch, CUDA, cuDNN and NCCL, from package names and variables."""

from __future__ import annotations

import re

from orchestrator.environments import records

#: Packages of NVIDIA, of which the suffix is the major version of CUDA (none since CUDA 13).
_PACKAGES = {
    "cuda": r"nvidia-cuda-runtime(?:-cu[0-9]+)?|cuda-runtime|cudatoolkit",
    "cudnn": r"nvidia-cudnn(?:-cu[0-9]+)?|cudnn",
    "nccl": r"nvidia-nccl(?:-cu[0-9]+)?|nccl",
}
#: Of NVIDIA's images, which lack these packages.
_VARIABLES = {"cuda": "CUDA_VERSION", "cudnn": "CUDNN_VERSION", "nccl": "NCCL_VERSION"}
#: The end of a version of PyTorch: +cu124 is CUDA 12.4, and +rocm6.2 is none.
_LOCAL = re.compile(r"\+cu([0-9]{2,})([0-9])")


def versions(environment: records.Environment) -> dict[str, str]:
    """Return the known versions by name: `pytorch`, `cuda`, `cudnn`, `nccl`, in this order.

    The versions are those of the packages that PyTorch loads, not of a CUDA module on the host.
    """
    found = {"pytorch": environment.packages.get("torch", "")}
    for name, pattern in _PACKAGES.items():
        of_packages = (
            version
            for package, version in environment.packages.items()
            if version and re.fullmatch(pattern, package)
        )
        found[name] = next(of_packages, "")
    if not found["cuda"] and (local := _LOCAL.search(found["pytorch"])):
        found["cuda"] = f"{local[1]}.{local[2]}"
    for name, variable in _VARIABLES.items():
        found[name] = found[name] or environment.variables.get(variable, "")
    return {name: version for name, version in found.items() if version}
