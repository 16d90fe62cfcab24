"""CPU time of the web server: pages with 10,000 jobs, or 2,500 points, and pages only open."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import http.client
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from orchestrator import config, sweeps
from orchestrator.controller.session import stores
from orchestrator.toml import documents
from tests.benchmarks import numbers, startup

PAGE_SECONDS, IDLE_PERCENT = 0.1, 5.0
#: The job with all metrics: the newest one.
PAGES = {
    "jobs": "/?age=all",
    "jobs, filtered": "/?age=all&q=train-7&state=failed",
    "jobs, by name": "/?age=all&order=name&page=50",
    "job": "/jobs/{job}",
    "curves": "/curves.json?job={job}",
}
SWEEP = """
[job]
name = "grid"
time_limit = "10"
[launch]
script = "train.py"
[sweep]
kind = "grid"
[sweep.axes]
"args.lr" = {values}
"args.width" = {values}
"""
#: Metric values of each point of the sweep.
_OF_POINT = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="metric values of one job")
    parser.add_argument("--points", type=int, default=2500, help="of a sweep; a square number")
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=10, help="of each page")
    parser.add_argument("--idle", type=float, default=20, help="seconds")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if one exceeds its budget."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environ = startup.filled(folder, arguments.jobs)
        numbers.fill(folder, {arguments.jobs: arguments.rows})
        _fill_sweep(folder, arguments.points)
        path = folder / "web.sock"
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "web", "--socket", str(path)],
            env={**os.environ, **environ},
            stdout=subprocess.DEVNULL,
        )
        try:
            while not path.exists():
                time.sleep(0.05)
            kept = _pages(process.pid, path, arguments)
            kept &= _sweep(process.pid, path, folder, arguments)
            kept &= _viewers(process.pid, path, arguments)
        finally:
            process.terminate()
            process.wait()
    return 0 if kept else 1


def _fill_sweep(folder: pathlib.Path, points: int) -> None:
    """Make a sweep of the first jobs, each with some metrics."""
    values = list(range(1, round(points**0.5) + 1))
    document, problems = documents.parse(SWEEP.format(values=values), "grid.toml")
    planned = sweeps.expand(document, config.Profile(name="lab"), problems)
    assert len(planned.points) == points
    with stores.Store(folder / "orchestrator.db") as store, store.writing() as work:
        stored = work.sweeps.add(
            planned,
            **{"profile": "lab", "cluster": "lab", "scheduler": "slurm", "source": "grid.toml"},
            folder=str(folder),
            created_at=datetime.datetime.now(datetime.UTC),
        )
        unassigned = sweeps.points_of(work.sweeps.points(stored.row))
        assert work.sweeps.assign_jobs(stored.row, unassigned, range(1, points + 1))
    numbers.fill(folder, dict.fromkeys(range(1, points + 1), _OF_POINT))


def _sweep(
    pid: int, path: pathlib.Path, folder: pathlib.Path, arguments: argparse.Namespace
) -> bool:
    """Measure the page of the sweep, and the same after one more line of metrics each time."""
    _get(path, "/sweeps/1")
    figures = []
    for has_changed in (False, True):
        seconds = 0.0
        for number in range(arguments.repeats):
            if has_changed:
                numbers.fill(folder, {number + 1: 8})
            before = _cpu_seconds(pid)
            _get(path, "/sweeps/1")
            seconds += _cpu_seconds(pid) - before
        figures.append(seconds / arguments.repeats)
    print(
        f"  sweep of {arguments.points} {1000 * figures[0]:5.1f} ms, after a change "
        f"{1000 * figures[1]:.1f} ms (budget {1000 * PAGE_SECONDS:g} ms)"
    )
    return max(figures) <= PAGE_SECONDS


def _pages(pid: int, path: pathlib.Path, arguments: argparse.Namespace) -> bool:
    print(f"{arguments.jobs} jobs, one with {arguments.rows} metrics; CPU of the server:")
    kept = True
    for name, template in PAGES.items():
        url = template.format(job=arguments.jobs)
        before = _cpu_seconds(pid)
        size = _get(path, url)
        first = _cpu_seconds(pid) - before
        before = _cpu_seconds(pid)
        for _ in range(arguments.repeats):
            _get(path, url)
        each = (_cpu_seconds(pid) - before) / arguments.repeats
        kept &= each <= PAGE_SECONDS
        print(
            f"  {name:<16} {1000 * each:6.1f} ms (budget {1000 * PAGE_SECONDS:g} ms), "
            f"the first time {1000 * first:.0f} ms, {size / 1000:.0f} kB"
        )
    return kept


def _viewers(pid: int, path: pathlib.Path, arguments: argparse.Namespace) -> bool:
    with contextlib.ExitStack() as stack:
        for number in range(arguments.viewers):
            url = f"/jobs/{number // 4 + 1}/events?log" if number % 2 else "/events"
            stack.enter_context(_stream(path, url))
        time.sleep(2)
        before = _cpu_seconds(pid)
        time.sleep(arguments.idle)
        percent = 100 * (_cpu_seconds(pid) - before) / arguments.idle
    print(
        f"  {arguments.viewers} open pages  {percent:.2f} % of a core (budget {IDLE_PERCENT:g} %)"
    )
    return percent <= IDLE_PERCENT


def _connected(path: pathlib.Path) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(path))
    return connection


def _get(path: pathlib.Path, url: str) -> int:
    with contextlib.closing(_connected(path)) as connection:
        connection.request("GET", url)
        response = connection.getresponse()
        content = response.read()
        message = re.sub(rb"<.*?>", b"", content).decode()
        # The bench has no logs.
        assert response.status == 200, message
        return len(content)


@contextlib.contextmanager
def _stream(path: pathlib.Path, url: str) -> Iterator[None]:
    with contextlib.closing(_connected(path)) as connection:
        connection.request("GET", url)
        response = connection.getresponse()
        assert response.status == 200, url
        assert response.readline()
        yield


def _cpu_seconds(pid: int) -> float:
    # clock_getcpuclockid (man 3), which Python lacks: nanoseconds, not ticks that may miss or
    # count bursts of a timer.
    return time.clock_gettime((~pid << 3) | 2)
