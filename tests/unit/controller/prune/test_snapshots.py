"""Code snapshots in a real git store: what a stored spec names stays, with all its objects."""

from __future__ import annotations

import datetime
import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from orchestrator.controller.code import store
from orchestrator.controller.prune import plan, removal, snapshots
from orchestrator.controller.session import contexts, stores
from tests import builders, pruning

DAY = datetime.timedelta(days=1)


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    with stores.Store(database_file) as store:
        environ = {"PATH": os.environ["PATH"]}
        made = builders.make_context(tmp_path, store, environ=environ)
        store_folder = snapshots.store_folder(made)
        store_folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", "--bare", "--template=", store_folder], check=True)
        yield made


def later(context: contexts.Context, days: float = 2.0) -> contexts.Context:
    """Return the context some days later: the times of files cannot be chosen (ctime)."""
    now = datetime.datetime.now(datetime.UTC) + days * DAY
    return builders.with_clock(context, now=now)


def git(context: contexts.Context, *argv: str, text: str = "") -> str:
    command = ["git", "-C", str(snapshots.store_folder(context)), *argv]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def take(context: contexts.Context, content: str, *, reference: bool = True) -> str:
    """Store a snapshot of one file, with its archive; return its tree."""
    blob = git(context, "hash-object", "-w", "--stdin", text=content)
    tree = git(context, "mktree", text=f"100644 blob {blob}\ttrain.py\n")
    if reference:
        git(context, "update-ref", f"refs/snapshots/{tree}", tree)
    folder = context.configuration.runs_dir / ".code"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / f"{tree}.tar").write_text(f"archive of {content}")
    return tree


def name_in_spec(context: contexts.Context, tree: str) -> None:
    world = pruning.World(context)
    (job,) = world.add("demo", goes=False)
    with context.store.writing() as work:
        work._connection.exec_driver_sql(
            f"""UPDATE submissions SET spec = '{{"code": {{"tree": "{tree}"}}}}' """
            f"WHERE token = '{job.token}'"
        )


def trees_of(found: list[snapshots.Snapshot]) -> list[str | None]:
    return [each.tree for each in found]


def test_only_unused_snapshots_go(context: contexts.Context) -> None:
    used, unused = take(context, "used"), take(context, "unused")
    for tree in (used, unused):
        store.of(context).keep_provenance(tree, {})
    name_in_spec(context, used)
    assert snapshots.unused(context) == [], "a submission may be about to use it"
    context = later(context)
    found = snapshots.unused(context)
    assert trees_of(found) == [unused]
    assert [each.path.name for each in found] == [f"{unused}.tar"]
    selection = plan.Selection(query=jobs.JobQuery(limit=None), code=True)
    planned = plan.make(context, selection)
    (item,) = planned.items
    assert (item.kind, item.reason) == (
        "code snapshot",
        "no stored job, sweep, schedule or graph names it",
    )
    assert removal.carry_out(context, planned).problems == []
    assert git(context, "for-each-ref", "--format=%(refname)") == f"refs/snapshots/{used}"
    names = [path.name for path in (context.configuration.runs_dir / ".code").iterdir()]
    assert names == [f"{used}.tar"]
    kept = [tree for tree in (used, unused) if store.of(context).provenance(tree) is not None]
    assert kept == [used]
    assert git(context, "cat-file", "-p", f"{used}:train.py") == "used"
    assert snapshots.unused(context) == []


def test_young_objects_without_a_reference_stay(context: contexts.Context) -> None:
    old = take(context, "old")
    # What a submission has stored so far.
    blob = git(context, "hash-object", "-w", "--stdin", text="being stored")
    assert trees_of(snapshots.remove(later(context))) == [old]
    assert git(context, "cat-file", "-p", blob) == "being stored"


def test_objects_of_a_pack_without_a_reference_stay(context: contexts.Context) -> None:
    blob = git(context, "hash-object", "-w", "--stdin", text="being stored")
    git(context, "pack-objects", "-q", "objects/pack/pack", text=f"{blob}\n")
    git(context, "prune-packed")
    kept = take(context, "kept")
    snapshots.remove(context)
    assert git(context, "cat-file", "-p", blob) == "being stored"
    assert git(context, "cat-file", "-p", f"{kept}:train.py") == "kept"


def test_drafts_and_archives_without_a_reference(context: contexts.Context) -> None:
    tree = take(context, "gone", reference=False)
    folder = context.configuration.runs_dir / ".code"
    (folder / f"{tree}.tar.draft.17").touch()
    (folder / "other").symlink_to("/etc/passwd")
    indexes = snapshots.store_folder(context) / "indexes"
    indexes.mkdir()
    for name in ("0a1b", "0a1b.17", "0a1b.17.own"):
        (indexes / name).touch()
    context = later(context)
    found = snapshots.unused(context)
    assert trees_of(found) == [None] * 4
    snapshots.remove(context)
    assert [path.name for path in folder.iterdir()] == ["other"]
    assert [path.name for path in indexes.iterdir()] == ["0a1b"]


