"""The provenance of a job: commit and changes of the working tree, command, versions."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orchestrator
from orchestrator import files, jobs
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import job_scripts
from orchestrator.processes import process

#: A longer diff is cut: it shows what ran and is no backup.
DIFF_LIMIT_BYTES = 1024 * 1024
#: git status can be slow on a shared file system; the submission does not wait longer.
GIT_TIMEOUT_SECONDS = 10.0
#: Limit of what git prints: a tree may have a million untracked files.
_OUTPUT_LIMIT_BYTES = 4 * DIFF_LIMIT_BYTES
#: Settings that make git execute programs: a .git folder may come from anywhere (git-config(1)).
#: Here, and not in orchestrator.code.git: `submit` loads that only for a snapshot.
SWITCHED_OFF = (
    *("-c", "core.fsmonitor="),
    *("-c", "core.hooksPath=/dev/null"),
    # Use the tree that the folder belongs to, not a bare repository inside it.
    *("-c", "safe.bareRepository=explicit"),
)
#: Missing objects of a partial clone are not fetched: that runs ssh, or a program of the remote.
READ_ONLY = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    # Do not write to the tree (man git).
    "GIT_OPTIONAL_LOCKS": "0",
}
_STATUS = ("status", "--porcelain", "--ignore-submodules=dirty")
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--ignore-submodules=dirty", "--submodule=short", "HEAD"),
)

Git = Callable[[Sequence[str]], str | None]


def git_in(folder: Path) -> Git:
    """Return a function that runs git in `folder` and returns its output, cut at a limit.

    It returns None if git fails or takes too long. All its calls together take at most
    GIT_TIMEOUT_SECONDS.
    """
    folders = (folder, *folder.parents)
    if "GIT_DIR" not in os.environ and not any((path / ".git").exists() for path in folders):
        return lambda arguments: None
    left_seconds = GIT_TIMEOUT_SECONDS

    def git(arguments: Sequence[str]) -> str | None:
        nonlocal left_seconds
        started = time.monotonic()
        try:
            result = process.run(
                ["git", "-C", str(folder), *SWITCHED_OFF, *arguments],
                left_seconds,
                {**os.environ, **READ_ONLY},
                max_output_bytes=_OUTPUT_LIMIT_BYTES,
            )
        except process.CommandNotFound:
            return None
        except process.TooMuchOutputError as error:
            return error.output
        finally:
            left_seconds = max(0.0, left_seconds - (time.monotonic() - started))
        return None if result.timed_out or result.returncode else result.stdout

    return git


def collect(
    context: contexts.Context,
    request: job_scripts.Request,
    *,
    template: tuple[str, str],
    folder: Path | None = None,
    git: Git | None = None,
) -> str:
    """Return the provenance of a submission as JSON; its `git` fields are null without git.

    template: name and SHA-256. folder: where the command was called, if not here. git: runs git
    there; pass one that caches its output for several submissions.

    Filters of git are switched off: git-lfs and git-annex run what the repository's configuration
    names. A file with a filter is recorded as it is in the working tree, and counts as changed if
    git cannot tell by its size and time that it is not.
    """
    called_in = folder or context.calling_folder
    working_tree = None
    if (tree := request.spec.code.tree) is not None:
        from orchestrator.controller.code import store

        # It may be older than what is in the folder now.
        working_tree = store.of(context).provenance(tree)
    if working_tree is None:
        with context.reporter.activity("Looking at the working tree (git)"):
            working_tree = of_working_tree(git or git_in(called_in))
    return json.dumps(
        {
            "orchestrator_version": orchestrator.__version__,
            "argv": list(request.argv),
            "spec": request.source,
            "template": template[0],
            "template_sha256": template[1],
            "host": socket.gethostname(),
            "user": files.user_name(),
            "python": platform.python_version(),
            "container": _container(context, request.spec, called_in),
            "folder": str(called_in),
            **working_tree,
        },
        indent=1,
    )


def of_working_tree(git: Git) -> dict[str, object]:
    """Return commit, branch and uncommitted changes, in fields that begin with `git_`.

    All are None without git. git: of git_in(). For filters see collect().
    """
    named = (git(["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"]) or "").splitlines()
    commit, branch = named if len(named) == 2 else (None, "")
    listing = git(["config", "--list", "-z"]) if commit else None
    keys = {entry.partition("\n")[0] for entry in (listing or "").split("\0")}
    filters = sorted(key for key in keys if key.startswith("filter."))
    off = [word for key in filters for word in ("-c", f"{key}=")]
    # `git -c` ends the key at the first "=", so such a filter cannot be switched off.
    is_safe = listing is not None and not any("=" in key for key in filters)
    status = git([*off, *_STATUS]) if is_safe else None
    diff = git([*off, *_DIFF]) if status else None
    is_cut = diff is not None and len(diff.encode()) > DIFF_LIMIT_BYTES
    if diff is not None and is_cut:
        diff = diff.encode()[:DIFF_LIMIT_BYTES].decode(errors="ignore")
    return {
        "git_commit": commit,
        # Without a branch HEAD is a commit.
        "git_branch": branch.removeprefix("refs/heads/") if branch.startswith("refs/") else None,
        "git_dirty": None if status is None else bool(status),
        "git_status": status,
        "git_diff": diff,
        "git_diff_cut": is_cut,
        "git_filters_off": sorted({key.split(".", 1)[1].rpartition(".")[0] for key in filters}),
    }


def _container(
    context: contexts.Context, spec: jobs.JobSpec, folder: Path
) -> dict[str, object] | None:
    """Return the identity of the job's container image; None without a container."""
    if spec.container.runtime == "none":
        return None
    from orchestrator.controller.environments import images

    image = images.describe(context, spec.container, folder / (spec.chdir or ""))
    return dataclasses.asdict(image)
