"""Job arrays on a real Slurm: one submission, one job per task."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable

from orchestrator.slurm import job_ids
from tests.cluster import faults
from tests.cluster import lab as cluster
from tests.cluster import site as sites

PYTHON = "/opt/orchestrator-env/bin/python"
#: Runs its arguments and prints the CPU seconds of the child, and its largest memory in KiB.
MEASURED = """\
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stderr, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
#: Submits so many jobs of a spec in one process: a hundred starts of Python take minutes.
MANY = """\
import sys
import click
from orchestrator import cli
for number in range(int(sys.argv[2])):
    cli.cli(["submit", sys.argv[1], "--name", f"single-{number}"], standalone_mode=False)
"""
PROGRAM = """\
import os, sys, time
print("arguments", *sys.argv[1:])
time.sleep(300 if "--long" in sys.argv else 0)
sys.exit(3 if "--bad" in sys.argv else 0)
"""


def array(site: sites.Site, name: str, keys: str, command: str = "", job: str = "") -> str:
    """Write the spec of an array: of a shell line with array.size, else of PROGRAM."""
    start = f"command = {json.dumps(command)}" if command else 'script = "program.py"'
    site.lab.write(f"{site.home}/program.py", PROGRAM)
    text = f'[job]\nname = "{name}"\ntime_limit = "5"\n{job}\n'
    return site.spec(name, f'{text}[launch]\nlauncher = "python"\n{start}\n[array]\n{keys}\n')


def states(site: sites.Site, *references: str) -> dict[str, str]:
    """The state of each task or job, by ID, as orchestrator has it without asking."""
    argv = references or ("--all", "--limit", "2000")
    return {row["job_id"]: row["state"] for row in site.items("status", *argv, "--no-refresh")}


def in_slurm(lab: cluster.Lab) -> dict[str, str]:
    """The state of each of this test's jobs, a task a line: squeue's word, else sacct's.

    Other tests' jobs have other names.
    """
    result: dict[str, str] = {}
    environ = {"SLURM_BITSTR_LEN": "0"}
    command = ["sacct", "-X", "-n", "-P", "-S", "now-1hour", "-u", "alice", "-oJobID,State,JobName"]
    for line in lab.run(command, env=environ).stdout.splitlines():
        result.update(_each(line))
    command = [
        "squeue",
        "-u",
        "alice",
        "-h",
        "-r",
        "-t",
        "all",
        "-O",
        "JobArrayID:30,State:20,Name:60",
    ]
    for line in lab.run(command, env=environ).stdout.splitlines():
        result.update(_each("|".join(line.split())))
    return result


def _each(line: str) -> dict[str, str]:
    job_id, state, name = line.split("|")
    if not name.startswith(("wide.", "single.", "single-")):
        return {}
    master, bracket, tasks = job_id.partition("_[")
    word = state.split()[0]
    if not bracket:
        return {job_id: word}
    numbers = job_ids.expand_tasks(tasks.partition("%")[0].rstrip("]"))
    return {f"{master}_{task}": word for task in numbers}


