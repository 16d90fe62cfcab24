"""Architectures in the first bytes of images and programs."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from orchestrator import images
from orchestrator.controller.images import architectures


def sif(number: bytes) -> bytes:
    return b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\0" + number + b"\0" + b"x" * 100


def elf(order: int, machine: bytes) -> bytes:
    return b"\x7fELF\x02" + bytes([order]) + b"\1" + b"\0" * 11 + machine + b"\0" * 40


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (sif(b"02"), "x86_64"),
        (sif(b"04"), "aarch64"),
        (sif(b"00"), None),
        (elf(1, b"\x3e\0"), "x86_64"),
        (elf(1, b"\xb7\0"), "aarch64"),
        (elf(1, b"\x15\0"), "ppc64le"),
        (elf(2, b"\0\x15"), "ppc64"),
        (elf(7, b"\x3e\0"), None),
        (elf(1, b"\x3e\0")[:19], None),
        (b"hsqs" + b"\0" * 96, None),
        (b"", None),
    ],
)
def test_the_architecture_of_a_head(head: bytes, name: str | None) -> None:
    assert images.architecture(head) == name


def test_a_folder_has_that_of_its_programs(tmp_path: Path) -> None:
    assert architectures.of_image(Path(sys.executable)) == platform.machine()
    assert architectures.of_image(tmp_path / "none") is None
    programs = tmp_path / "image" / "usr" / "bin"
    programs.mkdir(parents=True)
    # A link to a program of this host says nothing about the image.
    (programs / "env").symlink_to(sys.executable)
    assert architectures.of_image(tmp_path / "image") is None
    (programs / "tool").write_bytes(elf(1, b"\xb7\0"))
    (programs / "bash").symlink_to("tool")
    assert architectures.of_image(tmp_path / "image") == "aarch64"


def test_older_programs_and_unknown_nodes_fit() -> None:
    assert images.fits("i686", "x86_64") and images.fits("aarch64", "")
    assert not images.fits("x86_64", "aarch64") and not images.fits("ppc64", "ppc64le")
