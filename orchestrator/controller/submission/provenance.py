"""Where a job came from: the working tree's commit and changes, the command, the versions."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.files import users

#: A diff beyond this is cut: it is kept to tell what ran, not as a backup.
DIFF_LIMIT_BYTES = 1024 * 1024
#: git status on a slow shared file system; the job does not wait longer for its papers.
GIT_TIMEOUT_SECONDS = 10.0
#: What nobody reads beyond it: the list of a tree with a million new files.
_OUTPUT_LIMIT_BYTES = 4 * DIFF_LIMIT_BYTES
#: What a repository's own configuration would have git execute: a working tree may come from
#: anywhere, its .git folder with it. git-config(1) describes each.
_SWITCHED_OFF = (
    "core.fsmonitor=",
    "core.hooksPath=/dev/null",
    # Only of the tree that the folder belongs to, not of a bare repository that lies in it.
    "safe.bareRepository=explicit",
)
#: Objects that a partial clone lacks are not fetched: that runs ssh, or what the remote names.
_NO_FETCH = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    # A read-only or busy tree is not disturbed (man git).
    "GIT_OPTIONAL_LOCKS": "0",
}
_STATUS = ("status", "--porcelain", "--ignore-submodules=dirty")
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--ignore-submodules=dirty", "--submodule=short", "HEAD"),
)

Git = Callable[[Sequence[str]], str | None]


def git_in(folder: Path) -> Git:
    """Return a function that runs git in `folder`: its output, or None when it failed.

    All its calls together take at most GIT_TIMEOUT_SECONDS.
    Where git would find no tree it is not started: that would be a process for each submission.
    """
    places = (folder, *folder.parents)
    if "GIT_DIR" not in os.environ and not any((place / ".git").exists() for place in places):
        return lambda arguments: None
    left_seconds = GIT_TIMEOUT_SECONDS

    def git(arguments: Sequence[str]) -> str | None:
        nonlocal left_seconds
        begun = time.monotonic()
        try:
            return _run(_command(folder, arguments), left_seconds)
        finally:
            left_seconds = max(0.0, left_seconds - (time.monotonic() - begun))

    return git


def _command(folder: Path, arguments: Sequence[str]) -> list[str]:
    settings = [word for setting in _SWITCHED_OFF for word in ("-c", setting)]
    return ["git", "-C", str(folder), *settings, *arguments]


def _run(command: Sequence[str], timeout_seconds: float) -> str | None:
    """Return what a command prints, at most the limit; None where it fails or takes too long."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_NO_FETCH},
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    assert process.stdout is not None
    # The clock runs for all that git starts: its children may hold the pipe open.
    clock = threading.Timer(timeout_seconds, _kill, [process])
    clock.start()
    try:
        with process.stdout as stream:
            output = stream.read(_OUTPUT_LIMIT_BYTES + 1)
        is_cut = len(output) > _OUTPUT_LIMIT_BYTES
        if is_cut:
            _kill(process)
        code = process.wait()
    finally:
        clock.cancel()
        if process.returncode is None:
            _kill(process)
            process.wait()
    return output.decode(errors="replace") if code == 0 or is_cut else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _filters(listing: str) -> set[str]:
    """Return the keys of all filters, from `git config --list -z`."""
    keys = (entry.partition("\n")[0] for entry in listing.split("\0"))
    return {key for key in keys if key.startswith("filter.")}


def collect(
    *,
    version: str,
    argv: Sequence[str],
    spec_source: str,
    template: str,
    template_hash: str,
    folder: Path,
    git: Git,
) -> str:
    """Return what is kept with the job, as JSON; `git` fields are null outside a working tree.

    Filters are switched off, the user's own too: git-lfs and git-annex run what the repository's
    configuration names. Files that go through one are recorded as they are in the working tree,
    and count as changed where git cannot tell by size and time that they are not.
    """
    commit = git(["rev-parse", "HEAD"])
    listing = git(["config", "--list", "-z"]) if commit else None
    filters = sorted(_filters(listing or ""))
    off = [word for key in filters for word in ("-c", f"{key}=")]
    # `git -c` takes the first = for the end of the key: such a filter cannot be switched off.
    is_safe = listing is not None and not any("=" in key for key in filters)
    status = git([*off, *_STATUS]) if is_safe else None
    diff = git([*off, *_DIFF]) if status else None
    cut = diff is not None and len(diff.encode()) > DIFF_LIMIT_BYTES
    if diff is not None and cut:
        diff = diff.encode()[:DIFF_LIMIT_BYTES].decode(errors="ignore")
    return json.dumps(
        {
            "orchestrator_version": version,
            "argv": list(argv),
            "spec": spec_source,
            "template": template,
            "template_sha256": template_hash,
            "host": socket.gethostname(),
            "user": users.user_name(),
            "python": platform.python_version(),
            "folder": str(folder),
            "git_commit": commit.strip() if commit else None,
            "git_dirty": None if status is None else bool(status),
            "git_status": status,
            "git_diff": diff,
            "git_diff_cut": cut,
            "git_filters_off": sorted({key.split(".", 1)[1].rpartition(".")[0] for key in filters}),
        },
        indent=1,
    )
