"""Checkpoints: whole or not there, proven on reading, the newest few and the best.

A file is a line with the SHA-256 and the length of the rest, then what torch.save writes. It gets
its name only when it is on the disk.
"""

import concurrent.futures
import contextlib
import hashlib
import io
import os
import pathlib
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from typing import IO, Any

import torch

from trainers import errors

BEST_NAME = "best.pt"
NAME = re.compile(r"checkpoint-([0-9]{10})\.pt")
HEADER = re.compile(rb"trainers checkpoint 1 ([0-9a-f]{64}) ([0-9]{20})\n")
HEADER_BYTES = len(b"trainers checkpoint 1 ") + 64 + 1 + 20 + 1

State = dict[str, Any]


def write(
    path: pathlib.Path, state: State, *, check: Callable[[], None], is_best: bool = False
) -> None:
    """Write a checkpoint, durable when this returns; `check` is called before it gets its name.

    A failure leaves what was there before.
    """
    draft = path.with_name(f"{path.name}.draft.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(b" " * HEADER_BYTES)
            body = _HashingWriter(file)
            torch.save(state, body)
            file.seek(0)
            file.write(b"trainers checkpoint 1 %s %020d\n" % (body.digest(), body.num_bytes))
            file.flush()
            os.fsync(file.fileno())
        check()
        if is_best:
            # Before the other name: a run that goes on from that one would not mark it again.
            _mark_best(draft, path.with_name(BEST_NAME))
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    _sync_folder(path.parent)


def read(path: pathlib.Path) -> bytes:
    """Return the proven content of a checkpoint; raise CheckpointError where it is damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise errors.CheckpointError(f"{path} can't be read: {error}") from error
    header = HEADER.fullmatch(content[:HEADER_BYTES])
    if header is None:
        raise errors.CheckpointError(f"{path} is no checkpoint of this trainer, or a torn one.")
    body = content[HEADER_BYTES:]
    if len(body) != int(header[2]) or hashlib.sha256(body).hexdigest().encode() != header[1]:
        raise errors.CheckpointError(f"{path} is damaged: {len(body)} of {int(header[2])} bytes.")
    return body


def load(body: bytes) -> State:
    """Return the state in the content of a checkpoint, its tensors in the host's memory."""
    try:
        state: State = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise errors.CheckpointError(
            f"The checkpoint is whole, but PyTorch {torch.__version__} can't load it: {error}"
        ) from error
    return state


class Store:
    """The checkpoints of a run, in one folder; rank 0 alone has one."""

    def __init__(
        self, folder: pathlib.Path, *, keep: int, check: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._check = check
        self._writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None

    def open(self) -> None:
        """Make the folder, and remove what killed writers left."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for draft in self._folder.glob("*.draft.*"):
            draft.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps of which there is a checkpoint, the newest first."""
        matches = (NAME.fullmatch(name) for name in os.listdir(self._folder))
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def newest(self) -> bytes | None:
        """Return the newest checkpoint that is whole, None where there is none.

        A damaged one is told on stderr and put aside, and the one before it is taken. Raises
        CheckpointError where all are damaged: to begin anew is for people to decide.
        """
        steps = self.steps()
        for step in steps:
            path = self._path(step)
            try:
                return read(path)
            except errors.CheckpointError as error:
                _warn(f"{error} It is put aside.")
                self._put_aside(path)
        if steps:
            raise errors.CheckpointError(
                f"no checkpoint in {self._folder} is whole, and they are put aside as *.damaged:"
                " the next start begins from the first step."
            )
        return None

    def save(self, state: State, *, step: int, is_best: bool) -> None:
        """Write a checkpoint in the background, after the one before it; `state` must not change.

        A checkpoint that could not be written, as on a full disk, is told on stderr.
        """
        try:
            self.wait()
        except errors.CheckpointError as error:
            _warn(f"{error} Training goes on; the checkpoints before it are kept.")
        self._writing = self._writer.submit(self._write, state, step, is_best)

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk; raise CheckpointError where it is not."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the writer's end."""
        self._writer.shutdown()

    def _write(self, state: State, step: int, is_best: bool) -> None:
        path = self._path(step)
        try:
            write(path, state, check=self._check, is_best=is_best)
            for old in self.steps()[self._keep :]:
                self._path(old).unlink(missing_ok=True)
        # torch's own writer makes a RuntimeError of an OSError.
        except (OSError, RuntimeError) as error:
            raise errors.CheckpointError(f"checkpoint {path} not written: {error}.") from error

    def _put_aside(self, path: pathlib.Path) -> None:
        try:
            path.rename(path.with_name(f"{path.name}.damaged"))
        except OSError as error:
            raise errors.CheckpointError(f"{path} can't be put aside: {error}.") from error

    def _path(self, step: int) -> pathlib.Path:
        return self._folder / f"checkpoint-{step:010d}.pt"


class _HashingWriter:
    """What torch.save writes to: counts and hashes on the way to the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.num_bytes = 0
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.num_bytes += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> bytes:
        return self._hash.hexdigest().encode()


def _mark_best(whole: pathlib.Path, path: pathlib.Path) -> None:
    draft = path.with_name(f"{path.name}.draft.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        os.link(whole, draft)
    except OSError:
        # Some file systems have no hard links.
        shutil.copyfile(whole, draft)
    os.replace(draft, path)


def _sync_folder(folder: pathlib.Path) -> None:
    # The name is safe only when the folder is.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _warn(text: str) -> None:
    sys.stderr.write(f"trainers.train: warning: {text}\n")
    sys.stderr.flush()
