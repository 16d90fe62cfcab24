"""[retry] on a real cluster: retries by cause with `orchestrator tick`, and their messages."""

from __future__ import annotations

import collections
import datetime
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import failures, root
from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster import test_resumed_training as trainings

#: Each start writes a checkpoint with a higher number; before the third it runs forever.
SAVES = """\
folder=$ORCHESTRATOR_RUN_DIR/checkpoints
mkdir -p $folder
number=$(($(ls $folder | wc -l) + 1))
touch $folder/checkpoint-$number.pt
[ $number -ge 3 ] || sleep 300
"""
HOG = f"srun {sites.PYTHON} {failures.PROGRAMS}/plain.py --how hog"
FAILS = "echo 'OSError: [Errno 5] Input/output error' >&2; exit 3"
RETRY = "max_retries = 3\nbackoff_seconds = 1\n"


def tick(site: sites.Site) -> str:
    """Run one pass; return its output."""
    return site.run("tick", check=None).stderr


def events(job: dict[str, Any]) -> list[str]:
    """What was decided about a job, in its history."""
    return [event["detail"] for event in job["events"] if event["kind"] == "retry"]


def rows_events(site: sites.Site, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The histories of the jobs whose names begin so."""
    mine = [row["row"] for row in rows if row["name"].startswith(name)]
    return [event for row in mine for event in site.job(f"@{row}")["events"]]


def last_of(site: sites.Site, job_id: str) -> dict[str, Any]:
    """The newest job of the chain."""
    job = site.job(job_id)
    while job["continued_by"] is not None:
        job = site.job(f"@{job['continued_by']}")
    return job


def drive(site: sites.Site, jobs: dict[str, str], seconds: float) -> dict[str, dict[str, Any]]:
    """Tick until the chain of each has ended; returns the last jobs by name."""
    ended: dict[str, dict[str, Any]] = {}

    def over() -> bool:
        tick(site)
        for name in jobs.keys() - ended.keys():
            job = last_of(site, jobs[name])
            decided = job["chain"][-1]["action"] if job["chain"] else None
            if job["state"] == "COMPLETED" or decided == "none":
                ended[name] = job
        return len(ended) == len(jobs)

    site.lab.wait_for(over, seconds, f"the chains of {', '.join(jobs)}", 0.5)
    return ended


def reach_limit(
    lab: cluster.Lab, site: sites.Site, name: str, number: int, *, saves: bool = True
) -> None:
    """Let the job of this name that is its chain's `number`th reach its time limit now.

    With `saves` not before it has written its checkpoint, with that number.
    """
    seen: list[str] = []

    def running() -> bool:
        tick(site)
        rows = site.items("status", "--all")
        mine = [row for row in rows if row["name"] == name]
        seen[:] = [row["job_id"] for row in mine if row["state"] == "RUNNING"]
        return len(mine) == number and bool(seen) and (not saves or has_saved(mine[-1]))

    def has_saved(first: dict[str, Any]) -> bool:
        return lab.path(f"{first['run_dir']}/checkpoints/checkpoint-{number}.pt").exists()

    lab.wait_for(running, 120, f"{name} to run as number {number}", 0.5)
    lab.run(["scontrol", "update", f"jobid={seen[0]}", "endtime=now+1"], user="root")


def once_of(site: sites.Site, job_id: str) -> bool:
    return site.lab.path(f"{site.job(job_id)['run_dir']}/checkpoints/once").exists()


@pytest.mark.early
def test_each_rule(site: sites.Site) -> None:
    lab = site.lab
    small = "cpus_per_task = 1\nmem = '300M'"

    def submit(name: str, command: str, *argv: str, retry: str = "", **tables: str) -> str:
        tables = {"resources": small, "retry": RETRY + retry, **tables}
        # n3 is lost: who is there by chance would be lost along with it.
        return site.submit(site.shell(name, command, **tables), *(argv or ["--exclude=n3"]))

    once = "$ORCHESTRATOR_RUN_DIR/checkpoints/once"
    first = f"mkdir -p $(dirname {once}); [ -e {once} ] || {{ touch {once}; sleep 300; }}"
    # Its step ends in the grace time, before Slurm ends the job.
    step = f"[ -e {once} ] || srun sh -c 'mkdir $(dirname {once}); touch {once}; exec sleep 300'"
    made = {
        "preempted": submit("preempted", first, "--partition=spot", "--nodelist=n1"),
        "step": submit("step", step, "--partition=spot", "--nodelist=n1"),
        # Its checkpoints lie in the first job's run folder, which nothing else brings inside.
        "contained": submit(
            "contained",
            first,
            *("--partition=spot", "--nodelist=n1", "--chdir=/tmp"),
            container=f'runtime = "apptainer"\nimage = "{root.IMAGE}"\ngpu = "none"',
            environment='variables = { APPTAINER_NO_MOUNT = "home" }',
        ),
        "lost": submit(
            "lost",
            "[ $SLURMD_NODENAME != n3 ] || sleep 300",
            "--exclude=n1,n2",
            retry="exclude_after = 1\n",
            job="requeue = false",
        ),
        "limited": submit("limited", SAVES),
        "stuck": submit("stuck", "sleep 300"),
        "flaky": submit("flaky", FAILS),
        "wrong": submit("wrong", f"{sites.PYTHON} -c 'raise ValueError(3)'"),
        "cancelled": submit("cancelled", "sleep 300"),
        "plain": site.submit(site.shell("plain", FAILS)),
        "memory": submit(
            "memory",
            HOG,
            retry='[retry.changes.oom_host]\n"resources.mem" = "x5"\n',
            resources='cpus_per_task = 1\nmem = "200M"',
        ),
    }
    site.wait_state(made["lost"], "RUNNING")
    lab.cut("n3")
    for name in ("preempted", "contained", "step"):
        site.wait_state(made[name], "RUNNING")
    site.lab.wait_for(lambda: once_of(site, made["contained"]), 120, "a checkpoint from inside")
    site.lab.wait_for(lambda: once_of(site, made["step"]), 120, "a checkpoint of the step")
    better = site.shell("better", "sleep 1", job='exclusive = true\ntime_limit = "1"')
    site.submit(better, "--nodelist=n1")
    site.wait_state(made["cancelled"], "RUNNING")
    site.run("cancel", made["cancelled"])
    reach_limit(lab, site, "stuck", 1, saves=False)
    for number in (1, 2):
        reach_limit(lab, site, "limited", number)
    del made["plain"]
    last = drive(site, made, 240)
    lab.heal("n3")

    def messages(name: str) -> list[str]:
        return [event for event in events(site.job(made[name])) if not event.startswith("@")]

    again = "no retry"
    for name in ("preempted", "contained", "step"):
        assert messages(name) == ["preempted: a continuation job is submitted (1 of at most 3)"]
        assert last[name]["state"] == "COMPLETED"
    assert messages("lost") == [
        "node_fail: a continuation job is submitted without n1,n2,n3 in 00:00:01 (1 of at most 3)"
    ]
    assert (last["lost"]["state"], last["lost"]["node_list"]) == ("COMPLETED", "n4")
    assert messages("memory") == [
        "oom_host: a continuation job is submitted with resources.mem = 1000M (1 of at most 3)"
    ]
    assert last["memory"]["state"] == "COMPLETED"
    assert messages("stuck") == [
        "time_limit: it left no checkpoint and logged no step, so a continuation job would start "
        f"over; {again}"
    ]
    assert [link["step"] for link in last["limited"]["chain"]] == [1, 2, None]
    assert last["limited"]["state"] == "COMPLETED"
    # Under its own ID, where slurmctld has not forgotten it before (MinJobAge).
    assert last["flaky"]["state"] == "FAILED"
    assert [link["then"] for link in last["flaky"]["chain"]] == [
        "io_error: the job is requeued in 00:00:01 (1 of at most 3)",
        "io_error: the job is requeued in 00:00:02 (2 of at most 3)",
        f"io_error: the limit of retries after this cause is reached (2); {again}",
    ]
    assert events(last["wrong"]) == [
        "python_exception: the program raised an exception, and the same job would fail again; "
        f"{again}"
    ]
    assert events(last["cancelled"]) == [f"cancelled: its cancellation was requested; {again}"]
    # Without [retry] there are no retries.
    assert events(site.job("plain")) == []
    assert len([row for row in site.items("status", "--all") if row["name"] == "plain"]) == 1
    shown = site.run("show", made["limited"]).stdout
    chain = shown.partition("\nChain:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[:4] for line in chain[1:3]] == [
        [made["limited"], "0", "TIMEOUT", "1"],
        [site.job(made["limited"])["chain"][1]["job_id"], "0", "TIMEOUT", "2"],
    ]


#: Each start writes a checkpoint and a metric; before the second it runs forever.
POINT = """\
import json, os, time
task = os.environ.get("SLURM_ARRAY_TASK_ID")
folder = os.environ["ORCHESTRATOR_RUN_DIR"] + "/checkpoints" + (f".{task}" if task else "")
os.makedirs(folder, exist_ok=True)
if os.environ["SLURM_PROCID"] == "0":
    number = len(os.listdir(folder)) + 1
    open(f"{folder}/checkpoint-{number}.pt", "w").close()
    with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
        ranks = int(os.environ["SLURM_NTASKS"])
        for step in range(5 * number):
            record = {"name": "window_throughput", "value": 100.0 * ranks + step, "unit": ""}
            print(json.dumps({**record, "step": step, "rank": 0, "world_size": ranks}), file=file)
    if number < 2 and task != "0":
        time.sleep(300)
"""


@pytest.mark.slow
def test_each_task_and_point_continues_independently(site: sites.Site) -> None:
    lab = site.lab
    # The hardest site: what waits for a bad end is cancelled.
    lab.reconfigure(extra=("DependencyParameters=kill_invalid_depend",))
    lab.write(f"{site.home}/point.py", POINT)
    head = (
        '[job]\nname = "NAME"\ntime_limit = "5"\n[resources]\nntasks_per_node = 1\nmem = "100M"\n'
    )
    launch = '[launch]\nlauncher = "srun"\nscript = "point.py"\n'
    text = f"{head}[retry]\n{RETRY}{launch}"
    # Task 0 ends well at once. The point with two ranks waits for the end of the other's chain.
    array = site.spec("tasks", text.replace("NAME", "tasks") + "[array]\nsize = 3\n")
    points = "{ args.of = 1 }, { args.of = 2, resources.ntasks_per_node = 2 }"
    sweep = f'[sweep]\nkind = "list"\nbaseline_first = true\npoints = [{points}]\n'
    site.run("submit", array)
    site.run("sweep", "submit", site.spec("points", text.replace("NAME", "points") + sweep))
    limited: set[str] = set()

    def over() -> bool:
        tick(site)
        rows = site.items("status", "--all", "-r")
        for row in rows:
            # The second start of each ends by itself.
            if row["state"] == "RUNNING" and not site.job(f"@{row['row']}")["chain"]:
                if row["job_id"] not in limited and not row["job_id"].endswith("_0"):
                    limited.add(row["job_id"])
                    update = ["scontrol", "update", f"jobid={row['job_id']}", "endtime=now+1"]
                    lab.run(update, user="root").check_returncode()
        return sum(row["state"] == "COMPLETED" for row in rows) == 5

    lab.wait_for(over, 240, "the chains of two tasks and two points", 0.5)
    rows = site.items("status", "--all", "-r")
    (first,) = {row["job_id"].partition("_")[0] for row in rows if row["job_id"].endswith("_0")}
    for task in (1, 2):
        chain = site.job(f"{first}_{task}")["chain"]
        assert [link["state"] for link in chain] == ["TIMEOUT", "COMPLETED"]
        assert chain[1]["job_id"].endswith(f"_{task}")
        assert [link["step"] for link in chain] == [1, None]
    assert site.job(f"{first}_0")["chain"] == []
    items = site.items("sweep", "status", "points", "--points")
    assert [point["state"] for point in items] == ["COMPLETED"] * 2
    for point in items:
        assert [link["state"] for link in site.job(point["job_id"])["chain"]] == [
            "TIMEOUT",
            "COMPLETED",
        ]
    assert len(limited) == 4 and len(rows) == 3 + 2 + 2 * 2
    details = [
        event["detail"] for event in rows_events(site, rows, "points") if event["kind"] == "depend"
    ]
    again = items[0]["job_id"]
    assert details == [f"waits for afterok:{again}: what had failed was started again"]
    curves = site.items("sweep", "report", "points", "--no-plots")
    seen = [
        (item["ranks"], item["windows"], item["throughput"]) for c in curves for item in c["points"]
    ]
    # Of the last of each chain alone.
    assert seen == [(1, 10, 104.5), (2, 10, 204.5)]


#: A job is requeued, continued by a new job, or continued with more memory.
JOURNAL = (
    "echo NAME $SLURM_JOB_ID $SLURM_RESTART_COUNT >> HOME/ran; number=$(grep -c ^NAME HOME/ran); "
)
KINDS = {
    "requeued": f"[ $number -ge 3 ] || {{ {FAILS}; }}",
    "preempted": "[ $number -ge 2 ] || sleep 300",
    "enlarged": HOG,
}


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_controller_killed_during_recovery(site: sites.Site, tell: Callable[[str], None]) -> None:
    each, kills = 8, 40
    lab = site.lab
    quick = "resend_min_seconds = 1\nresend_max_seconds = 2\nsubmit_grace_seconds = 20\n"
    site = sites.Site.make(lab, site.home, more=quick + "serve_interval_seconds = 1\n")
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    tell(f"killed while it recovers: seed {seed}")
    began = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    made: dict[str, str] = {}
    for kind, command in KINDS.items():
        for number in range(each):
            name = f"{kind}-{number}"
            line = JOURNAL.replace("NAME", name).replace("HOME", site.home)
            # They fail one after the other, so that each of the kills finds something to do.
            line += f"sleep {number * 5}; {command}"
            extra = '[retry.changes.oom_host]\n"resources.mem" = "x5"\n'
            mem = "200M" if kind == "enlarged" else "50M"
            spec = site.shell(
                name,
                line,
                resources=f"cpus_per_task = 1\nmem = '{mem}'",
                retry=RETRY + extra if kind == "enlarged" else RETRY,
            )
            where = ["--partition=spot", "--nodelist=n1"] if kind == "preempted" else []
            made[name] = site.submit(spec, *(where or ["--exclude=n1"]))
    for name in (name for name in made if name.startswith("preempted")):
        site.wait_state(made[name], "RUNNING")
    running = site.popen("serve")
    try:
        better = site.shell("better", "sleep 1", job='exclusive = true\ntime_limit = "1"')
        site.submit(better, "--nodelist=n1")
        for _ in range(kills):
            assert running.stdout is not None
            next(line for line in running.stdout if " Controller running, one pass every " in line)
            time.sleep(dice.uniform(0, 3))
            lab.kill(running)
            running.communicate()
            running = site.popen("serve")
        site.run("wait", *made.values(), timeout_seconds=400)
    finally:
        lab.kill(running)
        running.communicate()
    starts = {"requeued": 3, "preempted": 2, "enlarged": 2}
    ran = [line.split() for line in lab.read(f"{site.home}/ran").splitlines()]
    counted = collections.Counter(name for name, *_ in ran)
    assert counted == {name: starts[name.partition("-")[0]] for name in made}
    sacct = ["sacct", "-X", "-D", "-n", "-P", "-o", "JobID,JobName,State", "-S", began]
    rows = [line.split("|") for line in lab.run(sacct).stdout.splitlines()]
    in_slurm = collections.Counter(name.partition(".")[0] for _, name, _ in rows)
    for name in made:
        last = last_of(site, made[name])
        assert last["state"] == "COMPLETED"
        links = last["chain"]
        assert [link["outcome"] for link in links] == ["done"] * (len(links) - 1) + [None]
        rows_of = {link["row"] for link in links}
        reported = [event for row in rows_of for event in events(site.job(f"@{row}"))]
        decided = [item for item in reported if " of at most " in item]
        assert len(decided) == starts[name.partition("-")[0]] - 1, reported
        assert in_slurm[name] == counted[name], rows
    tell(f"{kills} kills: {len(ran)} starts of {len(made)} chains, each decided and done once")


#: It may not be requeued: what follows is a new job.
TRAINING = (
    trainings.SPEC.replace("requeue = true", "requeue = false")
    + """
[retry]
max_retries = 3
backoff_seconds = 1
"""
)


def following(site: sites.Site, job: dict[str, Any], seconds: float = 120) -> dict[str, Any]:
    """Wait for the continuation job and its first epoch; return it."""
    result: dict[str, Any] = {}

    def there() -> bool:
        result.update(site.job(job["job_id"]))
        return result["continued_by"] is not None

    site.lab.wait_for(there, seconds, f"a job that goes on with {job['job_id']}", 0.5)
    after = site.job(f"@{result['continued_by']}")
    trainings.wait_epochs(site, after, 0, 1)
    return site.job(after["job_id"])


def preempt(site: sites.Site, job: dict[str, Any]) -> None:
    """Let a better job take one of its hosts."""
    (host, *_) = site.lab.run(["scontrol", "show", "hostnames", job["node_list"]]).stdout.split()
    better = site.shell("better", "sleep 1", job='exclusive = true\ntime_limit = "1"')
    site.submit(better, f"--nodelist={host}")


def check_exact(site: sites.Site, first: str, expected: dict[tuple[str, int], float]) -> list[str]:
    """The chain's numbers are those of the undisturbed training; returns its causes."""
    job = last_of(site, first)
    assert (job["state"], job["exit_code"]) == ("COMPLETED", 0)
    rows = list(dict.fromkeys(link["row"] for link in job["chain"]))
    links = [site.job(f"@{row}") for row in rows]
    lines = [line for link in links for line in trainings.lines(site.lab, link)]
    assert trainings.epochs(lines) == expected
    result = json.loads(site.lab.read(f"{job['run_dir']}/result.json"))
    epochs = len(expected) // len(trainings.NAMES)
    assert (result["finished"], result["num_samples"]) == (True, epochs * 1438)
    # Each resumed from the checkpoint of the previous one.
    for link in links[1:]:
        assert "Resumed after step " in site.lab.read(link["stdout_path"])
    return [link["cause"] for link in job["chain"] if link["cause"]]


#: Separate, so that the preempting job competes only with the chain for its hosts.
SPOT = 'partition = "spot"\ntime_limit = "00:10:00"\nexclude = "n1,n2"'
QUIET = 'time_limit = "00:10:00"\nexclude = "n3,n4"'


@pytest.mark.early
def test_training_continues_after_preemption_and_time_limit(site: sites.Site) -> None:
    lab = site.lab
    quiet = trainings.submit(site, "quiet", QUIET, trainings.EPOCHS)
    # It is not to be over before it is disturbed.
    first = trainings.submit(site, "chain", SPOT, trainings.EPOCHS, 2.0, TRAINING)
    controller = site.popen("serve")
    try:
        job = site.job(first)
        trainings.wait_epochs(site, job, 0, 2)
        preempt(site, site.job(first))
        job = following(site, job)
        # What Slurm does at --signal=B:USR1: the ranks save and stop, and Slurm refuses to requeue.
        lab.run(["scancel", "--signal=USR1", "--batch", job["job_id"]], user="alice")
        # The chain's end, by its first job's ID.
        site.run("wait", first, quiet, timeout_seconds=500)
    finally:
        lab.kill(controller)
        controller.communicate()
    expected = trainings.epochs(trainings.lines(lab, site.job(quiet)))
    assert check_exact(site, first, expected) == ["preempted", "time_limit"]


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_training_over_three_time_limits_preemption_and_lost_host(
    site: sites.Site, tell: Callable[[str], None]
) -> None:
    lab = site.lab
    number = trainings.LIMITED_EPOCHS
    minutes, expected = trainings.undisturbed(site, number)
    job_keys = f'partition = "spot"\ntime_limit = "{minutes}"\nsignal_seconds = {minutes * 20}'
    first = trainings.submit(site, "chain", job_keys, number, minutes * 3.0, TRAINING)
    controller = site.popen("serve")
    try:
        job = site.job(first)
        trainings.wait_epochs(site, job, 0, 2)
        preempt(site, site.job(first))
        job = following(site, job)
        hosts = lab.run(["scontrol", "show", "hostnames", job["node_list"]]).stdout.split()
        lab.cut(hosts[-1])
        job = following(site, job)
        site.run("wait", first, timeout_seconds=minutes * 60 * 8)
    finally:
        lab.kill(controller)
        controller.communicate()
    lab.heal(hosts[-1])
    causes = check_exact(site, first, expected)
    tell(f"a chain over {', '.join(causes)}, COMPLETED")
    assert causes[:2] == ["preempted", "node_fail"]
    assert set(causes[2:]) == {"time_limit"} and len(causes) >= 5
