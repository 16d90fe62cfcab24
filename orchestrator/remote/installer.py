"""Installs orchestrator for one user of a host: a program for that host's Python.

`orchestrator setup --host` sends this file; it imports nothing but the standard library. stdin is
JSON: `version`, `digest` of the files, `files` (name -> base64 of a wheel), `extras` (null: those
of the last installation) and `offline` (the files are all that pip may use).

Each version has a folder of its own, so what runs keeps the modules that it began with:

    ~/.local/share/orchestrator/install/VERSION-DIGEST/    a virtual environment
    ~/.local/share/orchestrator/install/current            link to the newest
    ~/.local/bin/orchestrator                              link to the command in it
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

#: Written last: a folder without it was interrupted.
_COMPLETE = "orchestrator-setup-complete"


def main(request: dict[str, Any]) -> int:
    """Install what is not there yet; prints what it wrote, and what went wrong."""
    os.umask(0o077)
    data = os.environ.get("XDG_DATA_HOME", "")
    share = pathlib.Path(data if data.startswith("/") else "~/.local/share").expanduser()
    base = share / "orchestrator" / "install"
    current = base / "current"
    extras = request["extras"]
    if extras is None:
        extras = _stored_extras(current)
    target = base / "-".join([request["version"], request["digest"][:8], *extras])
    try:
        base.mkdir(parents=True, exist_ok=True)
        if (target / _COMPLETE).exists():
            print("probe state same")
        elif (failed := _build(target, request, extras)) is not None:
            print(f"probe failed {failed}")
            return 1
        else:
            print("probe state new")
        previous = os.path.realpath(current)
        _link(current, target)
        for folder in base.iterdir():
            if folder not in (target, current) and str(folder) != previous:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"probe installed {target}")
        print(f"probe base {base}")
        command = pathlib.Path("~/.local/bin/orchestrator").expanduser()
        ours = current / "bin" / "orchestrator"
        if command.is_symlink() and os.readlink(command) == str(ours):
            print(f"probe linked {command}")
        elif os.path.lexists(command):
            print(f"probe foreign {command}")
        else:
            command.parent.mkdir(parents=True, exist_ok=True)
            _link(command, ours)
            print(f"probe linked {command}")
    except OSError as error:
        print(f"probe failed {error}")
        return 1
    return 0


def _stored_extras(current: pathlib.Path) -> list[str]:
    try:
        return (current / _COMPLETE).read_text().split()
    except OSError:
        return []


def _build(target: pathlib.Path, request: dict[str, Any], extras: list[str]) -> str | None:
    """Make the virtual environment; return what failed: "venv" or "pip"."""
    shutil.rmtree(target, ignore_errors=True)
    _say(f"Creating {target} with Python {sys.version.split()[0]} ...")
    if subprocess.call([sys.executable, "-m", "venv", str(target)], stdout=2):
        shutil.rmtree(target, ignore_errors=True)
        return "venv"
    wheels = target / "wheels"
    wheels.mkdir()
    for name, content in request["files"].items():
        (wheels / name).write_bytes(base64.b64decode(content))
    (wheel,) = wheels.glob("orchestrator-*.whl")
    _say(f"Installing orchestrator {request['version']} and its dependencies ...")
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "2"]
    if request["offline"]:
        options += ["--no-index", "--find-links", str(wheels)]
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    python = str(target / "bin" / "python")
    if subprocess.call([python, "-m", "pip", "install", *options, wanted], stdout=2):
        shutil.rmtree(target, ignore_errors=True)
        return "pip"
    shutil.rmtree(wheels)
    (target / _COMPLETE).write_text("\n".join(extras))
    return None


def _link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Let a link point to `target`, at once."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    os.replace(draft, path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
