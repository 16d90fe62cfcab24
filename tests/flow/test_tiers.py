"""script/test itself: its tiers, their table, and what a tier leaves running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def environment(**changes: str) -> dict[str, str]:
    # Without plugins pytest starts in a third of the time.
    bare = {key: value for key, value in os.environ.items() if key != "CI"}
    return bare | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | changes


@pytest.fixture
def project(checkout: Path, tmp_path: Path) -> Path:
    """A checkout with one tier."""
    (tmp_path / "tests/trainer").mkdir(parents=True)
    (tmp_path / "tests/__main__.py").write_text((checkout / "tests/__main__.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist\n")
    return tmp_path


def run_tiers(project: Path, *tiers: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return run_module(project, *[f"--tier={tier}" for tier in tiers or ("trainer",)], **changes)


def run_module(project: Path, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests", *argv],
        cwd=project,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_closing_table(project: Path) -> None:
    (project / "tests/trainer/test_x.py").write_text(
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): assert 0\n"
        "def test_c(): pytest.skip('no')\n"
    )
    done = run_tiers(project)
    assert done.returncode == 1
    head, trainer, closing = done.stdout.splitlines()[-3:]
    assert head.split() == ["tier", "result", "time"]
    assert re.fullmatch(r"trainer +FAILED +\d+\.\ds  1 failed, 1 passed, 1 skipped", trainer)
    assert re.fullmatch(r"=+ 1 failed, 1 passed, 1 skipped in \d+\.\d\ds =+", closing)
    environment = f"the environment: {sys.prefix}; to remove it: rm -r {sys.prefix}"
    assert f"\nKept for the next run:\n  {environment}\n\n" in done.stdout


def test_only_the_named_files_run(project: Path) -> None:
    (project / "tests/unit").mkdir()
    for name in ("trainer/test_x.py", "trainer/test_y.py", "unit/test_z.py"):
        (project / "tests" / name).write_text("def test_a(): pass\ndef test_b(): pass\n")

    def counts(*argv: str) -> list[str]:
        done = run_module(project, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = done.stdout.partition("result")[2].splitlines()[1:-1]
        return [" ".join([*row.split()[:1], *row.split()[3:]]) for row in rows]

    # Without --tier, only the tiers of the files.
    assert counts("--", "tests/trainer/test_x.py") == ["trainer 2 passed"]
    assert counts("--", "tests/trainer/test_x.py::test_a") == ["trainer 1 passed"]
    absolute = str(project / "tests/trainer/test_x.py")
    assert counts("--tier", "trainer", "--", absolute, "-k", "b") == ["trainer 1 passed"]
    both = ("tests/trainer/test_x.py", "tests/unit/test_z.py::test_a")
    assert counts("--", *both) == ["unit 1 passed", "trainer 2 passed"]
    assert counts("--tier", "trainer", "--", "-k", "test_x") == ["trainer 2 passed"]

    done = run_module(project, "--tier", "trainer", "--", "tests/unit/test_z.py")
    assert done.returncode == 2
    assert "error: tests/unit is not in the selected tiers: trainer\n" in done.stderr
    # A misspelt name does not run the whole tier.
    done = run_module(project, "--", "tests/trainer/test_no.py")
    assert (done.returncode, "no tests ran" in done.stdout) == (5, True)


@pytest.mark.parametrize(("ci", "word", "code"), [("false", "SKIPPED", 0), ("true", "FAILED", 1)])
def test_a_skipped_tier_shows_the_reason(project: Path, ci: str, word: str, code: int) -> None:
    (project / "tests/trainer/test_x.py").write_text(
        "import pytest\ndef test_a(): pytest.skip('needs root')\n"
    )
    done = run_tiers(project, CI=ci)
    assert done.returncode == code
    assert re.fullmatch(
        rf"trainer +{word} +\d+\.\ds  1 skipped: needs root", done.stdout.splitlines()[-2]
    )


# script/test itself shows the same in each run.
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the cluster is built as root only")
def test_the_cluster_is_built_beside_the_tiers_before_its_own(project: Path) -> None:
    wait = (
        "import pathlib, time\n"
        "def wait(name):\n"
        "    end = time.monotonic() + 60\n"
        "    while not pathlib.Path(name).exists():\n"
        "        assert time.monotonic() < end, name\n"
        "        time.sleep(0.05)\n"
    )
    begun, ended = "pathlib.Path('begun').touch()\n", "pathlib.Path('built').touch()\n"
    (project / "tests/cluster").mkdir()
    # A package, or an editable install's comes before it.
    (project / "tests/cluster/__init__.py").touch()
    # It keeps running while leftover processes of the first tier are searched.
    (project / "tests/cluster/__main__.py").write_text(
        f"import sys\n{wait}assert sys.argv[1:] == ['build']\n{begun}wait('first')\n{ended}"
    )
    (project / "tests/trainer/test_x.py").write_text(f"{wait}def test_a():\n    wait('begun')\n")
    (project / "tests/cluster/test_y.py").write_text(
        f"{wait}def test_b():\n    pathlib.Path('first').touch()\n    wait('built')\n"
    )
    done = run_tiers(project, "trainer", "cluster")
    assert done.returncode == 0, done.stdout
    assert "left running" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_processes_left_by_a_tier_are_ended(project: Path) -> None:
    (project / "tests/trainer/test_x.py").write_text(
        "import pathlib, subprocess\n"
        "def test_a():\n"
        "    left = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "    pathlib.Path('pid').write_text(str(left.pid))\n"
    )
    done = run_tiers(project)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2].endswith("1 passed; left running: sleep 300")
    with pytest.raises(ProcessLookupError):
        os.kill(int((project / "pid").read_text()), 0)
