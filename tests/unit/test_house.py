"""The repository: lock files, the test tiers, and the rules of CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging import requirements, utils

pytest_plugins = ["pytester"]

LOCKS = ("base", "dev", "train")


def pins(checkout: Path, lock: str) -> dict[str, set[str]]:
    """Return the versions of each package in a lock file; markers may choose among several."""
    result: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.+!-]+)", (checkout / f"requirements/{lock}.txt").read_text(), re.M
    ):
        result.setdefault(utils.canonicalize_name(name), set()).add(version)
    return result


def required(checkout: Path) -> dict[str, list[str]]:
    """Return the requirements in pyproject.toml for each lock file."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    base = project["project"]["dependencies"] + groups["build"]
    dev = base + [entry for entry in groups["dev"] if isinstance(entry, str)]
    train = dev + project["project"]["optional-dependencies"]["train"]
    return {"base": base, "dev": dev, "train": train, "uv": groups["setup"]}


@pytest.mark.parametrize("lock", [*LOCKS, "uv"])
def test_lock_is_in_step_with_pyproject(checkout: Path, lock: str) -> None:
    pinned = pins(checkout, lock)
    missing = []
    for line in required(checkout)[lock]:
        requirement = requirements.Requirement(line)
        versions = pinned.get(utils.canonicalize_name(requirement.name), set())
        if not versions or not all(requirement.specifier.contains(v) for v in versions):
            missing.append(line)
    assert missing == [], "run script/lock to update the lock files"


def test_the_locks_agree(checkout: Path) -> None:
    base, dev, train = (pins(checkout, lock) for lock in LOCKS)
    assert base.items() <= dev.items()
    assert dev.items() <= train.items()


@pytest.mark.parametrize("lock", [*LOCKS, "uv"])
def test_lock_has_hashes_and_no_addresses(checkout: Path, lock: str) -> None:
    text = (checkout / f"requirements/{lock}.txt").read_text()
    assert re.search(r"://|^-|(^|\s)/\w", text, re.M) is None
    packages = re.findall(r"^[\w.-]+==.*(?:\n    .*)*", text, re.M)
    assert [package for package in packages if "--hash=sha256:" not in package] == []


def environment(**changes: str) -> dict[str, str]:
    # Without plugins pytest starts in a third of the time.
    bare = {key: value for key, value in os.environ.items() if key != "CI"}
    return bare | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | changes


SKIPS = """
import pytest

@pytest.mark.cluster
@{mark}
def test_needs_a_cluster():
    pytest.skip("not root")
"""


@pytest.mark.parametrize(
    ("mark", "arguments", "ci", "code"),
    [
        ("pytest.mark.cluster", [], "true", 1),
        ("pytest.mark.cluster", [], "false", 0),
        ("pytest.mark.slow", [], "true", 0),
        ("pytest.mark.slow", ["--long"], "true", 1),
    ],
)
def test_in_ci_a_skipped_cluster_test_is_a_failure(
    checkout: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    arguments: list[str],
    ci: str,
    code: int,
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest((checkout / "tests/conftest.py").read_text())
    pytester.makepyfile(SKIPS.format(mark=mark))
    pytester.makeini("[pytest]\nmarkers =\n    cluster:\n    slow:\n")
    done = pytester.runpytest_inprocess(*arguments)
    assert done.ret == code
    assert ("may not be skipped in CI" in done.stdout.str()) == bool(code)


@pytest.fixture
def project(checkout: Path, tmp_path: Path) -> Path:
    """A checkout with one tier."""
    (tmp_path / "tests/trainer").mkdir(parents=True)
    (tmp_path / "tests/__main__.py").write_text((checkout / "tests/__main__.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist\n")
    return tmp_path


def run_tiers(project: Path, *tiers: str, **changes: str) -> subprocess.CompletedProcess[str]:
    asked = [f"--tier={tier}" for tier in tiers or ("trainer",)]
    return subprocess.run(
        [sys.executable, "-m", "tests", *asked],
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
