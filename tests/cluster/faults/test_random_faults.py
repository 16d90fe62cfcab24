"""Random faults during running jobs, concurrent submissions and queries.

The seed is printed; ORCHESTRATOR_TEST_SEED=SEED draws the same faults again. Where processes meet
is not in the seed: what happened, with times, is printed when the test fails.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import json
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from orchestrator import jobs
from tests.cluster import site as sites
from tests.cluster.faults import injections, rows

KILL_AT = "/srv/orchestrator/tests/cluster/kill_at.py"
POINTS = (
    *("folder", "rowless", "started", "waiting", "intent", "committed", "given", "sbatch"),
    *("answered", "storing"),
)
FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"
SEVERAL = "/srv/orchestrator/tests/cluster/several.py"
IN_FLIGHT = 20
MAX_SECONDS = 18
STATE_DISK = "size=64m,mode=700,uid=2001,gid=2001"
#: Longer than slurmctld hangs here, so that most verdicts wait for it; a few are overruled later.
GRACE = "submit_grace_seconds = 12\n"
#: From one fault to the next, in the mean.
GAP_SECONDS = 1.0
SETTLE_SECONDS = 240
#: Of a command that waits for a Slurm that hangs.
COMMAND_SECONDS = 300
RELEASED = (("scontrol", "release"), ("scontrol", "resume"), ("scancel", "-b", "-s", "CONT"))


@dataclasses.dataclass
class Users:
    """Users who submit and query during faults."""

    world: injections.World
    clock: str
    #: no more is to be done
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    submitted: int = 0
    #: names of jobs that submit reported as submitted -> the printed job ID
    printed_ids: dict[str, str] = dataclasses.field(default_factory=dict)

    def spec(self, chance: random.Random) -> tuple[str, str]:
        """Write the spec of one more job; its name and its place."""
        self.submitted += 1
        name, seconds = f"job-{self.submitted}", chance.randrange(2, MAX_SECONDS)
        command = f"echo Epoch Throughput: {seconds}.5 images/second; sleep {seconds}"
        # What is wrong with the clock of who submits is not to be so in the job.
        return name, self.world.row.shell(name, command, environment='export = "none"')

    def submit_many(self, chance: random.Random, count: int) -> None:
        """Submit so many jobs by one process."""
        made = [self.spec(chance) for _ in range(count)]
        site, lines = self.world.row.site, [json.dumps(["submit", spec]) for _, spec in made]
        done = site.lab.run(
            [sites.PYTHON, SEVERAL],
            env=site.environ,
            cwd=site.home,
            input="\n".join(lines),
            timeout_seconds=COMMAND_SECONDS,
        )
        assert "Traceback" not in done.stderr, done.stderr
        for (name, _), line in zip(made, done.stdout.splitlines(), strict=False):
            self.record_output(name, "many", line)

    def record_output(self, name: str, how: str, line: str) -> None:
        """Record the exit code of a submission and the last word it printed."""
        self.world.note(f"submit {name} ({how}): {line}")
        if match := re.fullmatch(r"0 Submitted batch job (\d+) .*", line):
            self.printed_ids[name] = match[1]

    def submit(self, chance: random.Random) -> None:
        """Keep enough jobs in flight, some by a process that dies or has a wrong clock."""
        while not self.stop.is_set():
            if len(self.world.live) >= IN_FLIGHT:
                time.sleep(0.2)
                continue
            if len(self.world.live) <= IN_FLIGHT // 2:
                self.submit_many(chance, IN_FLIGHT // 2)
            name, spec = self.spec(chance)
            how = chance.choices(("plain", "killed", "clock"), (7, 2, 1))[0]
            point, delay = chance.choice(POINTS), str(chance.uniform(0, 0.2))
            site = self.site(how, chance)
            if how == "killed":
                argv = [KILL_AT, point, delay, "submit", spec]
                done = site.lab.script(
                    argv, env=site.environ, cwd=site.home, timeout_seconds=COMMAND_SECONDS
                )
            else:
                done = site.run("submit", spec, check=None, timeout_seconds=COMMAND_SECONDS)
            assert "Traceback" not in done.stderr, done.stderr
            self.record_output(name, how, f"{done.returncode} {last(done.stdout or done.stderr)}")

    def look(self, chance: random.Random) -> None:
        """Ask for all jobs, or for one, again and again; sometimes die on the way."""
        while not self.stop.is_set():
            name = f"job-{chance.randrange(1, IN_FLIGHT)}"
            argv = chance.choice(
                (["refresh"], ["show", name], ["wait", name, "--timeout", "2"], ["status"])
            )
            how = chance.choices(("plain", "killed", "clock"), (8, 1, 1))[0]
            site = self.site(how, chance)
            if how == "killed":
                with site.popen(*argv) as process:
                    time.sleep(chance.uniform(0.2, 1.5))
                    site.lab.kill(process)
                    process.communicate(timeout=COMMAND_SECONDS)
                self.world.note(f"{argv[0]} was killed")
                continue
            done = site.run(*argv, check=None, timeout_seconds=COMMAND_SECONDS)
            if done.returncode not in (0, 4, 124):
                self.world.note(f"{' '.join(argv)} ({how}): {done.returncode} {last(done.stderr)}")
            assert "Traceback" not in done.stderr, done.stderr
            if argv == ["status"]:
                self.take_status(done)

    def take_status(self, done: subprocess.CompletedProcess[str]) -> None:
        lines = [line.split("\t") for line in done.stdout.splitlines()[1:]]
        self.world.live = [line[0] for line in lines if line[0] and line[2] not in jobs.TERMINAL]

    def site(self, how: str, chance: random.Random) -> sites.Site:
        """The site; with `clock`, at a time that is ten minutes off."""
        if how != "clock" or not self.clock:
            return self.world.row.site
        offset = chance.choice(("-10m", "+10m"))
        return self.world.row.site.with_env(LD_PRELOAD=self.clock, FAKETIME=offset)


def last(text: str) -> str:
    return (text.splitlines() or [""])[-1][:160]


def wait_for_all_ends(world: injections.World) -> None:
    """Let go what is held or stopped, until every job has ended and nothing is in doubt."""
    site = dataclasses.replace(world.row.site, env={})
    seen: list[str] = []

    def ended() -> bool:
        for row in world.lab.squeue("-u", "alice"):
            held = "held" in row["Reason"].lower() or row["State"] in ("SPECIAL_EXIT", "SUSPENDED")
            for argv in RELEASED if held or row["State"] == "STOPPED" else ():
                world.lab.run([*argv, row["JobID"]], user="root")
        site.run("refresh", check=None)
        items = site.items("status", "--all", "--limit", "100000", "--no-refresh")
        live = [row for row in items if row["state"] not in jobs.TERMINAL]
        seen[:] = [f"{row['name']} {row['job_id']} {row['state']} {row['reason']}" for row in live]
        return not live

    try:
        world.lab.wait_for(ended, SETTLE_SECONDS, "all jobs to end", 1)
        world.note("all jobs have ended")
    except TimeoutError as error:
        raise AssertionError(f"{error}: {seen}") from error


def check(world: injections.World, users: Users) -> None:
    """Check the invariants of every row and the job IDs that the users saw."""
    row = world.row
    row.most["sbatch"] = users.submitted
    row.check()
    known = {job["name"]: job for job in row.jobs()}
    wrong = {
        name: job_id
        for name, job_id in users.printed_ids.items()
        if known[name]["job_id"] != job_id
    }
    assert not wrong, f"other job IDs were printed: {wrong}"
    begun = {line.split()[1] for line in row.site.lab.read(f"{row.site.home}/journal").splitlines()}
    completed = [job for job in known.values() if job["state"] == "COMPLETED"]
    unseen = [job for job in completed if job["run_dir"].rpartition("/")[2] not in begun]
    assert not unseen, f"COMPLETED and never began: {unseen}"
    sent = collections.Counter(
        word for call in row.seen.calls("sbatch") for word in call.argv if "--job-name=" in word
    )
    assert set(sent.values()) <= {1}, f"I4: sent twice: {sent}"


def run_faults(site: sites.Site, count: int, tell: Callable[[str], None]) -> None:
    """Inject so many faults, heal all, and check."""
    with site.lab.faults() as seen:
        row = rows.Row(site=site.with_env(**seen.env), seen=seen, runaways=True)
        inject(row, count, tell)


def inject(row: rows.Row, count: int, tell: Callable[[str], None]) -> None:
    seed = int(os.environ.get("ORCHESTRATOR_TEST_SEED") or random.randrange(2**32))
    tell(f"random faults: seed {seed}")
    lab, home = row.site.lab, row.site.home
    sites.Site.make(lab, home, more=GRACE)
    lab.make_folder(f"{home}/state")
    mount = ["mount", "-t", "tmpfs", "-o", STATE_DISK, "state", f"{home}/state"]
    lab.run(mount, user="root").check_returncode()
    world = injections.World(row)
    clock = lab.run(["sh", "-c", f"ls {FAKETIME}"]).stdout.strip()
    users = Users(world=world, clock=clock)
    begun = time.monotonic()
    try:
        injected = act(world, users, seed, count)
        wait_for_all_ends(world)
        check(world, users)
    finally:
        # pytest shows it when the test fails.
        print(f"seed {seed}", *world.log, sep="\n")
        lab.undo_faults()
    states = collections.Counter(job["state"] for job in row.jobs())
    names = collections.Counter(name.split(":")[0].split(",")[0] for name in injected)
    tell(f"{len(injected)} faults, {users.submitted} submissions: {dict(states)}")
    tell(f"in {time.monotonic() - begun:.0f} s: {dict(names)}")


def act(world: injections.World, users: Users, seed: int, count: int) -> Sequence[str]:
    """Let users work while faults come; returns the faults when all are undone."""
    chance = random.Random(seed)
    injector = injections.Injector(world)
    injected: list[str] = []
    users.submit_many(random.Random(f"{seed} first"), IN_FLIGHT)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        working = [
            pool.submit(users.submit, random.Random(f"{seed} submit")),
            pool.submit(users.look, random.Random(f"{seed} look")),
        ]
        try:
            while len(injected) < count:
                fault = injections.draw(chance)
                if injector.inject(fault):
                    injected.append(fault.name)
                    injector.pause(chance.uniform(0, 2 * GAP_SECONDS))
                for future in working:
                    if future.done():
                        future.result()
        finally:
            users.stop.set()
            injector.undo_due(all_=True)
            world.lab.undo_faults()
            world.row.seen.set()
        for future in working:
            future.result()
    world.end()
    world.note("all faults are undone")
    return injected


# Not by the fixture `row`: the check is part of the test, so that its failure comes with the log.
@pytest.mark.early
def test_thirty_random_faults(site: sites.Site, tell: Callable[[str], None]) -> None:
    run_faults(site, 30, tell)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_random_faults(site: sites.Site, tell: Callable[[str], None]) -> None:
    run_faults(site, 1000, tell)
