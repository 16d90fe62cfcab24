"""Versions of PyTorch, CUDA, cuDNN and NCCL; the differences of two environments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orchestrator import environments


def make(**fields: object) -> environments.Environment:
    return environments.Environment(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("packages", "variables", "versions"),
    [
        ({}, {}, {}),
        # The wheels of PyPI for CUDA 12 and for CUDA 13.
        (
            {
                "torch": "2.6.0",
                "nvidia-cuda-runtime-cu12": "12.4.127",
                "nvidia-cudnn-cu12": "9.1.0.70",
                "nvidia-nccl-cu12": "2.21.5",
            },
            {"CUDA_VERSION": "12.2"},
            {"pytorch": "2.6.0", "cuda": "12.4.127", "cudnn": "9.1.0.70", "nccl": "2.21.5"},
        ),
        (
            {"torch": "2.15.0", "nvidia-cuda-runtime": "13.2.86", "nvidia-nccl-cu13": "2.30.7"},
            {},
            {"pytorch": "2.15.0", "cuda": "13.2.86", "nccl": "2.30.7"},
        ),
        # Wheels of PyTorch's own index.
        ({"torch": "2.6.0+cu124"}, {}, {"pytorch": "2.6.0+cu124", "cuda": "12.4"}),
        ({"torch": "1.13.1+cu116"}, {}, {"pytorch": "1.13.1+cu116", "cuda": "11.6"}),
        ({"torch": "2.6.0+cpu"}, {}, {"pytorch": "2.6.0+cpu"}),
        ({"torch": "2.6.0+rocm6.2"}, {}, {"pytorch": "2.6.0+rocm6.2"}),
        # An image of NVIDIA.
        (
            {"torch": "2.6.0a0+ecf3bae40a.nv25.1"},
            {"CUDA_VERSION": "12.8.0.038", "NCCL_VERSION": "2.25.1", "CUDNN_VERSION": "9.7.0.66"},
            {
                "pytorch": "2.6.0a0+ecf3bae40a.nv25.1",
                "cuda": "12.8.0.038",
                "cudnn": "9.7.0.66",
                "nccl": "2.25.1",
            },
        ),
    ],
)
def test_versions_of_libraries(
    packages: Mapping[str, str], variables: Mapping[str, str], versions: Mapping[str, str]
) -> None:
    environment = make(packages=packages, variables=variables)
    assert environments.versions(environment) == versions


def test_differences_are_what_differs() -> None:
    first = make(
        python="/a/bin/python3",
        packages={"numpy": "1.26.4", "torch": "2.6.0+cu124", "old": ""},
        modules=("gcc/13", "cuda/12.4"),
        variables={"NCCL_DEBUG": "INFO"},
        driver="550.54.15",
    )
    second = make(
        python="/a/bin/python3",
        packages={"numpy": "2.1.0", "torch": "2.6.0+cu126"},
        modules=("gcc/13",),
        variables={"NCCL_DEBUG": ""},
        driver="550.54.15",
    )
    assert environments.differences(first, second) == [
        ("module", "cuda/12.4", "", None),
        ("variable", "NCCL_DEBUG", "INFO", ""),
        ("package", "numpy", "1.26.4", "2.1.0"),
        ("package", "torch", "2.6.0+cu124", "2.6.0+cu126"),
        ("package", "old", "", None),
    ]
    assert environments.differences(first, first) == []


def test_the_id_of_a_sif_image() -> None:
    number = bytes(range(16))
    head = b"#!/usr/bin/env run-singularity\n\0" + b"SIF_MAGIC\0" + b"01\0" + b"02\0" + number
    assert environments.sif_id(head + bytes(64)) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert environments.sif_id(head[:-1]) is None
    assert environments.sif_id(b"hsqs" + bytes(200)) is None
