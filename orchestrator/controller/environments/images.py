"""The container image of a job at its submission: a digest, cached for each version of the file."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from orchestrator import environments, files, jobs
from orchestrator.controller.session import contexts

#: A submission does not wait longer for the digest: 5 GiB at 2 s of CPU time per GiB (measured).
READING_SECONDS = 10.0
_PART_BYTES = 4 * 1024 * 1024
#: Names of the last images that were read.
_MAX_CACHED = 500
_CACHE_LIMIT_BYTES = 1024 * 1024


def describe(
    context: contexts.Context, container: jobs.Container, folder: Path
) -> environments.Image:
    """Return the identity of a job's image; `folder`: where relative paths begin.

    An image that cannot be read, a folder and a registry reference have no digest.
    """
    image = environments.Image(runtime=container.runtime, image=container.image or "")
    if container.image_path is None:
        reason = "not a file: a registry has it"
        if container.runtime != "pyxis":
            reason = f"not a file: {container.runtime} knows it by name"
        return dataclasses.replace(image, missing=reason)
    path = folder / image.image
    try:
        opened = files.open_regular(path)
    except files.NotRegularFileError:
        return dataclasses.replace(image, missing="not a file")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return dataclasses.replace(image, missing=f"not read: {reason}")
    with opened as file:
        status = os.fstat(file.fileno())
        changed_at = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
        image = dataclasses.replace(
            image,
            path=str(path.resolve()),
            size_bytes=status.st_size,
            changed_at=changed_at.isoformat(timespec="seconds"),
        )
        version = json.dumps(
            [image.path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
        )
        cache_path = context.configuration.state_dir / "images.json"
        cache = _read_cache(cache_path)
        if version not in cache:
            with context.reporter.activity("Reading the container image (SHA-256)"):
                cache[version] = _identity(file.fileno())
            newest = dict(list(cache.items())[-_MAX_CACHED:])
            # Without the file the next submission reads the image again.
            with contextlib.suppress(OSError):
                files.replace(cache_path, json.dumps(newest, indent=1).encode())
        identity: dict[str, Any] = {**cache[version]}
        return dataclasses.replace(image, **identity)


def _read_cache(path: Path) -> dict[str, dict[str, str]]:
    """Return by version of a file the fields of environments.Image that its content gives."""
    try:
        cache = json.loads(files.read_bytes(path, limit_bytes=_CACHE_LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    names = {"sha256", "sif_id", "missing"}
    if not isinstance(cache, dict):
        return {}
    return {
        version: fields
        for version, fields in cache.items()
        if isinstance(fields, dict)
        and fields.keys() <= names
        and all(isinstance(value, str) for value in fields.values())
    }


def _identity(descriptor: int) -> dict[str, str]:
    """Return the digest of an open image, or why there is none, and the ID of a SIF file."""
    digest = hashlib.sha256()
    deadline = time.monotonic() + READING_SECONDS
    head = os.pread(descriptor, environments.SIF_HEADER_BYTES, 0)
    while part := os.read(descriptor, _PART_BYTES):
        digest.update(part)
        if time.monotonic() > deadline:
            break
    else:
        return {"sha256": digest.hexdigest()}
    number = environments.sif_id(head)
    missing = f"not read within {READING_SECONDS:.0f} s"
    return {"missing": missing} | ({"sif_id": number} if number else {})
