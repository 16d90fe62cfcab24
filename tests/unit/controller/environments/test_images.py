"""Digests of container images: read once, and never for longer than a submission may wait."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import environments, jobs
from orchestrator.controller.environments import images
from orchestrator.controller.session import contexts, stores
from tests import builders

CONTENT = (
    b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0" + bytes(range(16)) + b"x" * 200
)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[contexts.Context]:
    (tmp_path / "state").mkdir(mode=0o700)
    environ = {"ORCHESTRATOR_STATE_DIR": str(tmp_path / "state")}
    with stores.Store(f"sqlite:///{tmp_path}/x.db") as store:
        yield builders.make_context(tmp_path, store, environ=environ)


def describe(
    context: contexts.Context, image: str = "image.sif", runtime: str = "apptainer"
) -> environments.Image:
    container = jobs.Container(runtime=runtime, image=image)  # type: ignore[arg-type]
    return images.describe(context, container, context.folder)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes that were asked for in each read of an image."""
    sizes: list[int] = []
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        sizes.append(size)
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    return sizes


def test_an_image_is_read_once(context: contexts.Context, reads: list[int]) -> None:
    path = context.folder / "image.sif"
    path.write_bytes(CONTENT)
    os.utime(path, (0, 0))
    first = describe(context)
    assert first == environments.Image(
        runtime="apptainer",
        image="image.sif",
        path=str(path),
        size_bytes=len(CONTENT),
        changed_at="1970-01-01T00:00:00+00:00",
        sha256=SHA256,
    )
    reads.clear()
    assert describe(context) == first
    assert not [size for size in reads if size == images._PART_BYTES]
    assert (context.configuration.state_dir / "images.json").stat().st_mode & 0o777 == 0o600


def test_a_changed_image_is_read_again(context: contexts.Context) -> None:
    path = context.folder / "image.sif"
    path.write_bytes(CONTENT)
    describe(context)
    path.write_bytes(CONTENT[:-1] + b"y")
    assert describe(context).sha256 == hashlib.sha256(CONTENT[:-1] + b"y").hexdigest()


def test_a_large_image_is_known_by_its_id(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    (context.folder / "image.sif").write_bytes(CONTENT)
    (context.folder / "image.sqsh").write_bytes(b"hsqs" + CONTENT)
    monkeypatch.setattr(images, "READING_SECONDS", -1.0)
    image = describe(context)
    assert (image.sha256, image.sif_id) == (None, "00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert image.missing == "not read within -1 s"
    assert image.size_bytes == len(CONTENT) and image.changed_at
    other = describe(context, "./image.sqsh", "pyxis")
    assert (other.sha256, other.sif_id, other.missing) == (None, None, "not read within -1 s")
    # The next submission does not try again.
    monkeypatch.setattr(images, "READING_SECONDS", 10.0)
    assert describe(context) == image


@pytest.mark.parametrize(
    ("image", "runtime", "missing"),
    [
        ("nvcr.io#nvidia/pytorch:24.05-py3", "pyxis", "not a file: a registry has it"),
        ("sandbox", "apptainer", "not a file"),
        ("none.sif", "apptainer", "not read: No such file or directory"),
        ("fifo", "apptainer", "not a file"),
    ],
)
def test_images_without_a_digest(
    context: contexts.Context, image: str, runtime: str, missing: str
) -> None:
    (context.folder / "sandbox").mkdir()
    os.mkfifo(context.folder / "fifo")
    assert describe(context, image, runtime) == environments.Image(
        runtime=runtime, image=image, missing=missing
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": {"sha256": 1}}', "[" * 100_000])
def test_a_damaged_cache_is_written_again(context: contexts.Context, text: str) -> None:
    (context.folder / "image.sif").write_bytes(CONTENT)
    (context.configuration.state_dir / "images.json").write_text(text)
    assert describe(context).sha256 == SHA256
    assert SHA256 in (context.configuration.state_dir / "images.json").read_text()


def test_a_cache_that_cannot_be_written_is_no_error(context: contexts.Context) -> None:
    (context.folder / "image.sif").write_bytes(CONTENT)
    (context.configuration.state_dir).rmdir()
    assert describe(context).sha256 == SHA256
