"""A running cluster for the tests in this folder, or the reason why it cannot run."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from xdist import scheduler

from tests.cluster import hosts, lab, machine, root, site

HERE = pathlib.Path(__file__).parent
#: Files whose tests share the jobs of one fixture.
TOGETHER = tuple(f"tests/cluster/test_{name}.py" for name in ("explain", "states", "web"))
SET_UP = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slurm-release",
        choices=sorted(root.SUITES),
        help="Slurm of the cluster tests (default: ORCHESTRATOR_LAB_RELEASE or 24.11)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
    # At the end no worker is to wait for another's long one.
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


class OneWorkerAFile(scheduler.LoadScopeScheduling):
    """Each test by itself to whichever worker is free, but those of some files to one worker.

    xdist 3.8 has marks for this (`loadgroup`), which do nothing with pytest 9.2: it writes them
    into an attribute that pytest does not read any more.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Any
) -> scheduler.LoadScopeScheduling | None:
    return OneWorkerAFile(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = getattr(item, "funcargs", {}).get("running_lab")
    if report.failed and isinstance(running, lab.Lab):
        for log in sorted((running.state / "lab/log").glob("slurm*.log")):
            tail = log.read_text(errors="replace").splitlines()[-25:]
            report.sections.append((log.name, "\n".join(tail)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands its lines to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cluster"] = session.config.stash.get(SET_UP, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Keep the lines of a worker that has ended; one that crashed has none."""
    lines = getattr(node, "workeroutput", {}).get("cluster", [])
    name = node.gateway.id
    node.config.stash.setdefault(SET_UP, []).extend(f"{name}: {line}" for line in lines)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(SET_UP, []):
        terminalreporter.line(f"cluster: {line}")


@pytest.fixture(scope="session")
def slurm_release(pytestconfig: pytest.Config) -> str:
    """The Slurm release that the tests run on."""
    # A run of all tests reads this file too late for its option; the variable works always.
    named = pytestconfig.getoption("--slurm-release", default=None)
    return named or machine.slurm_release()


@pytest.fixture(scope="session")
def lab_state() -> Iterator[pathlib.Path]:
    """A state folder of this test run's own; those of runs that were killed are removed."""
    sessions = machine.lab_dir() / "sessions"
    for old in sessions.glob("*-*"):
        pid, ticks = (int(word) for word in old.name.split("-"))
        if not hosts.Process(pid=pid, start_ticks=ticks).alive():
            lab.Lab(old, machine.lab_dir()).down()
            # Another run may be at the same.
            shutil.rmtree(old, ignore_errors=True)
    own = hosts.Process.of(os.getpid())
    folder = sessions / f"{own.pid}-{own.start_ticks}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def running_lab(
    pytestconfig: pytest.Config, slurm_release: str, lab_state: pathlib.Path
) -> Iterator[lab.Lab]:
    """The cluster of this test run; it dies with this process. Tests use `lab`."""
    lines = pytestconfig.stash.setdefault(SET_UP, [])
    made = lab.Lab(lab_state, machine.lab_dir())
    started = time.monotonic()
    try:
        machine.require()
        made.build(slurm_release)
    except machine.Unavailable as error:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        lines.append(f"NOT TESTED ON A REAL SLURM: {error}")
        refuse(f"no test cluster: {error}")
    built = time.monotonic()
    made.up(slurm_release, tie_to_caller=True)
    lines.append(
        f"Slurm {slurm_release}, built in {built - started:.1f} s,"
        f" up in {time.monotonic() - built:.1f} s"
    )
    yield made
    lines.extend(made.troubles)
    made.down()


@pytest.fixture(name="lab")
def quiet_lab(running_lab: lab.Lab) -> Iterator[lab.Lab]:
    """The running cluster, whole again after each test, and without jobs."""
    before = running_lab.settings
    yield running_lab
    running_lab.mend()
    if running_lab.settings != before:
        running_lab.reconfigure(**dataclasses.asdict(before))
    if running_lab.gives_ids_again:
        running_lab.give_new_job_ids()


@pytest.fixture
def alice_home(running_lab: lab.Lab, request: pytest.FixtureRequest) -> str:
    """A fresh folder of alice's on the shared file system, for runs_dir and state_dir."""
    folder = f"/home/alice/{request.node.originalname[:60]}-{time.time_ns() % 10**9}"
    running_lab.make_folder(folder)
    return folder


@pytest.fixture(name="site")
def alice_site(lab: lab.Lab, alice_home: str) -> site.Site:
    """orchestrator as alice uses it, with folders of this test's own."""
    return site.Site.make(lab, alice_home)


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Add a line to what is printed at the end of the run: seeds, counts."""
    return pytestconfig.stash.setdefault(SET_UP, []).append