def test_500_tasks_and_100_jobs_take_two_calls(
    lab: cluster.Lab, site: sites.Site, tell: Callable[[str], None]
) -> None:
    wide = site.submit(array(site, "wide", "size = 500\nmax_running = 4", command="sleep 2"))
    single = site.shell("single", "true", sbatch="hold = true")
    many = lab.run(
        [PYTHON, "-c", MANY, single, "100"], env=site.environ, cwd=site.home, timeout_seconds=300
    )
    many.check_returncode()
    lab.run(["scancel", f"{wide}_[300-310]"]).check_returncode()
    site.run("cancel", f"{wide}_[400-499]")
    lab.wait_for(lambda: "COMPLETED" in in_slurm(lab).values(), 120, "some tasks to have ended", 1)
    # Nothing changes while both are read. scontrol exits with 1: some tasks have already ended.
    lab.run(["scontrol", "hold", wide], user="root")
    going = {"RUNNING", "COMPLETING"}
    lab.wait_for(
        lambda: going.isdisjoint(in_slurm(lab).values()), 120, "the running tasks to end", 1
    )
    with lab.faults() as seen:
        command = [PYTHON, "-c", MEASURED, "orchestrator", "refresh"]
        env = {**site.environ, **seen.env}
        done = lab.run(command, env=env, cwd=site.home, timeout_seconds=120)
        code, reply, cpu_seconds, memory_kib = json.loads(done.stdout)
        assert code == 0, reply
        calls = [call.command for call in seen.calls()]
    assert sorted(calls) in (["squeue"], ["sacct", "squeue"])
    tell(f"600 jobs: {len(calls)} calls, {cpu_seconds:.2f} s of CPU, {memory_kib // 1024} MiB")
    ours = states(site)
    assert len(ours) == 600
    # Tasks that were cancelled while pending are not in Slurm's output.
    gone = {f"{wide}_{task}" for task in (*range(300, 311), *range(400, 500))}
    kept = {job_id: ours[job_id] for job_id in ours.keys() - gone}
    # A task may be in sacct some seconds after it has left squeue.
    with contextlib.suppress(TimeoutError):
        lab.wait_for(lambda: in_slurm(lab) == kept, 120, "sacct to have all tasks", 1)
    theirs = in_slurm(lab)
    assert not gone & theirs.keys()
    assert kept == theirs
    assert {ours[f"{wide}_{task}"] for task in range(400, 500)} == {"CANCELLED"}
    # A table folds them, other formats do not.
    table = site.run("status", "-n", "200", "--format", "table", "--no-refresh").stdout
    assert f"{wide}_[400-499]" in table and len(table.splitlines()) < 120
    assert len(site.run("status", wide, "--format", "tsv").stdout.splitlines()) == 501
    site.run("cancel", wide, "--timeout", "60")


def test_each_task_is_a_separate_job(lab: cluster.Lab, site: sites.Site) -> None:
    tasks = 'tasks = [{lr = 0.1}, {bad = true}, {lr = 0.3, note = "it\'s $HOME"}, {}]'
    spec = array(site, "four", f"max_running = 2\n{tasks}")
    done = site.run("submit", spec, "--wait", check=1)
    (output, number) = re.match(r"(Submitted batch job (\d+) .*)\n", done.stdout).groups()
    assert output == f"Submitted batch job {number} (@1-4, four, 4 tasks)"
    assert done.stderr.endswith(f"Error: 1 of 4 jobs did not complete: {number}_1 FAILED\n")
    assert states(site, number) == {
        f"{number}_{task}": "FAILED" if task == 1 else "COMPLETED" for task in range(4)
    }
    assert "arguments --lr 0.3 --note it's $HOME\n" in site.run("logs", f"{number}_2").stdout
    result = site.run("logs", number, "--grep", "^arguments --lr").stdout.splitlines()
    assert [line.split(":", 2)[::2] for line in result] == [
        [f"{number}_0", "arguments --lr 0.1"],
        [f"{number}_2", "arguments --lr 0.3 --note it's $HOME"],
    ]
    folder = site.job(f"{number}_0")["run_dir"]
    # One claim a task, each by the task's own number.
    owners = [lab.path(f"{folder}/owner.{task}").read_text().strip() for task in range(4)]
    assert len(set(owners)) == 4
    raw: dict[str, str] = {}

    def is_accounted() -> bool:
        raw.update((row["JobIDRaw"], row["JobID"]) for row in lab.sacct(number, "-X"))
        return raw.keys() >= set(owners)

    lab.wait_for(is_accounted, 120, "sacct to have all tasks", 1)
    assert [raw[owner] for owner in owners] == [f"{number}_{task}" for task in range(4)]
    assert site.run("show", f"{number}_[1,7]", check=4).stdout == ""
    # Those that failed, once more: the same script, and the same numbers.
    again = site.run("resubmit", f"{number}_1", f"{number}_2", "--parsable").stdout.strip()
    site.run("wait", again, check=1)
    assert states(site, again) == {f"{again}_1": "FAILED", f"{again}_2": "COMPLETED"}
    assert "arguments --lr 0.3 --note it's $HOME\n" in site.run("logs", f"{again}_2").stdout


