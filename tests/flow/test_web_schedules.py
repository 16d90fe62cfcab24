"""The calendar of schedules, their regression checks over time, and baselines."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

SPEC = """\
[job]
name = "study"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
[sweep]
kind = "grid"
repeats = 3
axes.args.size = [8]
"""
#: The speed is read from a file, so that the spec does not change.
TRAIN = """\
import json, os, pathlib
speed = float(pathlib.Path("speed").read_text())
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(3):
        value = speed + step + int(os.environ["SLURM_ARRAY_TASK_ID"])
        record = {"name": "window_throughput", "value": value, "step": step, "unit": ""}
        print(json.dumps({**record, "rank": 0, "world_size": 1}), file=file)
"""
JOB = '[job]\nname = "x"\ntime_limit = "5"\n[launch]\nlauncher = "python"\ncommand = "true"\n'


@pytest.fixture
def server(cli: command_line.CommandLine, tmp_path: Path) -> Iterator[web_server.Server]:
    with web_server.started(cli, "--socket", tmp_path / "run" / "web.sock") as started:
        yield started


def cells(page: str) -> dict[str, list[str]]:
    """Return the runs of each day of the calendar, by `4 March`."""
    found = re.findall(r'<td class="([\w ]*)"[^>]*>(<span class="day">.*?)</td>', page, re.S)
    texts = {}
    for kind, cell in found:
        day, *runs = re.split(r"<li.*?>", cell)
        name = re.sub(r"<.*?>", "", day).split()
        shown = [" ".join(re.sub(r"<.*?>", "", run).split()) for run in runs]
        assert ("empty" in kind) == (not shown)
        texts[" ".join(name[1:])] = shown
    return texts


def test_calendar_of_planned_times(
    cli: command_line.CommandLine, server: web_server.Server
) -> None:
    job = cli.spec(JOB)
    daily = ("--cron", "30 2 * * *", "--tz", "Europe/Oslo")
    assert cli("schedule", "add", "nightly", job, *daily).code == 0
    assert cli("schedule", "add", "often", job, "--cron", "*/10 * 1 * *", "--tz", "UTC").code == 0
    assert cli("schedule", "add", "idle", job, "--cron", "@daily", "--tz", "UTC").code == 0
    assert cli("schedule", "pause", "idle").code == 0
    year = datetime.datetime.now(datetime.UTC).year + 1
    page = server.get(f"/schedules?month={year}-03").text
    assert f">March {year}</h2>" in page
    assert f'<a rel="prev" href="/schedules?month={year}-02">February</a>' in page
    assert f'<a rel="next" href="/schedules?month={year}-04">April</a>' in page
    days = cells(page)
    assert days["1 March"] == ["often 144 planned", "02:30 nightly planned"]
    # The clocks of Oslo skip 02:30 on the last Sunday of March.
    assert {tuple(days[f"{day} March"]) for day in range(2, 25)} == {("02:30 nightly planned",)}
    assert not any("idle" in run for runs in days.values() for run in runs)
    assert '<a href="/schedules/1">nightly</a>' in page
    for strange in ("x", "2026-13", "9999-12", "0000-01", "2026-11-05"):
        assert server.get(f"/schedules?month={strange}").status == 200
    assert 'aria-current="date"' in server.get("/schedules").text


def test_checks_over_time_and_baselines(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    assert "No baselines yet." in server.get("/baselines").text
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(TRAIN)
    cron = ("--cron", "@yearly", "--tz", "UTC")
    assert cli("schedule", "add", "weekly", *cron, cli.spec(SPEC)).code == 0
    for number, speed in enumerate(("1000", "1001", "700"), 1):
        (cli.folder / "speed").write_text(speed)
        assert cli("schedule", "run", "weekly").code == 0
        cli("wait", "--sweep", f"@{number}")
        assert cli("tick").code == 0
    days = cells(server.get("/schedules").text)
    (runs,) = [runs for runs in days.values() if runs]
    assert [run.split()[-1] for run in runs] == ["baseline", "ok", "regression"]
    page = server.get("/schedules/1").text
    assert re.findall(r'<span class="state \w+">(.*?)</span>', page) == [
        "regression",
        "ok",
        "no baseline",
    ]
    assert '<a href="/sweeps/3">sweep @3</a>' in page
    assert "throughput, compared with earlier runs or the baseline" in page
    assert re.search(r"<title>size 1: \d\d-\d\d, 70 %</title>", page), page
    assert cli("baseline", "set", "good", "--sweep", "@1").code == 0
    assert '<a href="/baselines/good">good</a>' in server.get("/baselines").text
    assert server.get("/baselines/good").text.count("<tr>") == 4
    assert server.get("/baselines/none").status == 404
    study = server.get("/sweeps/3/report").text
    assert '<a href="/schedules/1">regression checks over time</a>' in study
    assert "<option>good</option>" in study
    compared = server.get("/sweeps/3/report?against=good").text
    assert "Worse than good: throughput of 1 rank is -29.9 %" in compared
    assert compared.count('<span class="state failed">slower</span>') == 1
    assert "shows nothing worse" not in compared
    better = server.get("/sweeps/1/report?against=good").text
    assert "These runs show nothing worse than good." in better
    assert "baseline &#39;none&#39; not found" in server.get("/sweeps/3/report?against=none").text
    assert server.get("/schedules/9").status == 404