def test_an_index_does_not_outlive_its_objects(context: contexts.Context, tmp_path: Path) -> None:
    """As snapshots are taken: unchanged files are not read again."""
    indexes = snapshots.store_folder(context) / "indexes"
    indexes.mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/train.py").write_text("unchanged")

    def add() -> str:
        argv = ["git", "update-index", "--add", "train.py"]
        environ = {
            **os.environ,
            "GIT_DIR": str(snapshots.store_folder(context)),
            "GIT_WORK_TREE": str(tmp_path / "root"),
            "GIT_INDEX_FILE": str(indexes / "0a1b"),
        }
        subprocess.run(argv, env=environ, cwd=tmp_path / "root", check=True)
        done = subprocess.run(
            ["git", "write-tree"], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    tree = add()
    git(context, "update-ref", f"refs/snapshots/{tree}", tree)
    for path in snapshots.store_folder(context).glob("objects/??/*"):
        os.utime(path, (1, 1))
    there = later(context)
    snapshots.remove(there)
    assert subprocess.run(
        ["git", "-C", snapshots.store_folder(context), "cat-file", "-e", tree], check=False
    ).returncode
    assert add() == tree


def test_nothing_is_removed_while_a_snapshot_is_taken(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = take(context, "x")
    there = later(context)
    # Instead of waiting.
    monkeypatch.setattr(fcntl, "LOCK_EX", fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(snapshots.store_folder(context) / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(errors.OrchestratorError, match="Resource temporarily unavailable"):
            snapshots.remove(there)
        assert git(context, "cat-file", "-t", tree) == "tree"
        assert git(context, "for-each-ref", "--format=%(refname)") == f"refs/snapshots/{tree}"
    snapshots.remove(there)
    assert git(context, "for-each-ref") == ""


def test_nothing_is_removed_on_a_file_system_without_locks(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = take(context, "x")

    def failing(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", failing)
    selection = plan.Selection(query=jobs.JobQuery(limit=None), code=True)
    there = later(context)
    result = removal.carry_out(there, plan.make(there, selection))
    assert result.problems == [
        f"no code snapshot was removed, because {snapshots.store_folder(context)} cannot be locked "
        "(No locks available): one that is being taken could lose files. Move state_dir to a file "
        "system with locks."
    ]
    assert git(context, "for-each-ref", "--format=%(refname)") == f"refs/snapshots/{tree}"


def test_what_a_killed_removal_has_left(context: contexts.Context) -> None:
    """Locks of git would stop each further one."""
    tree = take(context, "x")
    store_folder = snapshots.store_folder(context)
    for name in ("packed-refs.lock", f"refs/snapshots/{tree}.lock"):
        (store_folder / name).touch()
    there = later(context)
    snapshots.remove(there)
    assert git(context, "for-each-ref") == ""


def test_a_damaged_store(context: contexts.Context) -> None:
    """The message says what to do."""
    tree = take(context, "gone")
    used = take(context, "used")
    name_in_spec(context, used)
    store_folder = snapshots.store_folder(context)
    blob = git(context, "rev-parse", f"{used}:train.py")
    (store_folder / "objects" / blob[:2] / blob[2:]).unlink()
    selection = plan.Selection(query=jobs.JobQuery(limit=None), code=True)
    there = later(context)
    (problem,) = removal.carry_out(there, plan.make(there, selection)).problems
    head, what, tail = problem.partition(blob)
    assert head.startswith(f"the store of snapshots {store_folder} is damaged (git repack: ")
    assert (what, tail[-37:]) == (blob, ". Nothing that is needed was removed.")
    assert tree not in git(context, "for-each-ref")


def test_an_archive_in_use_counts_as_used(context: contexts.Context, tmp_path: Path) -> None:
    take(context, "unused")
    (archive,) = (context.configuration.runs_dir / ".code").glob("*.tar")
    os.link(archive, tmp_path / "code.tar")
    (found,) = snapshots.unused(later(context))
    # Nothing is freed while a run folder has it.
    assert found.size_bytes == 0


@pytest.mark.parametrize("place", ["update-ref", "repack", "prune"])
def test_interrupted_after_each_step(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    used = take(context, "used")
    name_in_spec(context, used)
    take(context, "unused")
    context = later(context)
    git_of = snapshots._git

    class Killed(BaseException):
        pass

    def killed(there: contexts.Context, arguments: list[str], *rest: float, **more: str) -> str:
        if arguments[0] == place:
            raise Killed
        return git_of(there, arguments, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "_git", killed)
        with pytest.raises(Killed):
            snapshots.remove(context)
    snapshots.remove(context)
    assert git(context, "for-each-ref", "--format=%(refname)") == f"refs/snapshots/{used}"
    assert git(context, "cat-file", "-p", f"{used}:train.py") == "used"
    assert snapshots.unused(context) == []


def test_a_failure_of_git_is_named(context: contexts.Context) -> None:
    take(context, "x")
    (snapshots.store_folder(context) / "HEAD").unlink()
    with pytest.raises(errors.OrchestratorError) as raised:
        snapshots.unused(context)
    folder = snapshots.store_folder(context)
    assert str(raised.value) == (
        f"the store of snapshots {folder} is damaged (git for-each-ref: fatal: not a git "
        f"repository: '{folder}'). Move it away, and submit again: `mv {folder} "
        f"{folder}.damaged`. Submitted jobs keep their code; `checkout` and `diff` no longer "
        "find the snapshots in it. Nothing that is needed was removed."
    )
