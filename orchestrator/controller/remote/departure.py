"""The working tree that a command takes along to a host."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from orchestrator.config import paths, projects
from orchestrator.controller.code import snapshots
from orchestrator.controller.code import store as stores
from orchestrator.controller.remote import transfer
from orchestrator.controller.session import contexts
from orchestrator.remote import messages


def of(context: contexts.Context) -> tuple[messages.WorkingTree, transfer.Tree]:
    """Take a snapshot of the current folder's working tree. Raises SpecError, SnapshotError."""
    folder = Path(os.path.realpath(context.folder))
    # The host reports it.
    silent = context.with_reporter(context.reporter.silent())
    tree, root = snapshots.of_folder(silent, folder)
    store = stores.of(context)
    working_tree = messages.WorkingTree(
        id=tree,
        folder=os.path.relpath(folder, root),
        origin=f"{socket.gethostname()}:{root}",
        is_trusted=_is_trusted(context, folder),
    )
    return working_tree, transfer.Tree(
        store=store, id=tree, provenance=store.provenance(tree) or {}
    )


def _is_trusted(context: contexts.Context, folder: Path) -> bool:
    path = paths.project_file(folder)
    if path is None:
        return False
    shared_folders = context.configuration.shared_folders
    return projects.read(path, context.environ, shared_folders).project.is_trusted
