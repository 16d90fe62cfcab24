"""What is wrong with a secrets file; templates/environment/secrets.sh.j2 asks the same in the job.

Its text is read and never told: a message names the line's number alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator import files
from orchestrator.toml import schema

#: The kernel takes 6 MiB of arguments and variables at most, and one variable of 128 KiB.
_LIMIT_BYTES = 1024 * 1024
_NAMED = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=")


def problems(path: Path, shown: str) -> Iterator[str]:
    """Give what would end the job before it began; `shown` is the path as the user wrote it."""
    name = schema.as_toml(shown)[1:-1]
    try:
        opened = files.open_regular(path)
    except ValueError:
        # A NUL character: told with the other hostile characters.
        return
    except (FileNotFoundError, files.NotRegularFileError):
        yield f"no such file: {name}"
        return
    except OSError as error:
        yield f"{name} cannot be read: {error.strerror}"
        return
    with opened as file:
        mode = os.fstat(file.fileno()).st_mode
        content = file.read(_LIMIT_BYTES + 1)
    if len(content) > _LIMIT_BYTES:
        yield f"{name} is larger than {_LIMIT_BYTES} bytes"
        return
    if mode & 0o077:
        yield f"{name} is open to others: chmod 600 it"
    for number, text in enumerate(content.split(b"\n"), 1):
        if text and not text.startswith(b"#") and not _NAMED.match(text):
            yield f"{name}, line {number}: write NAME=VALUE"
