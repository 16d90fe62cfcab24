"""Python tracebacks in a log, also of several ranks at the same time. Pure.

Source: traceback.py of CPython 3.8 to 3.14, and what torch, multiprocessing and rich add to it.
"""

from __future__ import annotations

import dataclasses
import re

from orchestrator.diagnosis import records

_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<path>[^"]{1,1000})", line (?P<line>\d{1,9})(?:, in .{1,200})?$')
# rich draws a box around the frames; the exception is below it.
_BOX = ("\u2502", "\u256d", "\u2570")
_BOX_HEAD = "Traceback (most recent call last) \u2500"
_BOX_FRAME = re.compile(r"\u2502 (?P<path>[^ :]{1,500}):(?P<line>\d{1,9}) in \S{1,200}")
_ERROR_NAME = (
    r"[A-Za-z_][\w.]{0,200}?(?:Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Empty|Full"
    r"|Warning|Iteration|NotFound|Group)"
)
_EXCEPTION = re.compile(rf"(?P<name>{_ERROR_NAME})(?:: ?(?P<message>.*))?$", re.DOTALL)
# Other names count only directly after a frame.
_ANY_NAME = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200})(?:: (?P<message>.*))?$", re.DOTALL)
_UNDERLINE = re.compile(r"\s+[\^~ -]+$")
#: Lines of other processes that may be between two lines of a traceback.
_MAX_FOREIGN_LINES = 400
#: The traceback of a recursion has 1000 frames and more; the middle is dropped.
_MAX_LINES = 120


@dataclasses.dataclass
class _Open:
    first_line: int
    rank: int | None
    lines: list[str]
    frames: list[records.Frame] = dataclasses.field(default_factory=list)
    #: whether the previous line of the stream belonged to it
    inside: bool = True
    foreign_lines: int = 0


class Tracebacks:
    """Collects the tracebacks of one file, separately for each prefix of a launcher."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: dict[str, _Open] = {}

    @property
    def pending(self) -> bool:
        return bool(self._open)

    def add(
        self, text: str, *, number: int, stream: str, rank: int | None
    ) -> tuple[bool, records.Traceback | None]:
        """Read a line without its prefix.

        Returns whether it is part of a traceback, and the traceback if the line completes it.
        """
        if text.rstrip().endswith(_HEAD) or _BOX_HEAD in text:
            self._open[stream] = _Open(first_line=number, rank=rank, lines=[text.strip()])
            return True, None
        current = self._open.get(stream)
        if current is None:
            return False, None
        if self._belongs(text, current):
            return True, None
        exception = _EXCEPTION.match(text) or (_ANY_NAME.match(text) if current.inside else None)
        if exception is None or not current.frames:
            current.inside = False
            current.foreign_lines += 1
            if current.foreign_lines > _MAX_FOREIGN_LINES:
                del self._open[stream]
            return False, None
        del self._open[stream]
        _keep(current, text)
        return True, records.Traceback(
            path=self._path,
            first_line=current.first_line,
            last_line=number,
            exception=exception["name"],
            message=(exception["message"] or "").strip(),
            frames=tuple(current.frames),
            rank=current.rank,
            lines=tuple(current.lines),
        )

    def _belongs(self, text: str, current: _Open) -> bool:
        frame = _FRAME.match(text) or _BOX_FRAME.match(text)
        if frame is not None:
            current.frames.append(records.Frame(path=frame["path"], line=int(frame["line"])))
        elif text[:1] in _BOX:
            pass
        elif text[:1] not in (" ", "\t") or not (current.inside or current.frames):
            return False
        elif current.frames and not current.frames[-1].code and not _UNDERLINE.match(text):
            current.frames[-1] = dataclasses.replace(current.frames[-1], code=text.strip()[:300])
        if len(current.frames) > _MAX_LINES:
            del current.frames[_MAX_LINES // 2]
        current.inside = True
        _keep(current, text)
        return True


def _keep(current: _Open, text: str) -> None:
    current.lines.append(text.rstrip()[:500])
    if len(current.lines) > _MAX_LINES:
        del current.lines[_MAX_LINES // 2]
