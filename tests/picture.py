"""Runs a command on a terminal and draws what it printed: the pictures in docs/images.

    python -m tests.picture docs/images/status.svg "orchestrator status" -- COMMAND...

The title is what a person would type; COMMAND may reach it in another way, as the jobs of the test
cluster are: docs/images/status.sh creates the picture of their status.
"""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

from rich import console, text

COLUMNS = 112
ROWS = 40


def printed(argv: Sequence[str]) -> str:
    """Return what a command prints on a terminal of 256 colours."""
    pid, terminal = pty.fork()
    if pid == 0:
        termios.tcsetwinsize(1, (ROWS, COLUMNS))
        os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm-256color"})
    blocks = []
    try:
        while block := os.read(terminal, 65536):
            blocks.append(block)
    except OSError:
        # EIO: the command has ended.
        pass
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"{argv[0]} ended with {code}")
    return b"".join(blocks).decode().replace("\r\n", "\n").rstrip("\n")


def svg(title: str, shown: str) -> str:
    """Return the picture of a terminal; it fetches nothing, so its font is the reader's own."""
    recorder = console.Console(record=True, width=COLUMNS, file=io.StringIO())
    recorder.print(text.Text.from_ansi(shown), no_wrap=True, overflow="ignore", crop=False)
    picture = recorder.export_svg(title=title, unique_id="terminal")
    picture = re.sub(r"\s*@font-face \{.*?\n    \}", "", picture, flags=re.DOTALL)
    # Some viewers drop blanks at the start of a text, even those that do not break.
    picture = picture.replace("<text ", '<text xml:space="preserve" ')
    return "".join(f"{line.rstrip()}\n" for line in picture.splitlines())


def main() -> None:
    """Draw what the arguments name."""
    if sys.argv[3:4] != ["--"] or not sys.argv[4:]:
        sys.exit(__doc__)
    picture = svg(sys.argv[2], printed(sys.argv[4:]))
    Path(sys.argv[1]).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
