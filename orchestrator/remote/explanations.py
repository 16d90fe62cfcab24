"""Why a host did not answer, and what to do."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from orchestrator.remote import messages
from orchestrator.text import escaping

_NOT_EXECUTABLE, _NOT_FOUND, OF_SSH = 126, 127, 255
#: Of click: the installed version does not know the command `agent`.
_USAGE = 2
_SHOWN_LINES = 5
_SHOWN_CHARACTERS = 200


class Problem(NamedTuple):
    found: str
    #: what to do about it
    cure: str

    def __str__(self) -> str:
        return f"{self.found}: {self.cure}"


def no_agent(name: str, address: str, code: int) -> Problem:
    """Return why no agent answered.

    name: of the host in the configuration. code: exit code of ssh.
    """
    install = f"`{_setup(name)}` installs it"
    own = f'remote_command = ["/path/of/orchestrator", "agent", "--stdio"] in [hosts.{name}]'
    if code == OF_SSH:
        plain = shlex.join(["ssh", address])
        return Problem(
            f"ssh cannot connect to {address}, see its message above",
            f"`{plain}` has to work first",
        )
    if code == _NOT_FOUND:
        return Problem(
            f"orchestrator is not installed on {name}, or neither in ~/.local/bin nor on PATH of a "
            "command that ssh runs",
            f"{install}; if it is elsewhere, set {own}",
        )
    if code == _NOT_EXECUTABLE:
        return Problem(
            f"orchestrator on {name} cannot be executed", f"{install} anew, or set {own}"
        )
    if code == _USAGE:
        return Problem(
            f"orchestrator on {name} is too old to have the command `agent`",
            f"`{_setup(name)}` upgrades it",
        )
    return Problem(
        f"orchestrator on {name} ended with exit code {code} before it answered, see its "
        "messages above",
        f"`{shlex.join(['orchestrator', 'doctor', '--host', name])}` looks for the reason",
    )


def too_much_noise(name: str, size_bytes: int) -> str:
    """Return what to do about a host that prints without end."""
    return (
        f"{name} printed more than {size_bytes // 1024} KiB, but no agent answered: a start-up "
        f"file of the shell there prints too much"
    )


def instead(name: str, noise: bytes) -> str:
    """Return the lines that a host printed before the agent answered; "" if there are none."""
    lines = printed(noise)
    shown = [f"    {escaping.one_line(line)[:_SHOWN_CHARACTERS]}" for line in lines[:_SHOWN_LINES]]
    if len(lines) > len(shown):
        shown.append("    ...")
    return "\n".join([f"\n{name} printed:", *shown]) if lines else ""


def printed(noise: bytes) -> list[str]:
    """Return the lines that are not empty."""
    return [line for line in noise.decode(errors="replace").splitlines() if line.strip()]


def no_common_protocol(name: str, version: str, greeting: messages.Greeting) -> Problem:
    """Return which side has to be upgraded. version: of this side."""
    if greeting.protocols[1] < messages.PROTOCOLS[0]:
        return Problem(
            f"orchestrator {greeting.version} on {name} is too old for orchestrator {version} here",
            f"`{_setup(name)}` upgrades it",
        )
    return Problem(
        f"orchestrator {version} here is too old for orchestrator {greeting.version} on {name}",
        "upgrade it here",
    )


def _setup(name: str) -> str:
    return shlex.join(["orchestrator", "setup", "--host", name])
