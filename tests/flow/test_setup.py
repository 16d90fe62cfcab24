"""script/setup and script/demo on incomplete machines: error messages with a fix."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pip
import pytest

#: What the scripts call; no Python, no uv, no apt-get.
TOOLS = (
    *("sh", "awk", "basename", "cat", "cksum", "dirname", "env", "grep", "id", "ls", "mkdir"),
    *("mktemp", "rm", "sed", "tail", "uname"),
)
TOO_OLD = """\
script/setup: no Python 3.11 or newer found. Install one (Debian, Ubuntu: apt-get install python3; \
a cluster: module load Python), or select one: PYTHON=/path/to/python3 script/setup
"""
#: A python3 that cannot install pip into a venv, as on a bare Debian.
NO_ENSUREPIP = """\
#!/bin/sh
case "$*" in
*"import ensurepip"*) exit 1 ;;
esac
exec {python} "$@"
"""
#: One whose venv meets a full disk; Python's own words.
FULL_DISK = """\
#!/bin/sh
case "$*" in
*"import ensurepip"*) exit 0 ;;
*" venv "*)
    echo 'OSError: [Errno 28] No space left on device' >&2
    exit 1
    ;;
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
        executable = shutil.which(name)
        assert executable is not None
        (tools / name).symlink_to(executable)
    home = tmp_path / "home"
    home.mkdir()
    # Nothing listens there: packages cannot be downloaded.
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


def test_missing_or_too_old_python(tree: Path, environ: dict[str, str]) -> None:
    assert run(tree, environ, "setup").stderr == TOO_OLD
    old = install_python(environ, "#!/bin/sh\nexit 1\n")
    done = run(tree, environ, "demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(TOO_OLD)
    done = run(tree, {**environ, "PYTHON": old}, "setup")
    assert done.stderr == f"script/setup: PYTHON={old} is not Python 3.11 or newer\n"


def test_missing_venv_module_without_apt(tree: Path, environ: dict[str, str]) -> None:
    python = install_python(environ, NO_ENSUREPIP)
    done = run(tree, environ, "setup", "base")
    assert done.returncode == 1
    minor = sys.version_info[1]
    assert done.stderr == (
        f"script/setup: {python} cannot create a venv with pip, and pip cannot be downloaded"
        f" without a network. On Debian or Ubuntu, as root: apt-get install python3.{minor}-venv."
        " Without root: put uv on PATH, or select another Python: PYTHON=/path/to/python3"
        " script/setup\n"
    )


def make_venv(tree: Path) -> Path:
    """Create the environment with a copy of our pip: Debian may lack ensurepip."""
    venv = tree / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/*/site-packages")
    shutil.copytree(Path(pip.__file__).parent, site / "pip")
    return venv


def test_no_network(tree: Path, environ: dict[str, str]) -> None:
    make_venv(tree)
    done = run(tree, environ, "setup", "base")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "script/setup: cannot reach the package index. If there is a mirror or a proxy, set"
        " PIP_INDEX_URL or pip.conf, or https_proxy. Installed packages are kept; run it again."
    )


def test_a_full_disk(tree: Path, environ: dict[str, str]) -> None:
    install_python(environ, FULL_DISK)
    done = run(tree, environ, "setup", "base")
    assert done.returncode == 1
    assert re.fullmatch(
        r"script/setup: the disk is full: .* Installed packages are kept; run it again\.",
        done.stderr.splitlines()[-1],
    )


def test_folders_that_cannot_be_written(tree: Path, environ: dict[str, str]) -> None:
    # /proc, because root can write despite permissions.
    done = run(tree, {**environ, "ORCHESTRATOR_VENV": "/proc/venv"}, "setup")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "script/setup: cannot write to /proc/venv; set another folder with ORCHESTRATOR_VENV=DIR\n"
    )
    for words in (["--folder", "/proc/demo"], ["--folder=/proc/demo"]):
        done = run(tree, environ, "demo", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "script/demo: cannot write to /proc/demo; set another folder with --folder DIR\n"
        )


def test_a_python_without_torch(tree: Path, environ: dict[str, str], tmp_path: Path) -> None:
    python = install_python(environ, "#!/bin/sh\nexit 1\n")
    done = run(tree, environ, "demo", "--python", python, "--folder", str(tmp_path / "f"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"script/demo: {python} lacks orchestrator, torch or scikit-learn: {python} -m pip install"
        f" '{tree}[train]', or omit --python\n"
    )


#: Writes down what it is asked for, and installs torch's name and version. PyTorch's own index
#: is reached where the file `reachable` is.
UV = """\
#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit()
is_cpu = "--torch-backend" in words
if is_cpu and not (folder / "reachable").exists():
    sys.exit("dns error")
lock = words[words.index("--requirement") + 1] if "--requirement" in words else None
names = [line.split("==")[0] for line in open(lock) if line[0].isalpha()] if lock else []
if is_cpu or "torch" in names:
    version = "2.99+cpu" if is_cpu else "2.99"
    (site,) = pathlib.Path(__file__).parents[1].glob("lib/*/site-packages")
    info = site / f"torch-{{version}}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\\nName: torch\\nVersion: {{version}}\\n"
    )
    files = [f"{{info.name}}/{{name}},,\\n" for name in ("METADATA", "RECORD")]
    (info / "RECORD").write_text("".join(files))
