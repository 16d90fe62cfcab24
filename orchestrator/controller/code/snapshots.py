"""Takes the snapshots that specs request, once for each working tree, after all checks.

Call it at the outermost place: what starts from a stored spec has the tree in it, and nothing is
taken again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs, sweeps
from orchestrator.code import contents
from orchestrator.controller.code import python_paths, worktree
from orchestrator.controller.code import store as stores
from orchestrator.controller.session import callers, contexts
from orchestrator.controller.submission import job_scripts, provenance
from orchestrator.specs import programs
from orchestrator.text import escaping, nouns

_MB = 10**6
_INSTEAD = "is not taken: change to the folder of your code, or use --chdir"
_HOME = f"a snapshot of the home folder {_INSTEAD}"
_NOT_ALL = f"a snapshot of / {_INSTEAD}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tree:
    """A working tree that has to become a snapshot, with the trees inside it."""

    listings: tuple[worktree.Listing, ...]
    #: of all of them, relative to the root of the first
    found: Sequence[contents.Found]
    submodules_without_content: Sequence[str]
    names: contents.Names

    @classmethod
    def of(cls, listings: Sequence[worktree.Listing]) -> _Tree:
        found: list[contents.Found] = []
        empty: list[str] = []
        for listing in listings:
            at = os.path.relpath(listing.root, listings[0].root)
            if at == ".":
                found += listing.found
                empty += listing.submodules_without_content
            else:
                found += [dataclasses.replace(e, name=f"{at}/{e.name}") for e in listing.found]
                empty += [f"{at}/{name}" for name in listing.submodules_without_content]
        names = contents.Names(each.name for each in found)
        return cls(
            listings=tuple(listings), found=found, submodules_without_content=empty, names=names
        )

    @classmethod
    def stored(cls, store: stores.Store, tree: str) -> _Tree:
        """Return a tree that is a snapshot already. Raises SnapshotError."""
        found = [
            contents.Found(name=file.path, size_bytes=file.size_bytes) for file in store.read(tree)
        ]
        names = contents.Names(each.name for each in found)
        return cls(listings=(), found=found, submodules_without_content=(), names=names)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.found)

    def problems(self, settings: contents.Settings) -> list[errors.Problem]:
        """Return why it cannot be taken; one that is stored was checked before."""
        if not self.listings:
            return []
        root = str(self.listings[0].root)
        empty = self.submodules_without_content
        return contents.problems(self.found, self.names, empty, settings, root)


def taken(
    context: contexts.Context, requests: Sequence[job_scripts.Request]
) -> list[job_scripts.Request]:
    """Return the requests with their snapshots in `spec.code`; those without one are unchanged.

    A spec that has a tree keeps it. Raises SpecError with all problems of all working trees and
    specs, before anything is stored, and SnapshotError.
    """
    context = context.with_reporter(context.reporter.once())
    store = stores.of(context)
    home = Path(os.path.realpath(context.environ.get("HOME") or "/nonexistent"))
    trees: dict[tuple[Path, contents.Settings], _Tree] = {}
    planned: list[tuple[job_scripts.Request, Path, Path]] = []
    problems: dict[errors.Problem, None] = {}
    with context.reporter.activity("Taking a snapshot of the code (git)"):
        for request in requests:
            spec, source = request.spec, request.source
            folder = Path(os.path.realpath(context.folder / (spec.chdir or "")))
            root = Path(spec.code.root) if spec.code.root else worktree.root_of(folder, home)
            planned.append((request, folder, root))
            if not spec.code.snapshot:
                continue
            if escaping.visible(str(folder)) != str(folder):
                message = f"{escaping.visible(str(folder))}: rename it, its name is not printable"
                problems[errors.Problem(source=source, message=message)] = None
                continue
            if root in (home, Path("/")):
                message = _HOME if root == home else _NOT_ALL
                problems[errors.Problem(source=source, message=message)] = None
                continue
            if spec.code.tree is not None:
                problems |= dict.fromkeys(_outside(folder, root, source))
                continue
            key = root, contents.Settings.of(spec.code)
            if key not in trees:
                trees[key] = _tree(context, store, root)
                problems |= dict.fromkeys(trees[key].problems(key[1]))
            found, warnings = _path_problems(spec, folder, root, trees[key].names, source)
            problems |= dict.fromkeys(found)
            for warning in dict.fromkeys(warnings):
                context.reporter.warn(warning)
        if problems:
            raise errors.SpecError(list(problems))
        ids = {key: _id(context, store, key[0], tree) for key, tree in trees.items()}
        for (root, settings), tree_id in ids.items():
            if not trees[root, settings].listings:
                continue
            working_tree = provenance.of_working_tree(provenance.git_in(root))
            store.keep_provenance(tree_id, working_tree)
    for (root, settings), tree in trees.items():
        tree_id = ids[root, settings]
        context.reporter.info(
            f"Code: snapshot {tree_id[:12]} of {escaping.visible(_origin(context, root))} "
            f"({nouns.count(len(tree.found), 'file')}, {tree.size_bytes / _MB:.1f} MB)"
        )
    return [
        dataclasses.replace(request, spec=_with_snapshot(context, request.spec, folder, root, ids))
        for request, folder, root in planned
    ]


def of_folder(context: contexts.Context, folder: Path) -> tuple[str, Path]:
    """Take a snapshot of the working tree to which a folder belongs; return its ID and its root.

    The settings of the profile apply. Raises SpecError and SnapshotError.
    """
    spec = jobs.JobSpec(name="snapshot", code=jobs.Code(snapshot=True).over(context.profile.code))
    request = job_scripts.Request(spec=spec, source="the working tree")
    code = request_taken(dataclasses.replace(context, folder=folder), request).spec.code
    return str(code.tree), Path(str(code.root))


def request_taken(context: contexts.Context, request: job_scripts.Request) -> job_scripts.Request:
    """Return one request with its snapshot; see taken()."""
    return taken(context, [request])[0]


def sweep_taken(context: contexts.Context, sweep: sweeps.Sweep, source: str) -> sweeps.Sweep:
    """Return a sweep whose points have their snapshot, one for each working tree; see taken()."""
    shapes = {point.shape.key: point.spec for point in sweep.points}
    requests = [job_scripts.Request(spec=spec, source=source) for spec in shapes.values()]
    codes = [request.spec.code for request in taken(context, requests)]
    points = sweeps.with_code(sweep.points, dict(zip(shapes, codes, strict=True)))
    return dataclasses.replace(sweep, points=points)


def document_with(
    document: Mapping[str, Any], codes: Sequence[jobs.Code], source: str
) -> dict[str, Any]:
    """Return the keys of a spec's file with a snapshot, to be stored.

    codes: of the jobs that it describes. Raises SpecError if they have different snapshots.
    """
    if len({(code.tree, code.root) for code in codes}) > 1:
        message = (
            "the points of the sweep run in different working trees: submit one sweep for each"
        )
        raise errors.SpecError([errors.Problem(source=source, key="job.chdir", message=message)])
    table = {key: value for key, value in vars(codes[0]).items() if value not in (None, ())}
    return {**document, "code": table}


def _with_snapshot(
    context: contexts.Context,
    spec: jobs.JobSpec,
    folder: Path,
    root: Path,
    ids: dict[tuple[Path, contents.Settings], str],
) -> jobs.JobSpec:
    if not spec.code.snapshot:
        return spec
    relative = os.path.relpath(folder, root)
    if spec.code.tree is not None:
        code = dataclasses.replace(spec.code, folder=relative)
        return dataclasses.replace(spec, code=code)
    first = python_paths.inside(spec, context.environ, folder, root)
    if first:
        shown = ", ".join(escaping.visible(str(root / path)) for path in first)
        context.reporter.info(f"Python would import from {shown}: the copy comes first")
    code = dataclasses.replace(
        spec.code,
        tree=ids[root, contents.Settings.of(spec.code)],
        root=str(root),
        folder=relative,
        python_paths=tuple(first),
    )
    return dataclasses.replace(spec, code=code)


def _origin(context: contexts.Context, root: Path) -> str:
    carried = _carried(context, root)
    return str(root) if carried is None else carried.origin


def _carried(context: contexts.Context, root: Path) -> callers.Carried | None:
    """Return the working tree of another computer if `root` is its copy."""
    carried = context.carried
    return carried if carried is not None and root == carried.root else None


def _tree(context: contexts.Context, store: stores.Store, root: Path) -> _Tree:
    if (carried := _carried(context, root)) is not None and store.has(carried.tree):
        return _Tree.stored(store, carried.tree)
    configuration = context.configuration
    # Each snapshot would contain the copies of all earlier ones.
    folders = (configuration.runs_dir, configuration.state_dir)
    own = [Path(os.path.realpath(folder)) for folder in folders]
    listings = [worktree.listing(store, root, own)]
    for listing in listings:
        # A repository in a repository is a snapshot of its own, and part of the outer one.
        listings += [worktree.listing(store, listing.root / name, own) for name in listing.nested]
    return _Tree.of(listings)


def _id(context: contexts.Context, store: stores.Store, root: Path, tree: _Tree) -> str:
    """Return the ID of a tree, which becomes a snapshot if it is none yet."""
    carried = _carried(context, root)
    return carried.tree if carried and not tree.listings else _take(store, tree.listings)


def _take(store: stores.Store, listings: Sequence[worktree.Listing]) -> str:
    trees: dict[Path, str] = {}
    # The inner ones first.
    for listing in reversed(listings):
        nested = {name: trees[listing.root / name] for name in listing.nested}
        trees[listing.root] = store.take(listing.root, listing.names, nested)
    return trees[listings[0].root]


def _outside(folder: Path, root: Path, source: str) -> Iterator[errors.Problem]:
    if not folder.is_relative_to(root):
        message = f"{folder} is not in {root}, the folder of the snapshot"
        yield errors.Problem(source=source, key="job.chdir", message=escaping.visible(message))


def _path_problems(
    spec: jobs.JobSpec, folder: Path, root: Path, names: contents.Names, source: str
) -> tuple[list[errors.Problem], list[str]]:
    """Return problems and warnings for paths of a spec that the snapshot does not contain."""
    problems: list[errors.Problem] = []
    warnings: list[str] = []
    for named in contents.named_paths(spec, _program(spec.launch)):
        absolute = os.path.normpath(folder / named.path)
        relative = os.path.relpath(absolute, root)
        is_inside = relative in names
        if os.path.isabs(named.path) and is_inside and os.path.isfile(absolute):
            message = contents.not_the_copy(named, os.path.relpath(absolute, folder))
        elif not os.path.isabs(named.path) and not is_inside and os.path.lexists(absolute):
            message = contents.missing(named, absolute)
        else:
            continue
        if named.is_required:
            problems.append(errors.Problem(source=source, key=named.key, message=message))
        else:
            warnings.append(f"{named.key}: {message}")
    return problems, warnings


def _program(launch: jobs.Launch) -> str | None:
    """Return the file that is run; None for a module, a command on PATH, or a batch file."""
    python = programs.python_program(launch)
    if python is not None:
        return python.shown if python.module is None else None
    words = () if launch.batch_file is not None else programs.words(launch)
    if len(words) > 1 and words[0] in ("bash", "sh"):
        return words[1]
    return words[0] if words and "/" in words[0] else None
