"""Checkpoints: written atomically, verified when read; the newest few and the best are kept.

A file is a header line with the SHA-256 and the length of the rest, then the output of torch.save.
It gets its final name when it is complete and on disk.
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
    """Write a checkpoint durably; `check` is called before it gets its final name.

    After an error the previous file is unchanged.
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
            # Before the rename: a run that resumes from this checkpoint does not mark it again.
            _mark_best(draft, path.with_name(BEST_NAME))
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    _sync_folder(path.parent)


def read(path: pathlib.Path) -> bytes:
    """Return the verified content of a checkpoint; raise CheckpointError if it is damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise errors.CheckpointError(f"cannot read {path}: {error}") from error
    header = HEADER.fullmatch(content[:HEADER_BYTES])
    if header is None:
        raise errors.CheckpointError(
            f"{path} is not a checkpoint of this trainer, or it is incomplete."
        )
    body = content[HEADER_BYTES:]
    if len(body) != int(header[2]) or hashlib.sha256(body).hexdigest().encode() != header[1]:
        raise errors.CheckpointError(f"{path} is damaged ({len(body)} of {int(header[2])} bytes).")
    return body


def load(body: bytes) -> State:
    """Return the state of a checkpoint, with tensors in host memory."""
    try:
        state: State = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise errors.CheckpointError(
            f"The checkpoint is intact, but PyTorch {torch.__version__} cannot load it: {error}"
        ) from error
    return state


class Store:
    """The checkpoints of a run, in one folder; only rank 0 has a store."""

    def __init__(
        self, folder: pathlib.Path, *, keep: int, check: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._check = check
        self._writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None

    def open(self) -> None:
        """Create the folder, and remove unfinished files of killed writers."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for draft in self._folder.glob("*.draft.*"):
            draft.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, newest first."""
        matches = (NAME.fullmatch(name) for name in os.listdir(self._folder))
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def newest(self) -> bytes | None:
        """Return the newest intact checkpoint, or None if there is no checkpoint.

        A damaged checkpoint is reported on stderr and renamed, and the previous one is used. Raises
        CheckpointError if all are damaged: the user must decide whether to start from scratch.
        """
        steps = self.steps()
        for step in steps:
            path = self._path(step)
            try:
                return read(path)
            except errors.CheckpointError as error:
                _warn(f"{error} Renamed to {path.name}.damaged.")
                self._put_aside(path)
        if steps:
            raise errors.CheckpointError(
                f"all checkpoints in {self._folder} are damaged; they were renamed to *.damaged."
                " The next start begins at step 0."
            )
        return None

    def save(self, state: State, *, step: int, is_best: bool) -> None:
        """Write a checkpoint in the background, after the previous one; `state` must not change.

        If it cannot be written, for example because the disk is full, a warning is printed.
        """
        try:
            self.wait()
        except errors.CheckpointError as error:
            _warn(f"{error} Training continues; earlier checkpoints are kept.")
        self._writing = self._writer.submit(self._write, state, step, is_best)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk; raise CheckpointError if writing failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the writer thread to end."""
        self._writer.shutdown()

    def _write(self, state: State, step: int, is_best: bool) -> None:
        path = self._path(step)
        try:
            write(path, state, check=self._check, is_best=is_best)
            for old in self.steps()[self._keep :]:
                self._path(old).unlink(missing_ok=True)
        # torch.save turns an OSError of its writer into a RuntimeError.
        except (OSError, RuntimeError) as error:
            raise errors.CheckpointError(f"cannot write checkpoint {path}: {error}.") from error

    def _put_aside(self, path: pathlib.Path) -> None:
        try:
            path.rename(path.with_name(f"{path.name}.damaged"))
        except OSError as error:
            raise errors.CheckpointError(f"cannot rename {path}: {error}.") from error

    def _path(self, step: int) -> pathlib.Path:
        return self._folder / f"checkpoint-{step:010d}.pt"


class _HashingWriter:
    """A file for torch.save that counts and hashes what is written."""

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
    # The file name is durable only after the folder is synced.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _warn(text: str) -> None:
    sys.stderr.write(f"trainers.train: warning: {text}\n")
    sys.stderr.flush()
