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
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.code import git
from orchestrator.controller.session import contexts
from orchestrator.processes import process
from orchestrator.text import escaping, nouns

#: For one call: a cold tree on a busy file system takes minutes.
_TIMEOUT_SECONDS = 1800.0
#: In RUNS_DIR: what jobs unpack, one file for each tree.
ARCHIVES = ".code"
#: Where git keeps the references to the trees.
_REFERENCES = "refs/snapshots"
#: A file of a list; a larger difference is cut.
_LISTING_BYTES = 256 * 1024**2
#: Fields of a job's provenance, with a diff of 1 MiB and the names of untracked files as JSON.
_PROVENANCE_BYTES = 64 * 1024**2
#: Drafts of processes that were killed are removed after this time.
_DRAFT_SECONDS = 24 * 3600


class SnapshotError(errors.RunFolderError):
    """A snapshot cannot be taken or read now; the controller tries again."""


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
        self._make()
        with self._locked():
            return self._take(root, names, nested)

    def _take(self, root: Path, names: Sequence[str], nested: Mapping[str, str]) -> str:
        kept = self.folder / "indexes" / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        draft = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
        call = _Call(self, root=root, index=draft)
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
            add = dataclasses.replace(call, version=_Call(self).result("version").stdout)
            add("update-index", *options, stdin=git.joined(names))
            # The kept index has only the files of this root; git writes none without files.
            own = draft.with_name(f"{draft.name}.own") if nested else draft
            if nested and draft.exists():
                shutil.copy2(draft, own)
            for folder, tree in nested.items():
                call("read-tree", f"--prefix={folder}/", tree)
            tree = call("write-tree").strip()
            call("update-ref", f"{_REFERENCES}/{tree}", tree)
            # prune keeps what was used within a day; git does not write an equal reference again.
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.folder / _REFERENCES / tree)
            # Not before: prune removes objects that no reference needs.
            if own.exists():
                os.replace(own, kept)
        except OSError as error:
            raise SnapshotError(f"cannot write {self.folder}: {error.strerror}") from error
        finally:
            for path in (draft, *draft.parent.glob(f"{draft.name}.*"), *self._old_drafts()):
                path.unlink(missing_ok=True)
        return tree

    def keep_provenance(self, tree: str, working_tree: Mapping[str, object]) -> None:
        """Store what the repository of a snapshot was like: fields of a job's provenance.

        Raises SnapshotError.
        """
        path = self._provenance(tree)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            files.replace(path, json.dumps(working_tree).encode())
        except OSError as error:
            raise SnapshotError(f"cannot write {path}: {error.strerror}") from error

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
        """Return whether the snapshot is stored."""
        if git.TREE_ID.fullmatch(tree) is None or not self.folder.is_dir():
            return False
        reference = ("show-ref", "--verify", "--quiet", f"{_REFERENCES}/{tree}")
        return _Call(self).result(*reference).returncode == 0

    def read(self, tree: str) -> list[git.File]:
        """Return the files of a snapshot in git's order; raises SnapshotError."""
        self._require(tree)
        listed = _Call(self)("ls-tree", "-r", "-z", "--long", tree)
        try:
            return list(git.files_of_tree(listed))
        except ValueError as error:
            raise SnapshotError(f"files of snapshot {tree} are missing in {self.folder}") from error

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

    def content(self, tree: str, path: str, *, limit_bytes: int) -> bytes:
        """Return the content of a file, at most `limit_bytes`; raises SnapshotError."""
        self._require(tree)
        call = _Call(self, limit_bytes=limit_bytes)
        text = call("cat-file", "blob", f"{tree}:{path}", is_cut=True)
        return text.encode("utf-8", "surrogateescape")

    def difference(self, first: str, second: str, *, limit_bytes: int) -> str:
        """Return the difference of two snapshots as a unified diff; raises NoSnapshotError.

        It is cut at `limit_bytes`. Bytes that are not UTF-8 are surrogates.
        """
        for tree in (first, second):
            self._require(tree)
        call = _Call(self, limit_bytes=limit_bytes)
        options = ("-r", "-p", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")
        return call("diff-tree", *options, first, second, is_cut=True)

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
                call = _Call(self, root=draft, index=index)
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
                _Call(self)("archive", "--format=tar", f"--output={draft}", tree)
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
        self._make()
        environ = git.of_user(self.folder, self.environ)
        words = ["git", "config", "--includes", "--type=path", "--get", "core.excludesFile"]
        with contextlib.suppress(process.CommandNotFound):
            result = process.run(words, _TIMEOUT_SECONDS, environ, undecodable="surrogateescape")
            if result.returncode == 0 and result.stdout.strip():
                return Path(result.stdout.rstrip("\n"))
        home = Path(self.environ.get("HOME") or "/nonexistent")
        return Path(self.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "ignore"

    def untracked(self, root: Path, excludes: Path) -> list[str]:
        """Return the files and links of a tree that no pattern ignores; "NAME/": a repository.

        excludes: a file with patterns beside those of .gitignore files. Raises SnapshotError.
        """
        self._make()
        # An empty index: all files are untracked.
        call = _Call(self, root=root, index=self.folder / "indexes" / "none", excludes=excludes)
        return git.split(call("ls-files", "-z", "--others", "--exclude-standard", is_complete=True))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no objects be pruned meanwhile: an index may name some that nothing else needs."""
        with contextlib.ExitStack() as stack:
            # Some file systems have no locks.
            with contextlib.suppress(OSError):
                descriptor = os.open(
                    self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

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

    def _make(self) -> None:
        """Create the store; a process that was killed meanwhile leaves nothing that counts."""
        try:
            files.make_private_folder(
                self.folder.parent, shared_folders=self.shared_folders, setting="state_dir"
            )
            if not (self.folder / "indexes").is_dir():
                draft = Path(tempfile.mkdtemp(prefix=".code.", dir=self.folder.parent))
                try:
                    creation = dataclasses.replace(self, folder=draft)
                    _Call(creation)("init", "--quiet", "--bare", "--template=")
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
            raise SnapshotError(f"cannot create {self.folder}: {error.strerror}") from error


def of(context: contexts.Context) -> Store:
    """Return the user's store."""
    configuration = context.configuration
    return Store(
        folder=configuration.state_dir / "code",
        environ=context.environ,
        shared_folders=configuration.shared_folders,
    )


@dataclasses.dataclass(frozen=True)
class _Call:
    """Runs git on the store."""

    store: Store
    root: Path | None = None
    index: Path | None = None
    version: str = ""
    excludes: Path | None = None
    limit_bytes: int = _LISTING_BYTES

    def __call__(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        is_cut: bool = False,
        is_complete: bool = False,
    ) -> str:
        """Return what a call prints; raises SnapshotError.

        is_cut: a long output is cut. is_complete: a warning (a folder is unreadable) is an error.
        """
        try:
            result = self.result(*arguments, stdin=stdin)
        except process.TooMuchOutputError as error:
            if is_cut:
                return error.output
            raise
        is_doubtful = is_complete and "warning: " in result.stderr
        if result.timed_out or result.returncode or is_doubtful:
            detail = next(
                iter(result.stderr.strip().splitlines()), f"exit code {result.returncode}"
            )
            if result.timed_out:
                detail = f"no end after {_TIMEOUT_SECONDS:.0f} s"
            where = f"{self.root}: " if self.root else ""
            command = f"git {arguments[0]}"
            raise SnapshotError(escaping.visible(f"{where}{command} failed: {detail}"))
        return result.stdout

    def result(self, *arguments: str, stdin: bytes | None = None) -> process.Result:
        settings = git.settings(self.version, excludes=self.excludes)
        environ = git.environment(
            self.store.folder, self.store.environ, root=self.root, index=self.index
        )
        try:
            return process.run(
                ["git", *settings, *arguments],
                _TIMEOUT_SECONDS,
                environ,
                folder=None if self.root is None else str(self.root),
                stdin=stdin,
                max_output_bytes=self.limit_bytes,
                undecodable="surrogateescape",
            )
        except process.CommandNotFound as error:
            raise SnapshotError(
                f"{error}. Snapshots of code need git: install it, load its module, or submit with "
                "--no-snapshot"
            ) from error


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
