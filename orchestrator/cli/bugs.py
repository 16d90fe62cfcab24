"""An exception that nobody expected: one line for the user, and the traceback in a file."""

from __future__ import annotations

import contextlib
import datetime
import os
import traceback
from collections.abc import Mapping
from pathlib import Path

from orchestrator.text import escaping

#: EX_SOFTWARE of sysexits.h, an internal software error.
EXIT_CODE = 70
#: Set: the traceback is shown, and not written to a file.
VARIABLE = "ORCHESTRATOR_TRACEBACK"
FOLDER = "tracebacks"
#: The newest so many are kept: a controller may meet the same bug each minute.
_KEPT = 10
_SHOWN_CHARACTERS = 500
_LARGEST_CHARACTERS = 256 * 1024


def report(error: BaseException, environ: Mapping[str, str]) -> str:
    """Return the message for an unexpected exception, after its traceback was written."""
    text = "".join(traceback.format_exception(error))
    what = escaping.visible(f"{type(error).__name__}: {error}".removesuffix(": "))
    if len(what) > _SHOWN_CHARACTERS:
        what = what[: _SHOWN_CHARACTERS - 3] + "..."
    head = f"Error: {what}. This is a bug in orchestrator"
    if environ.get(VARIABLE):
        shown = "\n".join(escaping.visible(line) for line in text.rstrip("\n").split("\n"))
        return f"{shown}\n{head}."
    try:
        path = _write(text, environ)
    # Whatever is wrong with the folder, the first error is the one to be shown.
    except Exception:
        return f"{head}; {VARIABLE}=1 shows the traceback."
    return f"{head}; its traceback is in {escaping.visible(str(path))}"


def _write(text: str, environ: Mapping[str, str]) -> Path:
    from orchestrator import files
    from orchestrator.config import paths

    # The configuration may be what cannot be read: only the environment decides.
    folder = paths.xdg(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator" / FOLDER
    files.make_private_folder(folder)
    now = datetime.datetime.now(datetime.UTC)
    path = folder / f"{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(text[-_LARGEST_CHARACTERS:])
    for old in sorted(folder.glob("*.txt"))[:-_KEPT]:
        # Another process that failed at the same moment may have removed it.
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    return path
