"""Fixtures of all tests: options, a clean environment, the folder of test data."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import debian_programs
from tests.cluster import machine

if TYPE_CHECKING:
    from tests import postgresql

CHECKOUT = Path(__file__).resolve().parent.parent

# Developers do run tests inside a Slurm job, and have settings of their own. What is meant for the
# tests themselves stays: ORCHESTRATOR_TEST_*, ORCHESTRATOR_LAB*.
_FOREIGN = re.compile(r"(SLURM|SBATCH|SQUEUE|SACCT|SRUN|ORCHESTRATOR(?!_(TEST|LAB)))_")
for _name in [name for name in os.environ if _FOREIGN.match(name)]:
    del os.environ[_name]

# Read here: tests give themselves another environment.
_CI = os.environ.get("CI") == "true"
_LAB, _RELEASE = machine.lab_dir(), machine.slurm_release()

# As in hypothesis's CI profile: the duration of an example depends on the machine.
hypothesis.settings.register_profile("tests", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run tests marked slow")
    parser.addoption(
        "--database",
        choices=["sqlite", "postgresql"],
        default="sqlite",
        help="what the flow tests store in; a few use both",
    )


def _needs_debian_programs(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    names = {"postgresql_server", "prometheus_programs"}
    return bool(names & {*getattr(item, "fixturenames", ())}) or "postgresql" in values


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Meanwhile the root file system that contains the programs may be built.
    items.sort(key=_needs_debian_programs)
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --long"))


def pytest_configure(config: pytest.Config) -> None:
    # Workers of xdist report to the main process, which alone decides.
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_NoSkips(long=config.getoption("--long")), "no-skips")


class _NoSkips:
    """In CI a machine that can't run the cluster tests is a failure, not a green run."""

    def __init__(self, *, long: bool) -> None:
        self._long = long
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        put_off = "slow" in report.keywords and not self._long
        if report.skipped and "cluster" in report.keywords and not put_off:
            self._skipped.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section("skipped, and this is CI", red=True)
            for nodeid in self._skipped:
                terminalreporter.line(f"FAILED {nodeid}: a cluster test may not be skipped in CI")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The test data folder: real logs and data sets, which are not part of the repository."""
    named = os.environ.get("ORCHESTRATOR_TEST_DATA")
    folder = Path(named) if named else CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no test data folder at {folder}; ORCHESTRATOR_TEST_DATA names one")
    return folder


@contextlib.contextmanager
def _skipped_if_unavailable() -> Iterator[None]:
    """Skip the test where a program is unavailable; in CI it fails."""
    try:
        yield
    except debian_programs.Unavailable as error:
        refuse = pytest.fail if _CI else pytest.skip
        refuse(str(error))


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of this test run."""
    from tests import postgresql

    with (
        _skipped_if_unavailable(),
        postgresql.running(_LAB, _RELEASE, build=_CI) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def prometheus_programs() -> Iterator[debian_programs.Programs]:
    """Prometheus and promtool of Debian."""
    package = debian_programs.PROMETHEUS
    with (
        _skipped_if_unavailable(),
        debian_programs.found(package, _LAB, _RELEASE, build=_CI) as programs,
    ):
        yield programs


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: postgresql.Server) -> str:
    """The name of a database with our tables, to be copied."""
    from orchestrator.controller.session import stores
    from tests import postgresql

    url = postgresql_server.make()
    with stores.Store(url) as store, store.writing():
        pass
    return postgresql.name_of(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database file with our tables."""
    from orchestrator.controller.session import stores

    path = tmp_path_factory.mktemp("made") / "x.db"
    with stores.Store(path) as store, store.writing():
        pass
    return path.read_bytes()


@pytest.fixture(scope="session")
def reused_postgresql_url(postgresql_server: postgresql.Server, postgresql_template: str) -> str:
    """The URL of the database that all tests of `database_url` use, one after another."""
    return postgresql_server.make(postgresql_template)


@pytest.fixture
def database_file(tmp_path: Path, sqlite_template: bytes) -> Path:
    """A database file with empty tables."""
    path = tmp_path / "orchestrator.db"
    path.write_bytes(sqlite_template)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database with empty tables, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('database_file')}"
    url: str = request.getfixturevalue("reused_postgresql_url")
    # A new database would take 0.1 to 0.4 s.
    request.getfixturevalue("postgresql_server").empty(url)
    return url
