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
    command: keeper.Command, code: Callable[[], stores.Store], environ: Mapping[str, str]
) -> Iterator[callers.Caller]:
    """Change to the folder of a command, in a copy of the client's working tree if it sent one.

    The keeper removes the copy. code: opens the store of snapshots. Raises OrchestratorError.
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
        (root / run.tree.folder).mkdir(parents=True, exist_ok=True)
        os.chdir(root / run.tree.folder)
    except OSError as error:
        raise errors.OrchestratorError(f"cannot write {root}: {error.strerror}") from error
    finally:
        os.umask(umask)
    carried = callers.Carried(
        tree=run.tree.id, root=root, origin=run.tree.origin, start_folder=start_folder
    )
    with _trusted(Path.cwd(), environ) if run.tree.is_trusted else contextlib.nullcontext():
        yield callers.Caller(request=run.request, carried=carried)


@contextlib.contextmanager
def _trusted(folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Trust the copy of the project's file, which the user trusts on the other computer."""
    path = paths.project_file(folder)
    if path is None:
        yield
        return
    trust.record(environ, path, projects.review(path, environ).digest)
    try:
        yield
    finally:
        trust.remove(environ, path)
