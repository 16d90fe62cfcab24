"""What a host has, as host.sh reports it: facts, and the script that asks for them."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
import shlex
from collections.abc import Mapping, Sequence

from orchestrator.remote import framing, messages

#: The command that ssh runs, for any login shell; the script is its stdin.
COMMAND = "sh"
_LINE = re.compile(r"^probe ([\w-]+)(?: (.*))?$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Python:
    """A Python interpreter of the host."""

    version: str
    path: str
    #: new enough for orchestrator
    is_new_enough: bool
    #: it can make virtual environments with pip
    has_venv: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What host.sh printed."""

    #: what start-up files printed before it
    noise: bytes
    #: the shell of the host ran it to its end
    is_complete: bool
    #: keyword -> the rest of each line with it
    lines: Mapping[str, Sequence[str]]
    #: None: no agent answered
    greeting: messages.Greeting | None

    def first(self, key: str) -> str:
        """Return the first line with a keyword; "" without one."""
        return next(iter(self.lines.get(key, ())), "")

    def number(self, key: str) -> int | None:
        """Return a number; None without one."""
        text = self.first(key)
        return int(text) if text.isdecimal() and text.isascii() else None

    @property
    def pythons(self) -> list[Python]:
        """Return the interpreters, each path once, the preferred ones first."""
        found = {}
        for line in self.lines.get("python", ()):
            version, word, path = (*line.split(" ", 2), "", "")[:3]
            found[path] = Python(
                version=version,
                path=path,
                is_new_enough=word in ("venv", "no-venv"),
                has_venv=word == "venv",
            )
        return list(found.values())


def script(agent: Sequence[str], installer: str = "", python: str = "", sent: str = "") -> bytes:
    """Return the script for a host.

    agent: words that start the agent. installer: Python program that installs orchestrator; `sent`
    is its stdin. python: path of the interpreter for it; "": the best one that is found.
    """
    values = {
        "orchestrator_agent": shlex.join(agent),
        "orchestrator_installer": installer,
        "orchestrator_python": python,
        "orchestrator_input": sent,
    }
    assignments = [f"{name}={shlex.quote(value)}\n" for name, value in values.items()]
    common = importlib.resources.files(__package__).joinpath("host.sh").read_text()
    return "".join([*assignments, common]).encode()


def facts(output: bytes) -> Facts:
    """Read what the script printed."""
    noise, begin, rest = output.partition(b"\nprobe begin\n")
    greeting, at = _greeting(output)
    lines: dict[str, list[str]] = {}
    for key, value in _LINE.findall(rest.decode(errors="replace")):
        lines.setdefault(key, []).append(value.rstrip("\r"))
    return Facts(
        # A key may be limited to the agent.
        noise=noise if begin else output[:at],
        is_complete="end" in lines,
        lines=lines,
        greeting=greeting,
    )


def _greeting(output: bytes) -> tuple[messages.Greeting | None, int]:
    """Return the greeting of an agent anywhere in the output, and where it begins."""
    for at in re.finditer(rb"^" + re.escape(framing.MARKER), output, re.MULTILINE):
        try:
            message = next(framing.Decoder().feed(output[at.end() :]), None)
            if message is not None:
                return messages.Greeting.of(message), at.start()
        except framing.FramingError:
            continue
    return None, len(output)
