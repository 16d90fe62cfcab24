"""Commands of users on the hosts: starting, finding and killing them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

from tests.cluster import environment, fleet, hosts

PATH = f"{environment.PLACE}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def command(
    init: hosts.Process,
    argv: Sequence[str],
    *,
    user: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> list[str]:
    """The words that run `argv` in a fresh login environment of a user, on the host of `init`."""
    variables = surroundings(user, env)
    # setpriv and env replace themselves with the command: there is no process in between.
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    folder = cwd or folder_of(user)
    return [
        *hosts.enter_command(init),
        *(become if user != "root" else []),
        *("env", "-i", "-C", folder, *(f"{name}={value}" for name, value in variables.items())),
        *argv,
    ]


def surroundings(user: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a fresh login of a user, and `env`."""
    return {
        "HOME": "/root" if user == "root" else f"/home/{user}",
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": PATH,
        **(env or {}),
    }


def folder_of(user: str) -> str:
    """Where a command of a user runs."""
    return "/" if user == "root" else f"/home/{user}"


def process(popen: subprocess.Popen[str]) -> hosts.Process:
    """The command itself, which is the child of the wrapper that `popen` started.

    `ProcessLookupError` when it has ended.
    """
    # The wrapper has no child yet for a moment.
    fleet.wait_for(
        lambda: popen.poll() is not None or hosts.descendants(popen.pid),
        10,
        "the command to start",
        0.01,
    )
    for child in hosts.descendants(popen.pid):
        return hosts.Process.of(child)
    raise ProcessLookupError(f"{popen.args!r} has ended")


def kill_tree(popen: subprocess.Popen[str]) -> None:
    """Kill the command and all its descendants."""
    below = []
    for pid in hosts.descendants(popen.pid):
        with contextlib.suppress(ProcessLookupError):
            below.append(hosts.Process.of(pid))
    for each in below:
        each.signal(signal.SIGKILL)
    # The wrapper first buries its child: an orphan would be left to this machine's first process.
    # It stops itself when its child was stopped.
    popen.send_signal(signal.SIGCONT)
    try:
        popen.wait(10)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
