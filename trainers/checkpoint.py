"""Checkpoints: written atomically, verified when read; the newest few and the best are kept.

A checkpoint is a file of torch.save, or with FSDP a folder of torch.distributed.checkpoint. It gets
its name when it is complete and on disk. Checksums are beside it, in the format of sha256sum.
"""

import argparse
import collections
import errno
import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from trainers import distributed, errors, metrics

NAME = re.compile(r"checkpoint-([0-9]{10})(\.pt)?")
#: The part of a folder that is not a model or an optimizer.
REST_NAME = "trainer.pt"

State = dict[str, Any]


class Store:
    """The checkpoints of a run in one folder; used by all ranks, written by rank 0."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        sharded: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self._keep, self._check = folder, keep, check
        #: Error of the last write, such as a full disk; None if it succeeded.
        self.failure: errors.CheckpointError | None = None
        self._suffix = "" if sharded else ".pt"
        self._best = folder / f"best{self._suffix}"
        self._writer = metrics.BackgroundWriter()

    def open(self) -> None:
        """Create the folder, check that it is writable, remove unfinished files (rank 0)."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "draft.probe").touch()
        for name in os.listdir(self.folder):
            if name.startswith("draft."):
                remove(self.folder / name)

    def newest(self) -> pathlib.Path | None:
        """Return the newest intact checkpoint, if any; raise CheckpointError if all are damaged."""
        paths = self.paths()
        for path in paths.values():
            try:
                verify(path)
                return path
            except errors.CheckpointError as error:
                metrics.warn(f"{error} Renamed to {path.name}.damaged.")
                path.rename(f"{path}.damaged")
        if paths:
            raise errors.CheckpointError(
                f"all checkpoints in {self.folder} are damaged; they were renamed to *.damaged."
                " The next start begins at step 0."
            )
        return None

    def save(self, state: State, *, step: int, is_best: bool) -> None:
        """Write rank 0's state in the background; print a warning if it cannot be written."""
        self._writer.start(self._write, self._draft(step, os.getpid()), state, is_best)

    def save_sharded(self, sharded: State, state: State, *, step: int, is_best: bool) -> None:
        """Write all ranks' parts of `sharded`, and rank 0's state; all ranks must call it."""
        rank = torch.distributed.get_rank()
        draft = self._draft(step, distributed.broadcast(os.getpid()))
        try:
            dcp.save(sharded, checkpoint_id=draft)
            own_parts = {path.name: sha256(path) for path in draft.glob(f"__{rank}_*")}
            parts = distributed.gather(own_parts)
            if rank == 0:
                with (draft / REST_NAME).open("wb") as file:
                    torch.save(state, file)
                rest = {name: sha256(draft / name) for name in (".metadata", REST_NAME)}
                self._publish(draft, is_best, collections.ChainMap(rest, *parts))
            self.failure = None
        # CheckpointException of PyTorch is a BaseException.
        except (OSError, RuntimeError, dcp.api.CheckpointException) as error:
            self._fail(draft, error)
        distributed.barrier()
        if rank == 0:
            remove(draft.parent)

    def mark_best(self, path: pathlib.Path) -> None:
        """Let the link to the best checkpoint lead to this one."""
        link = self.folder / f"draft.{os.getpid()}.link"
        link.symlink_to(path.name)
        os.replace(link, self._best)

    def wait(self) -> errors.CheckpointError | None:
        """Wait until the last checkpoint is on disk, or has failed; return its error."""
        self._writer.wait()
        return self.failure

    def paths(self) -> dict[int, pathlib.Path]:
        """Return the checkpoints by step, newest first."""
        names = sorted(os.listdir(self.folder), reverse=True)
        matches = (NAME.fullmatch(name) for name in names)
        return {int(match[1]): self.folder / match[0] for match in matches if match}

    def _draft(self, step: int, process: int) -> pathlib.Path:
        return self.folder / f"draft.{process}" / f"checkpoint-{step:010d}{self._suffix}"

    def _write(self, draft: pathlib.Path, state: State, is_best: bool) -> None:
        try:
            draft.parent.mkdir(exist_ok=True)
            # From a file of Python, an OSError has its error number.
            with draft.open("wb") as file:
                torch.save(state, file)
            self._publish(draft, is_best, {"": sha256(draft)})
            self.failure = None
        except (OSError, RuntimeError) as error:
            self._fail(draft, error)
        finally:
            remove(draft.parent)

    def _publish(self, draft: pathlib.Path, is_best: bool, digests: Mapping[str, str]) -> None:
        """Move a complete checkpoint and its checksums to the folder, remove old ones."""
        path, sums = self.folder / draft.name, checksum_path(draft)
        names = {name: (draft / name).relative_to(draft.parent) for name in digests}
        sums.write_text("".join(f"{sha}  {names[name]}\n" for name, sha in digests.items()))
        sync(*(draft / name for name in digests), draft, sums)
        self._check()
        os.replace(sums, self.folder / sums.name)
        if path.is_dir():
            # A run that was stopped at the end of an epoch saves this step again.
            path.rename(draft.with_name("old"))
        os.replace(draft, path)
        if is_best:
            self.mark_best(path)
        sync(self.folder)
        best = self._best.resolve()
        for old in list(self.paths().values())[self._keep :]:
            if old.resolve() != best:
                remove(checksum_path(old))
                remove(old)

    def _fail(self, draft: pathlib.Path, error: BaseException) -> None:
        cause = root_cause(error)
        what = f"{cause}."
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "the disk is full. Free space, or set another folder with --checkpoint-dir."
        path = self.folder / draft.name
        self.failure = errors.CheckpointError(f"cannot write checkpoint {path}: {what}")
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            metrics.warn(f"{self.failure} Training continues; earlier checkpoints are kept.")


