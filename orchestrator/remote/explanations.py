"""Why a host did not answer, and what to do."""

from __future__ import annotations

import shlex

from orchestrator.remote import messages
from orchestrator.text import escaping

_NOT_EXECUTABLE, _NOT_FOUND, _OF_SSH = 126, 127, 255
#: Of click: the installed version does not know the command `agent`.
_USAGE = 2
_SHOWN_LINES = 5
_SHOWN_CHARACTERS = 200


def no_agent(name: str, address: str, code: int, noise: bytes) -> str:
    """Return why no agent answered.

    name: of the host in the configuration. code: exit code of ssh. noise: what came instead.
    """
    install = 'install it there ("Install" in README.md)'
    own = f'remote_command = ["/path/of/orchestrator", "agent", "--stdio"] in [hosts.{name}]'
    plain = f"`{shlex.join(['ssh', address])}`"
    if code == _OF_SSH:
        text = f"ssh cannot connect to {address}, see its message above: {plain} has to work first"
    elif code == _NOT_FOUND:
        text = (
            f"orchestrator is not installed on {name}, or not on PATH of a command that ssh runs: "
            f"{install}; if it is elsewhere, set {own}"
        )
    elif code == _NOT_EXECUTABLE:
        text = f"orchestrator on {name} cannot be executed: {install}, or set {own}"
    elif code == _USAGE:
        text = f"orchestrator on {name} is too old to have the command `agent`: upgrade it there"
    else:
        text = (
            f"orchestrator on {name} ended with exit code {code} before it answered, see its "
            "messages above. It needs Python 3.11 or newer"
        )
    return f"{text}{_instead(name, noise)}"


def too_much_noise(name: str, noise: bytes) -> str:
    """Return what to do about a host that prints without end."""
    return (
        f"{name} printed more than {len(noise) // 1024} KiB, but no agent answered: a start-up "
        f"file of the shell there prints too much{_instead(name, noise)}"
    )


def _instead(name: str, noise: bytes) -> str:
    lines = [line for line in noise.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    shown = [f"    {escaping.one_line(line)[:_SHOWN_CHARACTERS]}" for line in lines[:_SHOWN_LINES]]
    if len(lines) > len(shown):
        shown.append("    ...")
    return "\n".join([f"\n{name} printed:", *shown])


def no_common_protocol(name: str, version: str, greeting: messages.Greeting) -> str:
    """Return which side has to be upgraded. version: of this side."""
    if greeting.protocols[1] < messages.PROTOCOLS[0]:
        return (
            f"orchestrator {greeting.version} on {name} is too old for orchestrator {version} "
            "here: upgrade it there"
        )
    return (
        f"orchestrator {version} here is too old for orchestrator {greeting.version} on {name}: "
        "upgrade it here"
    )
