"""The identity of a container image."""

from __future__ import annotations

import dataclasses
import uuid

#: Bytes at the start of an image that `sif_id` reads.
SIF_HEADER_BYTES = 128
# The format: a launch script of 32 bytes, magic, version (3), architecture (3), ID
# (github.com/apptainer/sif, pkg/sif/sif.go).
_MAGIC = b"SIF_MAGIC\0"
_MAGIC_AT = 32
_ID_AT = _MAGIC_AT + len(_MAGIC) + 3 + 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """The container image of a job, as it was at the submission."""

    runtime: str
    #: as the spec names it
    image: str
    #: None: a registry reference, a folder, or a file that could not be read
    path: str | None = None
    size_bytes: int | None = None
    #: time of the last change, ISO 8601 in UTC
    changed_at: str | None = None
    #: of the content
    sha256: str | None = None
    #: of a SIF file without `sha256`: two images never have the same, but a change may keep it
    sif_id: str | None = None
    #: why there is no `sha256`
    missing: str | None = None


def sif_id(head: bytes) -> str | None:
    """Return the ID in the header of a SIF image; None for other files."""
    number = head[_ID_AT : _ID_AT + 16]
    if head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC or len(number) < 16:
        return None
    return str(uuid.UUID(bytes=number))
