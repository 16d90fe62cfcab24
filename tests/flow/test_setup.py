"""script/setup and script/demo on machines that lack something: what is wrong, and the cure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

#: What the scripts call; no Python, no uv, no apt-get.
TOOLS = (
    *("sh", "awk", "basename", "cat", "cksum", "dirname", "env", "grep", "id", "ls", "mkdir"),
    *("mktemp", "rm", "sed", "tail", "uname"),
)
TOO_OLD = """\
script/setup: no Python 3.11 or newer found. Install one (Debian, Ubuntu: apt-get install python3; \
a cluster: module load Python), or name one: PYTHON=/path/to/python3 script/setup
"""
#: A python3 that runs as any other, but has no pip to give to a venv, as on a bare Debian.
NO_ENSUREPIP = """\
#!/bin/sh
case "$*" in
*"import ensurepip"*) exit 1 ;;
esac
exec {python} "$@"
"""


@pytest.fixture
def tree(checkout: Path, tmp_path: Path) -> Path:
    """A checkout with what the scripts read, without an environment."""
    folder = tmp_path / "checkout"
    for name in ("script", "requirements"):
        shutil.copytree(checkout / name, folder / name)
    for name in ("examples/demo.py", "pyproject.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(checkout / name, folder / name)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's on a machine with the usual tools and no Python."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    home = tmp_path / "home"
    home.mkdir()
    # Where nobody listens: a package is never fetched.
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    return {"PATH": str(tools), "HOME": str(home), "PIP_CONFIG_FILE": os.devnull, **index}


def run(tree: Path, environ: Mapping[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", f"{tree}/script/{argv[0]}", *argv[1:]],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def install_python(environ: Mapping[str, str], text: str) -> str:
    path = Path(environ["PATH"]) / "python3"
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_no_python_or_one_that_is_too_old(tree: Path, environ: dict[str, str]) -> None:
    assert run(tree, environ, "setup").stderr == TOO_OLD
    old = install_python(environ, "#!/bin/sh\nexit 1\n")
    done = run(tree, environ, "demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(TOO_OLD)
    named = run(tree, {**environ, "PYTHON": old}, "setup")
    assert named.stderr == f"script/setup: PYTHON={old} is no Python 3.11 or newer\n"


def test_no_venv_module_and_nothing_to_fetch_one_with(tree: Path, environ: dict[str, str]) -> None:
    python = install_python(environ, NO_ENSUREPIP)
    done = run(tree, environ, "setup", "base")
    assert done.returncode == 1
    minor = sys.version_info[1]
    assert done.stderr == (
        f"script/setup: {python} makes no venv with pip, and without a network none can be fetched."
        f" On Debian or Ubuntu, as root: apt-get install python3.{minor}-venv. Without root: put uv"
        " on PATH, or name another Python: PYTHON=/path/to/python3 script/setup\n"
    )


def test_no_network(tree: Path, environ: dict[str, str]) -> None:
    done = run(tree, {**environ, "PYTHON": sys.executable}, "setup", "base")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "script/setup: no network: the package index can't be reached. Behind a mirror or a proxy"
        " set PIP_INDEX_URL or pip.conf, or https_proxy. What is already there is kept: run it"
        " again."
    )


def test_a_full_disk(tree: Path, environ: dict[str, str]) -> None:
    # pip's own words for it (pip 25.1 on a full tmpfs).
    install_python(
        environ,
        '#!/bin/sh\ncase "$*" in\n*" venv "*)\n'
        "  echo 'OSError: [Errno 28] No space left on device' >&2\n  exit 1 ;;\nesac\n"
        'exec {python} "$@"\n',
    )
    done = run(tree, environ, "setup", "base")
    assert done.returncode == 1
    assert re.fullmatch(
        r"script/setup: the disk is full: .* What is there is kept: run it again\.",
        done.stderr.splitlines()[-1],
    )


def test_folders_that_cannot_be_written(tree: Path, environ: dict[str, str]) -> None:
    # Not by permissions, which root does not mind.
    done = run(tree, {**environ, "ORCHESTRATOR_VENV": "/proc/venv"}, "setup")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "script/setup: /proc/venv can't be written; ORCHESTRATOR_VENV=DIR names another folder for"
        " the environment\n"
    )
    for words in (["--folder", "/proc/demo"], ["--folder=/proc/demo"]):
        done = run(tree, environ, "demo", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "script/demo: /proc/demo can't be written: --folder DIR names another one\n"
        )


def test_a_python_without_torch(tree: Path, environ: dict[str, str], tmp_path: Path) -> None:
    python = install_python(environ, "#!/bin/sh\nexit 1\n")
    done = run(tree, environ, "demo", "--python", python, "--folder", str(tmp_path / "f"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"script/demo: {python} lacks orchestrator, torch or scikit-learn: {python} -m pip install"
        f" '{tree}[train]', or leave --python out\n"
    )


def test_slurm_is_asked_for_where_there_is_none(
    checkout: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, checkout / "examples/demo.py", "--scheduler", "slurm", "--folder", "f"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "script/demo: there is no sbatch here; call it on the login node of a cluster, or without"
        " --scheduler slurm for this machine\n"
    )
    assert not (tmp_path / "f").exists()
