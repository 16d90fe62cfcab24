"""Checkpoints: written atomically, verified when read; the newest few and the best are kept.

A checkpoint is a file for `torch.load(weights_only=True)`, with its SHA-256 in a file beside it, in
the format of sha256sum. With FSDP it is a folder of torch.distributed.checkpoint, which any number
of ranks can read. Both get their final name when they are complete and on disk.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import hashlib
import os
import pathlib
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from typing import IO, Any

import torch
import torch.distributed.checkpoint as dcp

from trainers import distributed, errors, metrics

NAME = re.compile(r"checkpoint-([0-9]{10})(\.pt)?")
#: The part of a folder that is not a model or an optimizer.
REST_NAME = "trainer.pt"
CHECKSUMS_NAME = "SHA256SUMS"

State = dict[str, Any]


class Store:
    """The checkpoints of a run in one folder; used by all ranks, written by rank 0.

    With `sharded`, all ranks write their parts of model and optimizer.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        sharded: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        #: Error of the last write, such as a full disk; None if it succeeded.
        self.failure: errors.CheckpointError | None = None
        self._keep = keep
        self._sharded = sharded
        self._check = check
        self._writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None

    def open(self) -> None:
        """Create the folder, and remove unfinished files of killed writers (rank 0)."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # Path.glob would hide that the folder cannot be read.
        for name in os.listdir(self.folder):
            if ".draft." in name:
                remove(self.folder / name)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, newest first."""
        return list(self._paths())

    def newest(self) -> pathlib.Path | None:
        """Return the newest intact checkpoint, or None if there is no checkpoint (rank 0).

        A damaged checkpoint is reported on stderr and renamed, and the previous one is used. Raises
        CheckpointError if all are damaged: the user must decide whether to start from scratch.
        """
        paths = self._paths()
        for path in paths.values():
            try:
                verify(path)
                return path
            except errors.CheckpointError as error:
                metrics.warn(f"{error} Renamed to {path.name}.damaged.")
                try:
                    path.rename(f"{path}.damaged")
                except OSError as failure:
                    raise errors.CheckpointError(f"cannot rename {path}: {failure}.") from failure
        if paths:
            raise errors.CheckpointError(
                f"all checkpoints in {self.folder} are damaged; they were renamed to *.damaged."
                " The next start begins at step 0."
            )
        return None

    def save(self, state: State, *, step: int, is_best: bool) -> None:
        """Write rank 0's state in the background, after the previous one; it must not change.

        If it cannot be written, for example because the disk is full, a warning is printed.
        """
        self.wait()
        self._writing = self._writer.submit(self._write, state, step, is_best)

    def save_sharded(self, sharded: State, state: State, *, step: int, is_best: bool) -> None:
        """Write all ranks' parts of `sharded`, and rank 0's state; all ranks must call it."""
        path = self._path(step)
        draft = path.with_name(f"{path.name}.draft.{distributed.broadcast(os.getpid())}")
        try:
            dcp.save(sharded, checkpoint_id=draft)
            rank = torch.distributed.get_rank()
            mine = {file.name: sha256(file) for file in draft.glob(f"__{rank}_*")}
            parts = distributed.gather(mine)
            if rank == 0:
                torch.save(state, draft / REST_NAME)
                sums = {name: digest for part in parts for name, digest in part.items()}
                for name in (".metadata", REST_NAME):
                    sums[name] = sha256(draft / name)
                lines = (f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
                (draft / CHECKSUMS_NAME).write_text("".join(lines))
                sync(draft, *draft.iterdir())
                self._publish(draft, path, is_best)
            self.failure = None
        # CheckpointException of PyTorch is a BaseException.
        except (OSError, RuntimeError, dcp.api.CheckpointException) as error:
            self._fail(path, error)
        distributed.barrier()
        if torch.distributed.get_rank() == 0:
            remove(draft)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk, or has failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the writer thread to end."""
        self.wait()
        self._writer.shutdown()

    def _write(self, state: State, step: int, is_best: bool) -> None:
        path = self._path(step)
        draft = path.with_name(f"{path.name}.draft.{os.getpid()}")
        try:
            with open(draft, "wb") as file:
                writer = HashingWriter(file)
                torch.save(state, writer)
                file.flush()
                os.fsync(file.fileno())
            self._publish(draft, path, is_best, writer.hexdigest())
            self.failure = None
        except (OSError, RuntimeError) as error:
            self._fail(path, error)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def _publish(
        self, draft: pathlib.Path, path: pathlib.Path, is_best: bool, digest: str = ""
    ) -> None:
        """Give a complete checkpoint its name, mark the best, remove old ones."""
        self._check()
        if is_best:
            # Before the rename: a run that resumes from this checkpoint does not mark it again.
            best = path.with_name(f"best{path.suffix}")
            copy = best.with_name(f"{best.name}.draft.{os.getpid()}")
            try:
                if draft.is_dir():
                    shutil.copytree(draft, copy, copy_function=_link)
                else:
                    _link(draft, copy)
                replace(copy, best, digest)
            finally:
                # As a hard link it would keep the space of a failed checkpoint on a full disk.
                remove(copy)
        replace(draft, path, digest)
        sync(path.parent)
        for old in list(self._paths().values())[self._keep :]:
            checksum_path(old).unlink(missing_ok=True)
            remove(old)

    def _fail(self, path: pathlib.Path, error: BaseException) -> None:
        cause = root_cause(error)
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if is_full else str(cause)
        self.failure = errors.CheckpointError(
            f"cannot write checkpoint {path}: {what}."
            + (" Free space, or set another folder with --checkpoint-dir." if is_full else "")
        )
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            metrics.warn(f"{self.failure} Training continues; earlier checkpoints are kept.")

    def _paths(self) -> dict[int, pathlib.Path]:
        names = sorted(os.listdir(self.folder), reverse=True)
        matches = (NAME.fullmatch(name) for name in names)
        return {int(match[1]): self.folder / match[0] for match in matches if match}

    def _path(self, step: int) -> pathlib.Path:
        return self.folder / f"checkpoint-{step:010d}{'' if self._sharded else '.pt'}"


def open_store(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    dist: distributed.DistInfo,
    outputs: metrics.Outputs | None,
    *,
    sharded: bool,
) -> Store | None:
    """Return the checkpoints; None without --checkpoint-dir and without a run folder."""
    folder = args.checkpoint_dir
    if folder is None:
        path, suffix = metrics.file_path(args.run_dir, environ)
        if path is None:
            return None
        folder = path.parent / f"checkpoints{suffix}"
    check = outputs.check if outputs is not None else lambda: None
    store = Store(folder, keep=args.keep_checkpoints, sharded=sharded, check=check)
    if dist.rank == 0:
        try:
            store.open()
        except OSError as error:
            raise errors.UsageError(
                f"Cannot use the checkpoint folder: {error}. Set another one with --checkpoint-dir."
            ) from error
        if args.resume == "never" and store.steps():
            raise errors.UsageError(
                f"--resume never, but {folder} contains checkpoints: remove them, or set another"
                " --checkpoint-dir."
            )
    return store


def verify(path: pathlib.Path) -> None:
    """Compare a checkpoint with its checksums; raise CheckpointError if it is damaged."""
    try:
        if path.is_dir():
            lines = (path / CHECKSUMS_NAME).read_text().splitlines()
            files = {path / line[66:]: line[:64] for line in lines}
        else:
            files = {path: " ".join(_digests(path))}
        damaged = [file.name for file, digests in files.items() if sha256(file) not in digests]
    # ValueError: checksums that are not text.
    except (OSError, ValueError) as error:
        raise errors.CheckpointError(f"cannot read {path}: {error}.") from error
    if damaged or not files:
        raise errors.CheckpointError(
            f"{path} is damaged or incomplete: the checksum of {', '.join(damaged)} differs."
        )


def load(path: pathlib.Path) -> State:
    """Return the state of rank 0 in a checkpoint, with tensors in host memory."""
    file = path / REST_NAME if path.is_dir() else path
    try:
        state: State = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise errors.CheckpointError(
            f"{file} is intact, but PyTorch {torch.__version__} cannot load it: {error}"
        ) from error
    if not isinstance(state, dict) or "settings" not in state:
        raise errors.CheckpointError(
            f"{file} is not a checkpoint of this trainer: set another --checkpoint-dir."
        )
    return state


def root_cause(error: BaseException) -> BaseException:
    """Return the OSError that PyTorch wrapped in another exception, else the exception itself."""
    if isinstance(error, dcp.api.CheckpointException) and error.failures:
        # Of all ranks; those of the disk count most.
        causes = [root_cause(failure) for failure, _ in error.failures.values()]
        return max(causes, key=lambda cause: isinstance(cause, OSError))
    within = error
    while not isinstance(within, OSError):
        following = within.__cause__ or within.__context__
        if following is None:
            return error
        within = following
    return within


def checksum_path(path: pathlib.Path) -> pathlib.Path:
    """Return the file with the checksum of a checkpoint."""
    return path.with_name(f"{path.name}.sha256")


def sha256(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, 64 digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashingWriter:
    """A file for torch.save, with the SHA-256 of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self._hash.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def replace(draft: pathlib.Path, path: pathlib.Path, digest: str) -> None:
    """Give a complete file, with its digest, or a folder its name; it may replace another one."""
    if draft.is_dir():
        old = draft.with_name(f"{draft.name}.old")
        if path.is_dir():
            os.replace(path, old)
        os.replace(draft, path)
        remove(old)
        return
    # Between the two calls, the digests of both files are valid.
    before = _digests(path) if path.exists() and checksum_path(path).exists() else []
    _write_checksum(path, digest, *before)
    os.replace(draft, path)
    if before:
        _write_checksum(path, digest)


def _digests(path: pathlib.Path) -> list[str]:
    """Return the valid digests in the file beside a checkpoint."""
    return [line[:64] for line in checksum_path(path).read_text().splitlines()]


def _write_checksum(path: pathlib.Path, *valid: str) -> None:
    target = checksum_path(path)
    draft = target.with_name(f"{target.name}.draft.{os.getpid()}")
    try:
        draft.write_text("".join(f"{digest}  {path.name}\n" for digest in valid))
        sync(draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _link(source: str | pathlib.Path, target: str | pathlib.Path) -> None:
    """Copy a file, as a hard link if the file system has them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def remove(path: pathlib.Path) -> None:
    """Remove a file or folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(*paths: pathlib.Path) -> None:
    """Write files and folders to disk; a name is durable only after its folder is synced."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
