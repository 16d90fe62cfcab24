"""A schedule on a real Slurm, with a controller that is killed repeatedly."""

from __future__ import annotations

import datetime
import json
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

QUICK = (
    "resend_min_seconds = 1\nresend_max_seconds = 2\nsubmit_grace_seconds = 20\n"
    "serve_interval_seconds = 2\n"
)
#: A second run of a point shows as a second line.
PROGRAM = """\
import json, os, sys
with open(os.path.join({home!r}, "ran"), "a") as file:
    file.write(os.environ["ORCHESTRATOR_RUN_DIR"] + " " + sys.argv[-1] + "\\n")
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(3):
        record = {{"name": "window_throughput", "value": 1000.0 + step, "step": step}}
        print(json.dumps({{"unit": "", "rank": 0, "world_size": 1, **record}}), file=file)
"""
SPEC = """\
[job]
name = "two"
time_limit = "5"
[resources]
mem = "50M"
[launch]
launcher = "python"
script = "program.py"
[sweep]
kind = "grid"
axes.args.seed = [1, 2]
"""


def firings(site: sites.Site) -> list[dict[str, Any]]:
    """What became of each planned time, oldest first."""
    return site.items("schedule", "history", "often")[::-1]


def fired(site: sites.Site) -> list[datetime.datetime]:
    """The planned times that have jobs, oldest first."""
    mine = [firing for firing in firings(site) if firing["state"] == "fired"]
    return [datetime.datetime.fromisoformat(firing["planned_at"]) for firing in mine]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "minutes, planned, kills",
    [(1, 3, 5), pytest.param(2, 10, 10, marks=pytest.mark.slow)],
)
@pytest.mark.early
def test_controller_killed_repeatedly(
    lab: cluster.Lab,
    site: sites.Site,
    tell: Callable[[str], None],
    minutes: int,
    planned: int,
    kills: int,
) -> None:
    """Each planned time has one sweep of two jobs, and each sweep its verdict."""
    quick = sites.Site.make(lab, site.home, more=QUICK)
    lab.write(f"{site.home}/program.py", PROGRAM.format(home=site.home))
    spec = quick.spec("two", SPEC)
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    tell(f"killed controllers: seed {seed}")
    cron = f"*/{minutes} * * * *"
    quick.run(
        "schedule", "add", "often", "--cron", cron, "--catchup", "all", "--overlap", "allow", spec
    )
    began = datetime.datetime.now(datetime.UTC)
    first = quick.items("schedule", "next", "often", "--count", str(planned))
    times = [datetime.datetime.fromisoformat(item["planned_at"]) for item in first]
    # Most moments of a controller's life are idle: it is killed while it submits, more or less.
    moments = sorted(
        dice.choice(times) + datetime.timedelta(seconds=dice.uniform(0, 4)) for _ in range(kills)
    )
    running = quick.popen("serve")
    try:
        for moment in moments:
            left = (moment - datetime.datetime.now(datetime.UTC)).total_seconds()
            if left > 0:
                time.sleep(left)
            lab.kill(running)
            running.communicate()
            running = quick.popen("serve")
        left = (times[-1] - datetime.datetime.now(datetime.UTC)).total_seconds()
        time.sleep(max(left, 0) + 1)
        lab.wait_for(lambda: times[-1] in fired(quick), 120, "the last firing")
        quick.run("schedule", "remove", "often")

        def judged() -> bool:
            return all(
                firing["verdict"] or firing["state"] == "skipped" for firing in firings(quick)
            )

        lab.wait_for(judged, 240, "all verdicts", 1)
    finally:
        lab.kill(running)
        _, output = running.communicate()
    result = firings(quick)
    assert len({item["planned_at"] for item in result}) == len(result), output
    mine = [item for item in result if item["state"] == "fired"]
    # One more may have come before the schedule was removed, and one before `next` was asked.
    at = fired(quick)
    assert [time for time in at if times[0] <= time <= times[-1]] == times, result
    assert len(mine) == len(at) <= planned + 2, result
    planned = len(mine)
    assert len({item["sweep"] for item in mine}) == planned
    for item in mine:
        points = quick.items("sweep", "status", f"@{item['sweep']}", "--points", "--no-refresh")
        assert [point["state"] for point in points] == ["COMPLETED"] * 2, points
    (shown,) = quick.items("show", points[0]["job_id"], "--no-refresh")
    assert shown["events"][0]["source"] == "controller"
    verdicts = [item["verdict"] for item in mine]
    assert verdicts[0] == "no baseline" and set(verdicts[1:]) == {"ok"}, result
    lines = lab.run(["cat", f"{site.home}/ran"]).stdout.splitlines()
    assert len(lines) == len(set(lines)) == 2 * planned
    # The hosts have no time zone.
    since = began.strftime("%Y-%m-%dT%H:%M:%S")
    sacct = ["sacct", "-X", "-n", "-P", "-o", "JobID,JobName", "-S", since]
    seen: list[str] = []

    def are_accounted() -> bool:
        seen[:] = [line for line in lab.run(sacct).stdout.splitlines() if "|two." in line]
        return len(seen) >= 2 * planned

    lab.wait_for(are_accounted, 120, "sacct to have all jobs", 1)
    assert len(seen) == 2 * planned, seen
    tell(f"{planned} planned times, {kills} kills: {2 * planned} jobs, verdicts {verdicts}")


