"""Lines of a log -> Python tracebacks, those of several ranks at once. Pure.

Source: traceback.py of CPython 3.8 to 3.14 and what torch, multiprocessing and rich put around.
"""

from __future__ import annotations

import dataclasses
import re

from orchestrator.diagnosis import records

_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(
    r'\s*File "(?P<path>[^"]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,200}))?$'
)
# rich draws a box around its tracebacks; the exception stands below it.
_BOX = ("\u2502", "\u256d", "\u2570")
_BOX_HEAD = "Traceback (most recent call last) \u2500"
_BOX_FRAME = re.compile(
    r"\u2502 (?P<path>[^ :]{1,500}):(?P<line>\d{1,9}) in (?P<function>\S{1,200})"
)
_STRONG = (
    r"[A-Za-z_][\w.]{0,200}?(?:Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Empty|Full"
    r"|Warning|Iteration|NotFound|Group)"
)
_EXCEPTION = re.compile(rf"(?P<name>{_STRONG})(?:: ?(?P<message>.*))?$", re.DOTALL)
# Names that end otherwise, which only count right behind a frame.
_ANY = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200})(?:: (?P<message>.*))?$", re.DOTALL)
_MARKS = re.compile(r"\s+[\^~ -]+$")
#: Lines of others that may stand between two of a traceback.
_PATIENCE_LINES = 400
#: A recursion's traceback has 1000 frames and more; its ends are what is read.
_KEPT_LINES = 120


@dataclasses.dataclass
class _Open:
    first_line: int
    rank: int | None
    lines: list[str]
    frames: list[records.Frame] = dataclasses.field(default_factory=list)
    #: the line before belonged to it
    inside: bool = True
    foreign: int = 0


class Tracebacks:
    """Collects the tracebacks of one file, each by what its rank's lines begin with."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: dict[str, _Open] = {}

    @property
    def pending(self) -> bool:
        """Whether a traceback has begun that has not ended."""
        return bool(self._open)

    def add(
        self, text: str, *, number: int, stream: str, rank: int | None
    ) -> tuple[bool, records.Traceback | None]:
        """Take a line without its prefix: whether it is a traceback's own, and one that it ends."""
        if text.rstrip().endswith(_HEAD) or _BOX_HEAD in text:
            self._open[stream] = _Open(first_line=number, rank=rank, lines=[text.strip()])
            return True, None
        current = self._open.get(stream)
        if current is None:
            return False, None
        if self._belongs(text, current):
            return True, None
        found = _EXCEPTION.match(text) or (_ANY.match(text) if current.inside else None)
        if found is None or not current.frames:
            current.inside = False
            current.foreign += 1
            if current.foreign > _PATIENCE_LINES:
                del self._open[stream]
            return False, None
        del self._open[stream]
        _keep(current, text)
        return True, records.Traceback(
            path=self._path,
            first_line=current.first_line,
            last_line=number,
            exception=found["name"],
            message=(found["message"] or "").strip(),
            frames=tuple(current.frames),
            rank=current.rank,
            lines=tuple(current.lines),
        )

    def _belongs(self, text: str, current: _Open) -> bool:
        frame = _FRAME.match(text) or _BOX_FRAME.match(text)
        if frame is not None:
            current.frames.append(
                records.Frame(
                    path=frame["path"],
                    line=int(frame["line"]),
                    function=frame["function"] or "",
                )
            )
        elif text[:1] in _BOX:
            pass
        elif text[:1] not in (" ", "\t") or not (current.inside or current.frames):
            return False
        elif current.frames and not current.frames[-1].code and not _MARKS.match(text):
            last = dataclasses.replace(current.frames[-1], code=text.strip()[:300])
            current.frames[-1] = last
        if len(current.frames) > _KEPT_LINES:
            del current.frames[_KEPT_LINES // 2]
        current.inside = True
        _keep(current, text)
        return True


def _keep(current: _Open, text: str) -> None:
    current.lines.append(text.rstrip()[:500])
    if len(current.lines) > _KEPT_LINES:
        del current.lines[_KEPT_LINES // 2]
