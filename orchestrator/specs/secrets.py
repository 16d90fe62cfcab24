"""What is wrong with a secrets file; templates/environment/secrets.sh.j2 asks the same in the job.

Its text is read and never told: a message names the line's number alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator import shapes

_NAMED = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=")


def problems(path: Path, shown: str) -> Iterator[str]:
    """Give what would end the job before it began; `shown` is the path as the user wrote it."""
    name = shapes.shown(shown)[1:-1]
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        # A NUL character: told with the other hostile characters.
        return
    except FileNotFoundError:
        yield f"no such file: {name}"
        return
    except OSError as error:
        yield f"{name} cannot be read: {error.strerror}"
        return
    with open(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            yield f"no such file: {name}"
            return
        if mode & 0o077:
            yield f"{name} is open to others: chmod 600 it"
        for number, line in enumerate(file, 1):
            text = line.rstrip(b"\n")
            if text and not text.startswith(b"#") and not _NAMED.match(text):
                yield f"{name}, line {number}: write NAME=VALUE"