with open(folder / "calls", "a") as calls:
    print(json.dumps({{"words": words, "names": names}}), file=calls)
"""
NEEDS_CUDA = re.compile(r"torch|torchvision|triton|(cuda|nvidia)-.*")


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="for a machine without GPUs")
def test_torch_is_small_where_no_gpu_can_be(
    tree: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    venv = make_venv(tree)
    (venv / "bin/uv").write_text(UV.format(python=sys.executable, folder=str(tmp_path)))
    (venv / "bin/uv").chmod(0o755)
    calls = tmp_path / "calls"

    def set_up() -> list[dict[str, list[str]]]:
        calls.write_text("")
        done = run(tree, environ, "setup", "train")
        assert (done.returncode, done.stdout) == (0, f"{venv}\n"), done.stderr
        return [json.loads(line) for line in calls.read_text().splitlines()]

    def cuda_in(call: dict[str, list[str]]) -> list[str]:
        return [name for name in call["names"] if NEEDS_CUDA.fullmatch(name)]

    # Not to be had: the locked one, and it stays.
    lock, _ = set_up()
    assert "torch" in cuda_in(lock) and len(cuda_in(lock)) > 10
    assert set_up() == []
    (venv / "orchestrator-setup").unlink()
    (tmp_path / "reachable").touch()
    lock, _ = set_up()
    assert "torch" in cuda_in(lock)

    # To be had, in a fresh environment.
    words = [venv / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "torch"]
    subprocess.run(words, check=True)
    (venv / "orchestrator-setup").unlink()
    cpu, lock, _ = set_up()
    assert cpu["words"][4:-2] == ["--torch-backend", "cpu", "--no-deps"]
    assert [word.partition("==")[0] for word in cpu["words"][-2:]] == ["torch", "torchvision"]
    assert cuda_in(lock) == [] and {"numpy", "scikit-learn", "pytest"} <= set(lock["names"])
    assert set_up() == []

    # A login node: its compute nodes have GPUs.
    sbatch = Path(environ["PATH"]) / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    lock, _ = set_up()
    assert "torch" in cuda_in(lock)
    (info,) = venv.glob("lib/*/site-packages/torch-*.dist-info")
    assert info.name == "torch-2.99.dist-info"
    assert set_up() == []


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="for a machine without GPUs")
def test_the_demo_needs_no_tools_of_developers(
    tree: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    venv = make_venv(tree)
    (venv / "bin/uv").write_text(UV.format(python=sys.executable, folder=str(tmp_path)))
    (venv / "bin/uv").chmod(0o755)
    (tmp_path / "reachable").touch()
    calls = tmp_path / "calls"

    def installed(wanted: str) -> list[list[str]]:
        calls.write_text("")
        done = run(tree, environ, "setup", wanted)
        assert (done.returncode, done.stdout) == (0, f"{venv}\n"), done.stderr
        return [json.loads(line)["names"] for line in calls.read_text().splitlines()]

    _, demo, _ = installed("demo")
    assert {"numpy", "scikit-learn", "rich"} <= set(demo)
    assert not {"pytest", "mypy", "ruff", "matplotlib"} & set(demo)
    assert installed("base") == installed("demo") == []
    # Both together are the largest set.
    locks = installed("dev")
    assert {"numpy", "scikit-learn", "pytest"} <= set(locks[-2])
    assert installed("train") == installed("demo") == []


def test_slurm_is_requested_but_missing(
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
        "script/demo: sbatch not found: run the demo on a login node, or omit --scheduler slurm to "
        "use this machine\n"
    )
    assert not (tmp_path / "f").exists()