def test_hold_release_requeue_and_cancel_of_tasks(site: sites.Site) -> None:
    line = '[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 300'
    requeue = "requeue = true"
    number = site.submit(array(site, "verbs", "size = 4", command=line, job=requeue))
    site.wait_state(f"{number}_3", "RUNNING")
    # The last one to start has the array's own number; only it is to be requeued.
    assert site.lab.job(f"{number}_3")["JobId"] == number
    site.run("requeue", f"{number}_3")
    last = site.wait_state(f"{number}_3", "COMPLETED")
    assert (last["attempt"], len(last["attempts"])) == (1, 2)
    others = site.items("status", f"{number}_[0-2]")
    assert [(row["state"], row["attempt"]) for row in others] == [("RUNNING", 0)] * 3
    done = site.run("requeue", "--hold", f"{number}_[0-1]")
    assert done.stdout == f"{number}_[0-1] is PENDING (job requeued in held state)\n"
    site.run("release", f"{number}_0")
    assert site.wait_state(f"{number}_0", "COMPLETED")["attempt"] == 1
    assert site.job(f"{number}_1")["state"] == "PENDING"
    with site.lab.faults() as seen:
        done = site.with_env(**seen.env).run("cancel", number)
        assert len(seen.calls("scancel")) == 1
    assert done.stdout.splitlines() == [
        f"{number}_[0,3] had already ended: COMPLETED",
        f"{number}_[1-2] is CANCELLED",
    ]


def test_many_jobs_are_cancelled_by_one_scancel(lab: cluster.Lab, site: sites.Site) -> None:
    runs, waits, ended = (
        site.submit(site.shell(name, line), *extra)
        for name, line, extra in (
            ("runs", "sleep 300", ()),
            ("waits", "true", ("--set", "sbatch.hold=true")),
            ("ended", "true", ()),
        )
    )
    site.run("wait", ended)
    number = site.submit(
        array(site, "tasks", "size = 1001", command="true"),
        "--set",
        "sbatch.hold=true",
    )
    site.wait_state(runs, "RUNNING")
    # So many ranges that they are two arguments.
    every_other = ",".join(map(str, range(0, 1001, 2)))
    with lab.faults() as seen:
        done = site.with_env(**seen.env).run(
            "cancel", runs, waits, ended, f"{number}_[{every_other}]"
        )
        (call,) = seen.calls("scancel")
    words = [word for word in call.argv if word != "scancel"]
    assert words[:2] == [runs, waits]
    assert [word[: len(number) + 2] for word in words[2:]] == [f"{number}_["] * 2
    assert set(done.stdout.splitlines()) >= {
        f"{runs} is CANCELLED",
        f"{waits} is CANCELLED",
        f"{ended} had already ended: COMPLETED",
    }
    assert lab.job_state(f"{number}_1") == "PENDING"
    result = states(site, number)
    assert {result[f"{number}_{task}"] for task in range(0, 1001, 2)} == {"CANCELLED"}
    assert {result[f"{number}_{task}"] for task in range(1, 1001, 2)} == {"PENDING"}
    site.run("cancel", number)


def test_whole_array_is_adopted_after_lost_sbatch_output(
    lab: cluster.Lab, site: sites.Site
) -> None:
    spec = array(site, "lost", "size = 20\nmax_running = 2", command="sleep 1")
    rule = faults.Rule(command="sbatch", stdout="", stderr=faults.SOCKET_TIMED_OUT, rc=1)
    with lab.faults(rule) as seen:
        number = site.with_env(**seen.env).submit(spec)
        assert len(seen.calls("sbatch")) == 1
    assert re.fullmatch(r"\d+", number)
    assert set(states(site, number)) == {f"{number}_{task}" for task in range(20)}
    site.run("wait", number)
    assert set(states(site, number).values()) == {"COMPLETED"}


def test_more_tasks_than_max_array_size(lab: cluster.Lab, site: sites.Site) -> None:
    done = site.run("submit", array(site, "huge", "size = 1002", command="true"), check=3)
    assert ": array.size: 1002 tasks are more than cluster " in done.stderr
    assert "(MaxArraySize 1001): split them into several arrays\n" in done.stderr
    assert site.items("status", "--all") == []
    # The limit is one of the index: 1001 tasks go.
    most = site.submit(
        array(site, "most", "size = 1001", command="true"), "--set", "sbatch.hold=true"
    )
    site.run("cancel", most)
    assert set(states(site, most).values()) == {"CANCELLED"}
