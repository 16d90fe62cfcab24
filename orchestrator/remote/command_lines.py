"""What a command line means on another host: whether it changes anything, or cannot run there."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.remote import reading

#: Commands that change nothing here, but write files there: they run to their end.
_WRITING_FILES = frozenset({"checkout", "db backup", "web export"})
#: If the connection breaks, nothing is lost when these end too. Commands of a group are
#: "sweep status".
READING = reading.COMMANDS - _WRITING_FILES
#: Groups whose own name is a command too, which reads.
_ALSO_COMMANDS = {"metrics": ("export", "reparse")}
#: Commands that describe jobs: they run in a copy of the client's working tree.
_CARRYING = {
    **dict.fromkeys(("submit", "render", "sweep submit", "sweep render"), ("--snapshot",)),
    "graph submit": ("--snapshot",),
    "schedule add": ("--snapshot", "at-add"),
}
#: With these the working tree is not needed.
_NOT_CARRYING = ("--no-snapshot", "--like")
#: Options that need the folder of the client later, or write into it.
_NOT_POSSIBLE = {
    "at-trigger": "the code would have to be on the host: use --no-snapshot and its folder there",
    "--save-spec": "call it without --host",
}
#: Options of `web` that say where the server listens.
_WEB_ADDRESS = ("--port", "--socket", "--url", "--metrics-token")
_HELP = ("--help", "-h", "--version")
#: Why a command cannot run on another host; NAME and ADDRESS are replaced.
REFUSED = {
    "completion": "completes the commands of this computer: call it without --host",
    "top": "needs the terminal: ssh -t ADDRESS orchestrator top",
    "serve": "runs until it is stopped: start it on NAME itself (docs/howto/service.md)",
    "setup": "is called without the option before it: orchestrator setup --host NAME",
    "connect": "opens the connection itself: orchestrator connect NAME",
    "agent": "is what --host starts on NAME: call a command",
}


def name_of(words: Sequence[str]) -> str:
    """Return the name of a command line's command: "status", "sweep status".

    words: from the command on.
    """
    first, second = (*words[:2], "", "")[:2]
    joined = f"{first} {second}"
    if second in _ALSO_COMMANDS.get(first, ()):
        return joined
    return joined if joined in READING else first


def changes(words: Sequence[str]) -> bool:
    """Return whether a command line may change anything; words: from the command on."""
    if shows_pages(words):
        return False
    is_help = any(word in _HELP for word in _before_program(words))
    return name_of(words) not in READING and not is_help


def shows_pages(words: Sequence[str]) -> bool:
    """Return whether a command line starts the web server, which is to end with its client."""
    return words[0] == "web" and "export" not in words and not any(map(_HELP.__contains__, words))


def carrying(words: Sequence[str]) -> list[str] | None:
    """Return a command line that submits a snapshot; None if it needs no working tree.

    words: from the command on.
    """
    number = next((n for n in (2, 1) if " ".join(words[:n]) in _CARRYING), None)
    options = _before_program(words)
    if number is None or any(_has(options, name) for name in (*_NOT_CARRYING, *_HELP)):
        return None
    added = () if _has(options, "--snapshot") else _CARRYING[" ".join(words[:number])]
    return [*words[:number], *added, *words[number:]]


def _before_program(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _has(options: Sequence[str], name: str) -> bool:
    return any(word == name or word.startswith(f"{name}=") for word in options)


def refusal(words: Sequence[str], name: str, address: str) -> str:
    """Return why a command cannot run on another host; "" if it can."""
    if (reason := REFUSED.get(words[0])) is not None:
        return f"{words[0]} {reason.replace('NAME', name).replace('ADDRESS', address)}"
    options = _before_program(words)
    if shows_pages(words):
        for option in _WEB_ADDRESS:
            if _has(options, option):
                return f"{option}: the pages are forwarded to this computer: leave it out"
    if carrying(words) is not None:
        for option, reason in _NOT_POSSIBLE.items():
            if _has(options, option) or f"--snapshot={option}" in options:
                return f"{option}: {reason}"
    return ""
