"""Which programs of Debian the tests use: the machine's own, or those of the test cluster."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from tests import debian_programs
from tests.cluster import machine, root
from tests.debian_programs import POSTGRESQL, PROMETHEUS, Package, Programs, Unavailable, found

pytest_plugins = ["pytester"]

RELEASE = "24.11"
BUILT = f"root-trixie-{root.key(RELEASE)}"
MISSING = (
    "{} are not installed here, and the test cluster, whose root file system has them, is not"
    " built. As root: apt-get install {}, or .venv/bin/python -m tests.cluster build"
)


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_programs, "installed", lambda package: None)


def make(folder: Path, *versions: str) -> Path:
    """Make the programs of a Debian system."""
    for version in versions:
        programs = folder / "usr/lib/postgresql" / version / "bin"
        programs.mkdir(parents=True)
        for name in POSTGRESQL.programs:
            (programs / name).touch()
    (folder / "usr/bin").mkdir(parents=True)
    for name in PROMETHEUS.programs:
        (folder / "usr/bin" / name).touch()
    return folder


def finish(cache: Path, name: str = BUILT) -> Path:
    """Make a root file system as `root.build` leaves it."""
    folder = make(cache / name, "17")
    (cache / "root-trixie.lock").touch()
    (folder / root.STAMP).touch()
    return folder


def test_the_programs_of_the_machine_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian_programs, "installed", lambda package: Path("/opt/pg/bin"))
    finish(tmp_path)
    with found(POSTGRESQL, tmp_path, RELEASE) as programs:
        assert programs == Programs(Path("/opt/pg/bin"))
        assert programs.sees(tmp_path) == tmp_path
        argv = programs.command("initdb", tmp_path, user_id=1000, is_never_root=True)
        assert argv == ["setpriv", "--pdeathsig", "INT", "--", "/opt/pg/bin/initdb"]


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize(
    ("package", "inside"), [(POSTGRESQL, "/usr/lib/postgresql/17/bin"), (PROMETHEUS, "/usr/bin")]
)
def test_a_root_file_system_is_kept_while_it_is_used(
    tmp_path: Path, package: Package, inside: str
) -> None:
    folder = finish(tmp_path)
    with found(package, tmp_path, RELEASE) as programs:
        assert programs == Programs(Path(inside), folder)
        assert root.in_use(folder)
    assert not root.in_use(folder)


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("name", [f"root-trixie-{'0' * 16}", "root-trixie.partial", None])
def test_other_root_file_systems_are_not_used(tmp_path: Path, name: str | None) -> None:
    if name:
        finish(tmp_path, name)
    with pytest.raises(Unavailable) as raised, found(POSTGRESQL, tmp_path, RELEASE):
        pass
    assert str(raised.value) == MISSING.format("initdb and postgres", "postgresql")


@pytest.mark.usefixtures("not_installed")
def test_a_build_is_waited_for(tmp_path: Path) -> None:
    begun, got = threading.Event(), []

    def wait() -> None:
        begun.set()
        with found(POSTGRESQL, tmp_path, RELEASE) as programs:
            got.append(programs.root)

    waiting = threading.Thread(target=wait)
    with (tmp_path / "root-trixie.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        begun.wait()
        folder = finish(tmp_path)
    waiting.join()
    assert got == [folder]


def test_the_newest_version_is_used(tmp_path: Path) -> None:
    folder = make(tmp_path, "9", "17", "15")
    assert debian_programs.newest(POSTGRESQL, folder) == folder / "usr/lib/postgresql/17/bin"


TESTS = """
import pytest

@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_both(request, database):
    if database == "postgresql":
        request.getfixturevalue("postgresql_server")

def test_without_parameters(postgresql_server): pass

def test_prometheus(prometheus_programs): pass

def test_none(): pass
"""


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize(
    ("ci", "outcomes", "reason"),
    [
        ("false", {"passed": 2, "skipped": 3}, MISSING),
        ("true", {"passed": 2, "failed": 1, "errors": 2}, "{1} is not installed here. No root"),
    ],
)
def test_without_any_they_are_skipped_but_fail_in_ci(
    checkout: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    outcomes: dict[str, int],
    reason: str,
) -> None:
    def build(release: str, cache: Path) -> None:
        raise machine.Unavailable("No root here.")

    monkeypatch.setattr(root, "build", build)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(pytester.path / "lab"))
    pytester.makeconftest((checkout / "tests/conftest.py").read_text())
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-v", "-rs")
    done.assert_outcomes(**outcomes)
    for words in (("initdb and postgres", "postgresql"), ("prometheus and promtool", "prometheus")):
        assert reason.format(*words) in done.stdout.str()
    lines = [line for line in done.outlines if "::" in line and "%]" in line]
    names = [line.partition("::")[2].split()[0] for line in lines]
    assert names == [
        *("test_both[sqlite]", "test_none"),
        *("test_both[postgresql]", "test_without_parameters", "test_prometheus"),
    ]