#: Takes what is posted to it, and writes each body down.
RECEIVER = """\
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body + b"\\n")
        self.send_response(204)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_slower_sweep_is_reported_once(lab: cluster.Lab, site: sites.Site) -> None:
    lab.write(f"{site.home}/receiver.py", RECEIVER)
    receiver = lab.popen(
        [sites.PYTHON, f"{site.home}/receiver.py", f"{site.home}/told"], cwd=site.home
    )
    assert receiver.stdout is not None
    port = receiver.stdout.readline().strip()
    hook = f'[notices.hook]\nkind = "webhook"\nform = "json"\nurl = "http://127.0.0.1:{port}/"\n'
    site = sites.Site.make(lab, site.home, more=QUICK + hook)
    slower = "1000.0 * (0.8 if os.path.exists('slow') else 1) + step"
    program = PROGRAM.format(home=site.home).replace("1000.0 + step", slower)
    assert slower in program
    lab.write(f"{site.home}/program.py", program)
    spec = site.spec("two", SPEC.replace("axes.args.seed", "repeats = 5\naxes.args.seed"))
    running = site.popen("serve")
    try:
        site.run("sweep", "submit", spec, "--wait")
        site.run("baseline", "set", "good", "--sweep", "two")
        lab.write(f"{site.home}/slow", "")
        cron = ["--cron", "* * * * *", "--baseline", "good", "--overlap", "allow"]
        site.run("schedule", "add", "often", *cron, spec)

        def judged() -> bool:
            return len([firing for firing in firings(site) if firing["verdict"]]) >= 2

        lab.wait_for(judged, 240, "two verdicts", 1)
        site.run("schedule", "remove", "often")

        def sent() -> bool:
            return not site.items("notices", "list", "--unsent")

        lab.wait_for(sent, 60, "the notices to be sent", 1)
    finally:
        lab.kill(running)
        running.communicate()
        lab.kill(receiver)
        receiver.communicate()
    mine = [firing for firing in firings(site) if firing["verdict"]]
    assert {item["verdict"] for item in mine} == {"regression"}, mine
    reported = [json.loads(line) for line in lab.read(f"{site.home}/told").splitlines()]
    items = [item for message in reported for item in message["items"]]
    assert len({item["key"] for item in items}) == len(items) == len(mine)
    assert {item["kind"] for item in items} == {"regression"}
    planned = [item["planned_at"] for item in mine]
    assert [item["sweep"] for item in items] == [item["sweep"] for item in mine]
    for item, at in zip(items, planned, strict=True):
        assert item["subject"].startswith(f"schedule often of {at[:16]}"), (item, at)
        assert item["subject"].endswith(": regression")


def test_crontab_line_runs(lab: cluster.Lab, site: sites.Site) -> None:
    """The printed line works with cron's environment, for a project with its own database."""
    lab.write(f"{site.home}/orchestrator.toml", 'state_dir = "state of project"\n')
    site.run("trust", site.home)
    spec = site.shell("hello", "echo hello")
    site.run("schedule", "add", "hello", "--cron", "@daily", spec)
    (_, line, _) = site.run("schedule", "install", "--cron").stdout.splitlines()
    site.run("schedule", "pause", "hello")
    row = site.items("schedule", "run", "hello")[0]["job"]
    site.wait_state(f"@{row}", "COMPLETED")
    command = line.removeprefix("* * * * * ")
    done: subprocess.CompletedProcess[str] = lab.run(
        [
            "env",
            "-i",
            "HOME=/home/alice",
            "LOGNAME=alice",
            "PATH=/usr/bin:/bin",
            "sh",
            "-c",
            command,
        ]
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (firing,) = site.items("schedule", "history", "hello")
    assert firing["verdict"] == "not measured"
