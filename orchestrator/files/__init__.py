"""Files that another user or a job may have prepared: safe opening, and who can change a path."""

from __future__ import annotations

from orchestrator.files.ownership import (
    Exposure,
    PrivateFolderError,
    exposure,
    make_private_folder,
)
from orchestrator.files.reading import (
    NotRegularFileError,
    TooLargeError,
    open_descriptor,
    open_given,
    open_regular,
    read_bytes,
    read_given,
    read_text,
    time_of,
)

__all__ = [
    "Exposure",
    "NotRegularFileError",
    "PrivateFolderError",
    "TooLargeError",
    "exposure",
    "make_private_folder",
    "open_descriptor",
    "open_given",
    "open_regular",
    "read_bytes",
    "read_given",
    "read_text",
    "time_of",
]