def open_store(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    dist: distributed.DistInfo,
    outputs: metrics.Outputs | None,
    *,
    sharded: bool,
) -> Store | None:
    """Return the checkpoints; None without --checkpoint-dir and without a run folder."""
    folder, path = args.checkpoint_dir, metrics.file_path(args.run_dir, environ)
    if folder is None and path is not None:
        folder = metrics.beside(path, "checkpoints")
    if folder is None:
        return None
    check = outputs.check if outputs is not None else lambda: None
    store = Store(folder, keep=args.keep_checkpoints, sharded=sharded, check=check)
    if dist.rank == 0:
        try:
            store.open()
        except OSError as error:
            message = f"Cannot use the checkpoint folder: {error}. Set another --checkpoint-dir."
            raise errors.UsageError(message) from error
    return store


def verify(path: pathlib.Path) -> None:
    """Compare a checkpoint with its checksums; raise CheckpointError if it is damaged."""
    try:
        lines = checksum_path(path).read_text().splitlines()
        damaged = [line[66:] for line in lines if sha256(path.parent / line[66:]) != line[:64]]
    # ValueError: checksums that are not text.
    except (OSError, ValueError) as error:
        raise errors.CheckpointError(f"cannot read {path}: {error}.") from error
    if damaged or not lines:
        raise errors.CheckpointError(
            f"{path} is damaged or incomplete: the checksum of {', '.join(damaged)} differs."
        )


def load(path: pathlib.Path) -> State:
    file = path / REST_NAME if path.is_dir() else path
    state: State = torch.load(file, map_location="cpu", weights_only=True)
    return state


def root_cause(error: BaseException) -> BaseException:
    """Return the OSError that PyTorch wrapped in another exception, else the exception itself."""
    if isinstance(error, dcp.api.CheckpointException) and error.failures:
        # Of all ranks; those of the disk count most.
        causes = [root_cause(failure) for failure, _ in error.failures.values()]
        return max(causes, key=lambda cause: isinstance(cause, OSError))
    wrapped = error.__cause__ or error.__context__
    cause = error if isinstance(error, OSError) or wrapped is None else root_cause(wrapped)
    return cause if isinstance(cause, OSError) else error


def checksum_path(path: pathlib.Path) -> pathlib.Path:
    """Return the file with the checksums of a checkpoint, or of the one to which a link leads."""
    path = path.resolve()
    return path.with_name(f"{path.name}.sha256")


def sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
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
