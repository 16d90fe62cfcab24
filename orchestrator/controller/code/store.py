"""Our own store of snapshots, STATE_DIR/code: a bare git repository, and an index for each root.

A snapshot is a git tree. Nothing of the user's repository is written, and its configuration is not
read, except to list what it tracks (worktree.py). Calls that are killed leave drafts, which nobody
reads; the store itself changes by renames and by files that git names after their content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import config, errors, files
from orchestrator.code import git
from orchestrator.controller.code.calls import TIMEOUT_SECONDS, Call, SnapshotError
from orchestrator.controller.session import contexts
from orchestrator.processes import process
from orchestrator.text import escaping, nouns

#: In RUNS_DIR: what jobs unpack, one file for each tree.
ARCHIVES = ".code"
#: Where git keeps the references to the trees.
_REFERENCES = "refs/snapshots"
#: Fields of a job's provenance, with a diff of 1 MiB and the names of untracked files as JSON.
_PROVENANCE_BYTES = 64 * 1024**2
#: Files with objects on their way to another computer, or from it.
INCOMING = "packed."
#: Drafts of processes that were killed are removed after this time.
_DRAFT_SECONDS = 24 * 3600
#: Files and folders that git renames or removes when it is done.
_UNFINISHED = (
    *("objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_objdir-*"),
    *(f"{_REFERENCES}/*.lock", f"{_REFERENCES}/.*", "*.lock", f"{INCOMING}*"),
)


class NoSnapshotError(SnapshotError):
    """A snapshot is no longer stored."""

    def __init__(self, tree: str) -> None:
        super().__init__(
            f"the snapshot {tree[:12]} of the code is no longer stored. Nothing was submitted. "
            "`orchestrator submit` submits the job with the code as it is now."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Store:
    """The store of one user."""

    folder: Path
    environ: Mapping[str, str]
    shared_folders: Sequence[Path] = ()

    def take(self, root: Path, names: Sequence[str], nested: Mapping[str, str]) -> str:
        """Store these files of a working tree, and return the ID of their tree.

        names: files and symbolic links, relative to `root`. nested: folders that are snapshots of
        their own, with the IDs of their trees. Raises SnapshotError.

        The index of the last snapshot of `root` knows which files have not changed since.
        """
        self.prepare()
        with self.locked():
            return self._take(root, names, nested)

    def _take(self, root: Path, names: Sequence[str], nested: Mapping[str, str]) -> str:
        kept = self.folder / "indexes" / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        draft = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
        call = self._call(root=root, index=draft)
        try:
            with contextlib.suppress(FileNotFoundError):
                # With its time: git rereads files that changed at that moment or later.
                shutil.copy2(kept, draft)
            try:
                listed = set(git.split(call("ls-files", "-z")))
            except SnapshotError:
                # Damaged, for example when the host crashed.
                draft.unlink(missing_ok=True)
                listed = set[str]()
            if gone := listed.difference(names):
                call("update-index", "--force-remove", "-z", "--stdin", stdin=git.joined(gone))
            options = ("--add", "--remove", "--replace", "-z", "--stdin")
            add = dataclasses.replace(call, version=call.result("version").stdout)
            add("update-index", *options, stdin=git.joined(names))
            # The kept index has only the files of this root; git writes none without files.
            own = draft.with_name(f"{draft.name}.own") if nested else draft
            if nested and draft.exists():
                shutil.copy2(draft, own)
            for folder, tree in nested.items():
                call("read-tree", f"--prefix={folder}/", tree)
            tree = call("write-tree").strip()
            self.refer_to(tree)
            # Not before: prune removes objects that no reference needs.
            if own.exists():
                os.replace(own, kept)
        except OSError as error:
            raise SnapshotError(git.not_written(self.folder, str(error.strerror))) from error
        finally:
            for path in (draft, *draft.parent.glob(f"{draft.name}.*"), *self._old_drafts()):
                path.unlink(missing_ok=True)
        return tree

    def refer_to(self, tree: str) -> None:
        """Keep a tree whose objects are all stored. Raises OSError."""
        # Not by git: the lock of a call that was killed would be in the way. Always written: prune
        # keeps what was used within a day.
        reference = self.folder / _REFERENCES / tree
        reference.parent.mkdir(exist_ok=True)
        files.replace(reference, f"{tree}\n".encode(), durable=True)

    def keep_provenance(self, tree: str, working_tree: Mapping[str, object]) -> None:
        """Store what the repository of a snapshot was like: fields of a job's provenance.

        Raises SnapshotError.
        """
        path = self._provenance(tree)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            files.replace(path, json.dumps(working_tree).encode())
        except OSError as error:
            raise SnapshotError(git.not_written(path, str(error.strerror))) from error

    def provenance(self, tree: str) -> dict[str, object] | None:
        """Return what keep_provenance() stored; None if that is missing."""
        try:
            stored = json.loads(
                files.read_bytes(self._provenance(tree), limit_bytes=_PROVENANCE_BYTES)
            )
        except (OSError, ValueError, RecursionError):
            return None
        return stored if isinstance(stored, dict) else None

    def _provenance(self, tree: str) -> Path:
        return self.folder / "provenance" / f"{tree}.json"

    def has(self, tree: str) -> bool:
        """Return whether the snapshot is stored; raises SnapshotError if the store is damaged."""
        if git.TREE_ID.fullmatch(tree) is None or not self.folder.is_dir():
            return False
        reference = ("show-ref", "--verify", "--quiet", f"{_REFERENCES}/{tree}")
        result = self._call().result(*reference)
        if result.timed_out or result.returncode > 1:
            raise self._call().failed("show-ref", result)
        return result.returncode == 0

    def read(self, tree: str) -> list[git.File]:
        """Return the files of a snapshot in git's order; raises SnapshotError."""
        self._require(tree)
        listed = self._call()("ls-tree", "-r", "-z", "--long", tree)
        try:
            return list(git.files_of_tree(listed))
        except ValueError as error:
            raise SnapshotError(git.damaged(self.folder, f"files of {tree} are missing")) from error

    def summary(self, tree: str) -> str:
        """Return the number of files of a snapshot and their size, or why they are not known."""
        try:
            if not self.has(tree):
                return "no longer stored"
            found = self.read(tree)
        except SnapshotError as error:
            return f"not known: {error}"
        size_mb = sum(file.size_bytes for file in found) / 10**6
        return f"{nouns.count(len(found), 'file')}, {size_mb:.1f} MB"

    def difference(self, first: str, second: str, *, limit_bytes: int) -> str:
        """Return the files in which two snapshots differ, then a unified diff.

        The diff is cut at `limit_bytes`; its last line then says how to see all of it. Bytes that
        are not UTF-8 are surrogates. Raises NoSnapshotError.
        """
        for tree in (first, second):
            self._require(tree)
        words = ("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color")
        call = self._call()
        if not (listed := call(*words, *git.STAT, first, second)):
            return ""
        call = self._call(limit_bytes=limit_bytes)
        text = call(*words, "-p", "--full-index", first, second, is_cut=True)
        if len(text.encode("utf-8", "surrogateescape")) >= limit_bytes:
            command = shlex.join(["git", f"--git-dir={self.folder}", "diff", first, second])
            text = text[: text.rfind("\n") + 1]
            text += f"Cut after {limit_bytes} bytes. All of it: {command}\n"
            text += f"One file: {command} -- FILE\n"
        return f"{listed}\n{text}"

    def extract(self, tree: str, folder: Path) -> None:
        """Write the files of a snapshot into a folder that does not exist yet, or is empty.

        The folder appears complete. Raises NoSnapshotError, and SnapshotError if it is not empty or
        cannot be written.
        """
        self._require(tree)
        try:
            is_folder = folder.is_dir() and not folder.is_symlink()
            if os.path.lexists(folder) and not (is_folder and not os.listdir(folder)):
                raise SnapshotError(f"{escaping.visible(str(folder))} exists: name a new folder")
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            index = draft.with_name(f"{draft.name}.index")
            try:
                call = self._call(root=draft, index=index, writes=folder)
                call("read-tree", tree)
                call("checkout-index", "--all", "--quiet")
                draft.chmod(0o777 & ~_umask())
                os.rename(draft, folder)
            finally:
                index.unlink(missing_ok=True)
                shutil.rmtree(draft, ignore_errors=True)
        except OSError as error:
            name = escaping.visible(str(folder))
            raise SnapshotError(f"cannot write {name}: {error.strerror}") from error

    def archive(self, tree: str, runs_dir: Path) -> Path:
        """Return the tar file of a snapshot that jobs unpack; it is on disk.

        Raises NoSnapshotError if neither the file nor the snapshot is stored, RunFolderError if it
        cannot be written.
        """
        folder = runs_dir / ARCHIVES
        path = folder / f"{tree}.tar"
        with contextlib.suppress(FileNotFoundError):
            # prune keeps what was used within a day.
            os.utime(path)
            return path
        self._require(tree)
        draft = folder / f"{tree}.{secrets.token_hex(4)}.draft"
        try:
            files.make_private_folder(
                folder, shared_folders=self.shared_folders, setting="runs_dir"
            )
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                call = self._call(writes=folder)
                call("archive", "--format=tar", f"--output={draft}", tree)
                files.sync(draft)
                os.replace(draft, path)
                files.sync(folder)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise errors.RunFolderError(
                f"cannot write {path}: {error.strerror}; nothing was submitted. "
                "Set runs_dir to a folder that you can write and that compute nodes see."
            ) from error
        return path

    def ignored_by_user(self) -> Path:
        """Return the file of the user's own patterns to ignore, which may not exist.

        The user's own and the system's configuration decide, never that of a repository.
        """
        self.prepare()
        environ = git.of_user(self.folder, self.environ)
        words = ["git", "config", "--includes", "--type=path", "--get", "core.excludesFile"]
        with contextlib.suppress(process.CommandNotFound):
            result = process.run(words, TIMEOUT_SECONDS, environ, undecodable="surrogateescape")
            if result.returncode == 0 and result.stdout.strip():
                return Path(result.stdout.rstrip("\n"))
        home = Path(self.environ.get("HOME") or "/nonexistent")
        return Path(self.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "ignore"

    def untracked(self, root: Path, excludes: Path) -> list[str]:
        """Return the files and links of a tree that no pattern ignores; "NAME/": a repository.

        excludes: a file with patterns beside those of .gitignore files. Raises SnapshotError.
        """
        self.prepare()
        # An empty index: all files are untracked.
        index = self.folder / "indexes" / "none"
        call = self._call(root=root, index=index, excludes=excludes)
        return git.split(call("ls-files", "-z", "--others", "--exclude-standard", is_complete=True))

    def _call(self, **fields: Any) -> Call:
        return Call(store=self.folder, environ=self.environ, **fields)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no objects be pruned meanwhile: an index may name some that nothing else needs.

        Before, and after a failure, what git has left unfinished is removed.
        """
        lock = -1
        with contextlib.ExitStack() as stack:
            # Some file systems have no locks.
            with contextlib.suppress(OSError):
                lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, lock)
                self._tidy(lock)
                fcntl.flock(lock, fcntl.LOCK_SH)
            try:
                yield
            except SnapshotError:
                with contextlib.suppress(OSError):
                    self._tidy(lock)
                raise

    def _tidy(self, lock: int) -> None:
        """Remove unfinished files of git, if no other process takes or prunes snapshots now."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_unfinished(self.folder)

    def _old_drafts(self) -> Iterator[Path]:
        """Yield what calls that were killed have left."""
        before_seconds = time.time() - _DRAFT_SECONDS
        for path in self.folder.glob("indexes/*.*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before_seconds:
                    yield path

    def _require(self, tree: str) -> None:
        if not self.has(tree):
            raise NoSnapshotError(tree)

    def prepare(self) -> None:
        """Create the store; a process that was killed meanwhile leaves nothing that counts."""
        try:
            files.make_private_folder(
                self.folder.parent, shared_folders=self.shared_folders, setting="state_dir"
            )
            if not (self.folder / "indexes").is_dir():
                draft = Path(tempfile.mkdtemp(prefix=".code.", dir=self.folder.parent))
                try:
                    creation = dataclasses.replace(self, folder=draft)
                    creation._call()("init", "--quiet", "--bare", "--template=")
                    (draft / "info").mkdir(exist_ok=True)
                    (draft / "info" / "attributes").write_text(git.ATTRIBUTES)
                    (draft / "indexes").mkdir()
                    with contextlib.suppress(OSError):
                        # Another process may have created it at the same moment.
                        os.rename(draft, self.folder)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
            files.make_private_folder(
                self.folder, shared_folders=self.shared_folders, setting="state_dir"
            )
        except files.PrivateFolderError as error:
            raise SnapshotError(f"{error.strerror} Nothing was submitted.") from error
        except OSError as error:
            raise SnapshotError(git.not_written(self.folder, str(error.strerror))) from error


def remove_unfinished(store: Path) -> None:
    """Remove what calls of git that were killed, or found no space, have left in the store.

    Only for the process that has the lock alone.
    """
    with contextlib.suppress(OSError):
        for path in (p for pattern in _UNFINISHED for p in store.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def of(context: contexts.Context) -> Store:
    """Return the user's store."""
    return of_configuration(context.configuration, context.environ)


def of_configuration(configuration: config.Configuration, environ: Mapping[str, str]) -> Store:
    """Return the store of this configuration."""
    return Store(
        folder=configuration.state_dir / "code",
        environ=environ,
        shared_folders=configuration.shared_folders,
    )


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
