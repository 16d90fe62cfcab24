"""What the two sides say to each other: the protocol's numbers, the agent's greeting, a request.

The agent begins with its greeting, the client answers `hello` with the newest protocol that both
know. Then the client sends

    tree     the IDs of all objects of a working tree; then `pack`, pieces of a pack with what
             the host lacks, `packed` after each pack, and `keep`; `done` answers
    run      a command line with a request ID; the same again continues it at `offset`
    settle   asks what became of a request; one that is not known can never run afterwards
    control  an interrupt, a new window size, or the end of a request
    ack      output up to `offset` is not needed any more
    done     the client has the exit code
    alive    nothing, every few seconds

and the agent

    output    a part of the request's spool, which begins at `offset`
    ended     its exit code
    standing  the answer to `settle`
    refused   why a message cannot be answered
    alive
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from orchestrator.remote import framing
from orchestrator.remote.framing import FramingError, Message

#: The oldest and the newest protocol that this version speaks.
PROTOCOLS = (1, 1)
ALIVE_SECONDS = 10.0
#: A side that was silent for so long is gone, or the link to it is broken.
SILENT_SECONDS = 35.0
_TREE_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REQUEST_ID = re.compile(r"[0-9a-f]{32}")
#: Of a greeting: it is shown in sentences and stored.
_NAME = re.compile(r"[!-~]{0,255}")
_JOB = re.compile(r"@[0-9]{1,19}")
#: The largest exit status of a process.
_MAX_CODE = 255

#: What became of a request: it can never run; its keeper runs it; it ended; its keeper disappeared,
#: for example when its host crashed.
Standing: TypeAlias = Literal["never", "running", "ended", "lost"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greeting:
    """What an agent says first."""

    protocols: tuple[int, int]
    #: of orchestrator
    version: str
    #: the host's own name
    host: str
    #: ID of the state folder: login nodes behind one name may have one each
    store: str

    def encoded(self) -> bytes:
        """Return its bytes; a line end comes first, because start-up files may leave it out."""
        keys = {**dataclasses.asdict(self), "protocols": list(self.protocols)}
        return b"\n" + framing.MARKER + Message(keys).encoded()

    @classmethod
    def of(cls, message: Message) -> Greeting:
        """Read a greeting, also of a newer agent. Raises FramingError."""
        protocols = message.keys.get("protocols")
        match protocols:
            case [int(oldest), int(newest)]:
                pass
            case _:
                raise FramingError("the greeting has no protocols")
        names = {key: message.text(key) for key in ("version", "host", "store")}
        for key, text in names.items():
            if _NAME.fullmatch(text) is None:
                raise FramingError(f"the greeting's {key} is no name: {text[:80]!r}")
        return cls(protocols=(oldest, newest), **names)


def common_protocol(ours: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """Return the newest protocol that both sides speak; None if there is none."""
    newest = min(ours[1], theirs[1])
    return newest if newest >= max(ours[0], theirs[0]) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terminal:
    """The client's output, which the command's output is like."""

    stdout: bool
    stderr: bool
    columns: int
    lines: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkingTree:
    """The snapshot in a copy of which a command runs."""

    #: its ID in git
    id: str
    #: where the command runs, relative to the tree
    folder: str
    #: where it is from, for people: "laptop:/home/alice/project"
    origin: str
    #: the user trusts the project's orchestrator.toml
    is_trusted: bool

    @classmethod
    def of(cls, keys: object) -> WorkingTree:
        """Read it from a request. Raises FramingError."""
        match keys:
            case {
                "id": str(tree),
                "folder": str(folder),
                "origin": str(origin),
                "is_trusted": bool(is_trusted),
            }:
                parts = folder.split("/")
                if _TREE_ID.fullmatch(tree) and not folder.startswith("/") and ".." not in parts:
                    return cls(id=tree, folder=folder, origin=origin, is_trusted=is_trusted)
        raise FramingError("run: tree is wrong")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A command line to run exactly once."""

    request: str
    #: after `orchestrator`
    words: Sequence[str]
    terminal: Terminal
    #: variables that decide how output looks
    variables: Mapping[str, str]
    #: it runs to its end, also without a client
    changes: bool
    #: where it runs, and where jobs start if it runs in a copy of `tree`; None: the home folder
    folder: str | None = None
    tree: WorkingTree | None = None
    #: a command that changes nothing is ended after so long without a client
    grace_seconds: int = 600
    #: of the spool, to begin with
    offset: int = 0

    def message(self) -> Message:
        return Message({"type": "run", **dataclasses.asdict(self)})

    @classmethod
    def of(cls, message: Message) -> Run:
        """Read a request. Raises FramingError."""
        keys = message.keys
        words, variables, folder = keys.get("words"), keys.get("variables"), keys.get("folder")
        terminal, changes = keys.get("terminal"), keys.get("changes")
        if not (
            isinstance(words, list)
            and isinstance(variables, dict)
            and isinstance(terminal, dict)
            and isinstance(changes, bool)
            and (folder is None or isinstance(folder, str))
            # No argument, variable or path of a process contains NUL.
            and all(
                isinstance(text, str) and "\0" not in text
                for text in [*words, *variables.values(), folder or ""]
            )
        ):
            raise FramingError("run: a key is missing or has the wrong type")
        of_terminal = Message({"type": "terminal", **terminal})
        return cls(
            request=request_id(message),
            words=words,
            terminal=Terminal(
                stdout=terminal.get("stdout") is True,
                stderr=terminal.get("stderr") is True,
                columns=of_terminal.number("columns"),
                lines=of_terminal.number("lines"),
            ),
            variables=variables,
            changes=changes,
            folder=folder,
            tree=None if keys.get("tree") is None else WorkingTree.of(keys["tree"]),
            grace_seconds=message.number("grace_seconds"),
            offset=message.number("offset"),
        )


def request_id(message: Message) -> str:
    """Return the request that a message is about. Raises FramingError."""
    text = message.text("request")
    if _REQUEST_ID.fullmatch(text) is None:
        raise FramingError(f"{message.kind}: request must be 32 hexadecimal digits")
    return text


def standing(message: Message) -> Standing:
    """Return what became of a request, from the answer to `settle`. Raises FramingError."""
    text: Any = message.text("standing")
    if text not in get_args(Standing):
        raise FramingError(f"{message.kind}: unknown standing {text[:80]!r}")
    known: Standing = text
    return known


def jobs_of(message: Message) -> list[str]:
    """Return the jobs that `standing` names, as commands accept them."""
    jobs = message.keys.get("jobs")
    names = jobs if isinstance(jobs, list) else []
    return [name for name in names if isinstance(name, str) and _JOB.fullmatch(name)]


def exit_code(message: Message) -> int:
    """Return the exit code of a request. Raises FramingError."""
    code = message.number("code")
    if code > _MAX_CODE:
        raise FramingError(f"{message.kind}: code must be at most {_MAX_CODE}")
    return code


def of_request(kind: str, request: str, payload: bytes = b"", **keys: Any) -> Message:
    """Return a message about a request."""
    return Message({"type": kind, "request": request, **keys}, payload)
