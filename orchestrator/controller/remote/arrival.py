"""What a command that came from another computer finds here: its folder, and its working tree."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import errors
from orchestrator.config import paths, projects, trust
from orchestrator.controller.remote import keeper, requests
from orchestrator.controller.session import callers

if TYPE_CHECKING:
    from orchestrator.controller.code import store as stores


@contextlib.contextmanager
def entered(
    command: keeper.Command,
    code: Callable[[], stores.Store],
    environ: Mapping[str, str],
    *,
    is_read_only: bool,
) -> Iterator[callers.Caller]:
    """Change to the folder of a command, in a copy of the client's working tree if it sent one.

    The keeper removes the copy. code: opens the store of snapshots. is_read_only: the client may
    only look, so it decides about no trust. Raises OrchestratorError.
    """
    run = command.run
    start_folder = Path(run.folder or "~").expanduser()
    try:
        os.chdir(start_folder)
    except OSError as error:
        raise errors.OrchestratorError(
            f"{run.folder}: {error.strerror}. Set `folder` in [hosts]."
        ) from error
    if run.tree is None:
        yield callers.Caller(request=run.request)
        return
    root = Path(os.path.realpath(requests.Request(command.folder).copy))
    umask = os.umask(0o077)
    try:
        code().extract(run.tree.id, root)
        # The root of the tree: projects' files and snapshots end there.
        (root / ".git").mkdir(exist_ok=True)
        if not _is_inside(root / run.tree.folder, root):
            raise errors.OrchestratorError(f"{run.tree.folder}: leads out of the working tree")
        (root / run.tree.folder).mkdir(parents=True, exist_ok=True)
        os.chdir(root / run.tree.folder)
    except OSError as error:
        raise errors.OrchestratorError(f"cannot write {root}: {error.strerror}") from error
    finally:
        os.umask(umask)
    carried = callers.Carried(
        tree=run.tree.id, root=root, origin=run.tree.origin, start_folder=start_folder
    )
    is_trusted = run.tree.is_trusted and not is_read_only
    with _trusted(root, environ) if is_trusted else contextlib.nullcontext():
        yield callers.Caller(request=run.request, carried=carried)


def _is_inside(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


@contextlib.contextmanager
def _trusted(root: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Trust the copy of the project's file, which the user trusts on the other computer.

    What a link leads to outside of the copy is not what the user reviewed there.
    """
    path = paths.project_file(Path.cwd())
    reviewed = None if path is None else projects.review(path, environ)
    if path is None or reviewed is None:
        yield
        return
    if not all(_is_inside(each, root) for each in (path, *reviewed.named)):
        yield
        return
    trust.record(environ, path, reviewed.digest)
    try:
        yield
    finally:
        trust.remove(environ, path)
