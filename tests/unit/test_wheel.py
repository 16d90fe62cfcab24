"""The wheel: its top-level packages and its data files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def build(project: Path, target: str, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=120)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheels(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel built from the tree, and one from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    sdist = build(checkout, "sdist", folder / "sdist")
    # tarfile has no filters in Debian 12's Python 3.11.2, and warns without one in 3.12.
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", sdist, "-C", folder / "unpacked"], check=True, timeout=60)
    (unpacked,) = (folder / "unpacked").iterdir()
    return {
        "tree": build(checkout, "wheel", folder / "tree"),
        "sdist": build(unpacked, "wheel", folder / "from-sdist"),
    }


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files(folder: Path) -> set[str]:
    result = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.parent)) for path in result if path.suffix != ".pyc"}


@pytest.mark.parametrize("origin", ["tree", "sdist"])
def test_top_level_names_are_frozen(wheels: dict[str, Path], origin: str) -> None:
    tops = {name.split("/")[0] for name in names(wheels[origin])}
    assert tops == {"orchestrator", "db", "trainers"}


@pytest.mark.parametrize("origin", ["tree", "sdist"])
def test_all_files_are_shipped(wheels: dict[str, Path], origin: str, checkout: Path) -> None:
    templates = {f"orchestrator/{name}" for name in files(checkout / "templates")}
    packages = set().union(*(files(checkout / name) for name in ("orchestrator", "db", "trainers")))
    assert names(wheels[origin]) == packages | templates
    assert {
        "orchestrator/py.typed",
        "orchestrator/patterns.toml",
        "db/py.typed",
        "trainers/py.typed",
    } <= packages
    assert templates


def test_templates_hold_no_code(checkout: Path) -> None:
    # A .py file there breaks editable installs (pypa/hatch#1928).
    assert [name for name in files(checkout / "templates") if name.endswith(".py")] == []


def test_the_command_runs_from_the_wheel(wheels: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels["tree"]) as archive:
        archive.extractall(tmp_path / "site")
        (entry,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        assert "orchestrator = orchestrator.__main__:main" in archive.read(entry).decode()
    # Isolated: neither the checkout nor its editable install may serve the import.
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "site")!r})
sys.argv = ["orchestrator", "--help"]
from orchestrator import __main__, cli
assert cli.__file__.startswith({str(tmp_path)!r}), cli.__file__
sys.exit(__main__.main())
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: orchestrator ")
