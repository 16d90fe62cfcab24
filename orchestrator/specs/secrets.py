"""Checks of a secrets file; templates/environment/secrets.sh.j2 repeats them in the job.

Messages never contain its text, only line numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator import files
from orchestrator.toml import schema

#: The kernel accepts at most 6 MiB of arguments and variables, and 128 KiB for one variable.
_MAX_BYTES = 1024 * 1024
_ASSIGNMENT = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=")


def problems(path: Path, name: str) -> Iterator[str]:
    """Yield what would end the job before its start. name: the path as the user wrote it."""
    name = schema.unquoted(name)
    try:
        opened = files.open_regular(path)
    except ValueError:
        # A NUL character: reported with the other forbidden characters.
        return
    except (FileNotFoundError, files.NotRegularFileError):
        yield f"no such file: {name}"
        return
    except OSError as error:
        yield f"{name} cannot be read: {error.strerror}"
        return
    with opened as file:
        mode = os.fstat(file.fileno()).st_mode
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        yield f"{name} is larger than {_MAX_BYTES} bytes"
        return
    if mode & 0o077:
        yield f"{name} can be read by other users: run chmod 600"
    for number, line in enumerate(content.split(b"\n"), 1):
        if line and not line.startswith(b"#") and not _ASSIGNMENT.match(line):
            yield f"{name}, line {number}: write NAME=VALUE"
