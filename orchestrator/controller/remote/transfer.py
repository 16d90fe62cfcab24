"""The working tree of a command goes to the host: as a snapshot, and only what the host lacks."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator import errors
from orchestrator.code import git
from orchestrator.controller.code import packs
from orchestrator.controller.code import store as stores
from orchestrator.controller.remote import channel as channels
from orchestrator.remote import framing, messages
from orchestrator.remote.framing import Message

_PIECE_BYTES = 256 * 1024
#: The host may index a large pack on a slow file system.
_ANSWER_SECONDS = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """A snapshot in the store of this computer."""

    store: stores.Store
    id: str
    #: what the repository was like: fields of a job's provenance
    provenance: dict[str, object]


def send(channel: channels.Channel, tree: Tree, request: str) -> None:
    """Bring a snapshot to the host. Raises ClosedError, and OrchestratorError if it refuses.

    What has arrived stays there: after a broken connection only the rest is sent.
    """
    with tree.store.locked():
        names = packs.objects(tree.store, tree.id)
        payload = b"".join(map(bytes.fromhex, names))
        lacks = _ask(channel, messages.of_request("tree", request, payload, tree=tree.id))
        width = len(tree.id) // 2
        missing = [lacks[at : at + width].hex() for at in range(0, len(lacks), width)]
        # The store has other code too, which is not for this host.
        if not set(missing).issubset(names):
            raise framing.FramingError("it asks for objects that are not in the snapshot")
        for pack in packs.packs(tree.store, missing) if missing else ():
            _send_pack(channel, pack, request)
    keys = {"tree": tree.id, "provenance": tree.provenance}
    _ask(channel, Message({"type": "keep", "request": request, **keys}))


def _send_pack(channel: channels.Channel, pack: Path, request: str) -> None:
    with pack.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            channel.send(messages.of_request("pack", request, piece))
            heard_at = time.monotonic()
            while channel.is_full:
                if channel.exchange(1.0)[0]:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > messages.SILENT_SECONDS:
                    raise channels.ClosedError
    _ask(channel, messages.of_request("packed", request))


def _ask(channel: channels.Channel, message: Message) -> bytes:
    """Send a message, and return the payload of its answer."""
    channel.send(message)
    deadline = time.monotonic() + _ANSWER_SECONDS
    said_at = time.monotonic()
    while time.monotonic() < deadline:
        received, _ = channel.exchange(1.0)
        for answer in received:
            if answer.keys.get("request", message.keys["request"]) != message.keys["request"]:
                continue
            if answer.kind == "refused":
                raise errors.OrchestratorError(f"the host: {answer.text('reason')}")
            if answer.kind == "done" and answer.keys.get("of") == message.kind:
                return answer.payload
        if time.monotonic() - said_at >= messages.ALIVE_SECONDS:
            said_at = time.monotonic()
            channel.send(Message({"type": "alive"}))
    raise channels.ClosedError


class Receiver:
    """The other side: takes the snapshot of one request."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._pack: tuple[Path, BinaryIO] | None = None
        self._lock = contextlib.ExitStack()

    def answer(self, message: Message) -> Message | None:
        """Return the answer to a message about a snapshot. Raises FramingError, SnapshotError."""
        payload = b""
        match message.kind:
            case "tree":
                payload = self._lacking(message)
            case "pack":
                if self._pack is None:
                    path = packs.incoming(self._store)
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    self._pack = path, open(os.open(path, flags, 0o600), "wb")
                self._pack[1].write(message.payload)
                return None
            case "packed":
                self._index()
            case "keep":
                packs.keep(self._store, _tree_id(message))
                self._lock.close()
                provenance = message.keys.get("provenance")
                if isinstance(provenance, dict) and provenance:
                    self._store.keep_provenance(_tree_id(message), provenance)
        return messages.of_request("done", messages.request_id(message), payload, of=message.kind)

    def close(self) -> None:
        """Let snapshots be pruned again, and drop what has not arrived completely."""
        self._lock.close()
        with self._dropped():
            pass

    def _lacking(self, message: Message) -> bytes:
        width = len(_tree_id(message)) // 2
        if len(message.payload) % width:
            raise framing.FramingError("tree: the IDs of objects have different lengths")
        self._store.prepare()
        # Until the snapshot is kept, nothing else keeps its objects.
        self._lock.close()
        self._lock.enter_context(self._store.locked())
        payload = message.payload
        names = [payload[at : at + width].hex() for at in range(0, len(payload), width)]
        return b"".join(map(bytes.fromhex, packs.lacking(self._store, names)))

    def _index(self) -> None:
        with self._dropped() as path:
            if path is not None:
                packs.add(self._store, path)

    @contextlib.contextmanager
    def _dropped(self) -> Iterator[Path | None]:
        """Yield the complete file of the pack, and remove it."""
        pack, self._pack = self._pack, None
        if pack is None:
            yield None
            return
        path, file = pack
        try:
            file.close()
            yield path
        finally:
            path.unlink(missing_ok=True)


def _tree_id(message: Message) -> str:
    tree = message.text("tree")
    if git.TREE_ID.fullmatch(tree) is None:
        raise framing.FramingError(f"{message.kind}: tree must be an ID of git")
    return tree
