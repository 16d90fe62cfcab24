"""What torchrun reports about failed ranks: its summary in the log, and its error files. Pure.

Source: torch/distributed/elastic/multiprocessing/errors of torch 1.9 to 2.13. torchrun prints one
summary per node, in which all failures of the node are listed and the one that it observed first is
called the root cause. A rank whose main function is decorated with @record writes its exception to
an error file, a JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence

ROOT = "Root Cause (first observed failure)"
#: Headings; torch 1.9 and 1.10 have "Root Cause" and "Other Failures".
_HEADING = re.compile(
    r"(?P<root>Root Cause(?: \(first observed failure\))?:)\s*$|(?:Other )?Failures:\s*$"
)
_ENTRY = re.compile(r"\[\d{1,6}\]:\s*$")
_FIELD = re.compile(
    r"  (?P<key>time|host|rank|exitcode|error_file|traceback|msg) {0,10}: (?P<value>.*)"
)
_BORDER = re.compile(r"[=*]{5,}\s*$|-{5,}\s*$|  <NO_OTHER_FAILURES>|\s*$")
_NUMBER = re.compile(r"-?\d{1,9}")
#: Lines of other processes that may be between two lines of a summary.
_MAX_FOREIGN_LINES = 50
_MAX_TRACEBACK_LINES = 1000


@dataclasses.dataclass
class Failure:
    """A failed rank in a summary."""

    #: number of the heading of the root cause; of another failure, number of its first line
    line: int
    is_root: bool
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    #: number and text of each line of its traceback
    traceback: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def rank(self) -> int | None:
        return _integer(self.fields.get("rank", ""))

    @property
    def exit_code(self) -> int:
        """The exit code; negative: the signal that ended the rank."""
        return _integer(self.fields.get("exitcode", "")) or 0

    @property
    def host(self) -> str:
        return self.fields.get("host", "")

    @property
    def observed_at(self) -> str:
        """Local time of the node, `2026-11-21_22:02:20`; "": unknown."""
        return self.fields.get("time", "")

    @property
    def error_file(self) -> str:
        """The path of the error file; "": there is none."""
        path = self.fields.get("error_file", "")
        return "" if path == "<N/A>" else path


class Summary:
    """Reads a summary of torchrun from the lines of one process, beginning at a heading."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self._is_root = False
        self._heading_line = 0
        self._in_traceback = False
        self._foreign_lines = 0
        self._begins_failure = False

    @property
    def ended(self) -> bool:
        """Return whether further lines do not belong to it."""
        return self._foreign_lines > _MAX_FOREIGN_LINES

    def feed(self, number: int, text: str) -> bool:
        """Read the next line; return whether it belongs to the summary."""
        text = text.rstrip()
        if heading := _HEADING.match(text):
            self._is_root, self._heading_line = heading["root"] is not None, number
            self._in_traceback = self._begins_failure = False
            return True
        if _ENTRY.match(text):
            self._begins_failure, self._in_traceback = True, False
            return True
        if field := _FIELD.match(text):
            self._read_field(number, field["key"], field["value"].strip())
            return True
        if self._in_traceback and (not text or text.startswith("  ")):
            if len(self.failures[-1].traceback) < _MAX_TRACEBACK_LINES:
                self.failures[-1].traceback.append((number, text[2:]))
            return True
        self._in_traceback = False
        if _BORDER.match(text):
            if text.startswith(("=", "*")) and self._is_root and self.failures:
                self._foreign_lines = _MAX_FOREIGN_LINES + 1
            return True
        self._foreign_lines += 1
        return False

    def _read_field(self, number: int, key: str, value: str) -> None:
        if self._begins_failure:
            self._begins_failure = False
            line = self._heading_line if self._is_root else number
            self.failures.append(Failure(line=line, is_root=self._is_root))
        if not self.failures:
            return
        failure = self.failures[-1]
        failure.fields.setdefault(key, value)
        self._in_traceback = key == "traceback" and value.startswith("Traceback")
        if self._in_traceback:
            failure.traceback.append((number, value))


def is_heading(text: str) -> bool:
    """Return whether a line begins a summary, or a part of one."""
    return _HEADING.match(text) is not None


def traceback_lines(content: str) -> Sequence[str]:
    """Return the lines of the traceback in an error file, or its message; empty: not one.

    `{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...",
    "timestamp": "1700000000"}}}`, or `{"message": "..."}` of handlers that are not Python's.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return ()
    message = data.get("message") if isinstance(data, Mapping) else None
    if not isinstance(message, Mapping):
        return message.splitlines()[:_MAX_TRACEBACK_LINES] if isinstance(message, str) else ()
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, Mapping) else None
    text = stack if isinstance(stack, str) and stack else message.get("message")
    return text.splitlines()[:_MAX_TRACEBACK_LINES] if isinstance(text, str) else ()


def _integer(text: str) -> int | None:
    match = _NUMBER.match(text)
    return int(match[0]) if match else None
