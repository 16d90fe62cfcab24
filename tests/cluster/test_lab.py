"""The test cluster itself: it runs a real Slurm, can inject faults, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.cluster import configuration, faults, fleet, hosts, machine
from tests.cluster import lab as cluster

PYTHON = "/opt/orchestrator-env/bin/python"


def submit(lab: cluster.Lab, *argv: str) -> str:
    """Submit as alice with sbatch's own words; the job ID."""
    done = lab.run(["sbatch", "--parsable", *argv])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def end(lab: cluster.Lab, job_id: str, timeout_seconds: float = 120) -> str:
    """The state in which a job ended; empty when slurmctld has forgotten it."""
    going = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
    state = [""]

    def has_ended() -> bool:
        state[:] = [lab.job_state(job_id)]
        return state[0] not in going

    lab.wait_for(has_ended, timeout_seconds, f"job {job_id}")
    return state[0]


def test_lab_runs_the_requested_release(lab: cluster.Lab, slurm_release: str) -> None:
    version = lab.run(["sinfo", "--version"]).stdout
    assert version.removeprefix("slurm-wlm ").removeprefix("slurm ").startswith(slurm_release)


def test_two_nodes_with_gpus_and_accounting(lab: cluster.Lab, alice_home: str) -> None:
    step = "srun sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'"
    out = f"{alice_home}/out"
    options = ["-N2", "--gpus-per-node=2", "--comment=hello", "--job-name=a b"]
    job_id = submit(lab, *options, f"--output={out}", f"--wrap={step}")
    assert end(lab, job_id) == "COMPLETED"
    assert sorted(lab.read(out).splitlines()) == ["n1 0,1", "n2 0,1"]
    # Late, and for a second 22.05 gives PENDING and the first node alone.
    reported = [(f"{job_id}{step}", "COMPLETED") for step in ("", ".batch", ".0")]
    rows: list[dict[str, str]] = []

    def is_complete() -> bool:
        rows[:] = lab.sacct(job_id, "--name=a b")
        states = [(row["JobID"], row["State"]) for row in rows]
        return states == reported and rows[0]["NodeList"] == "n[1-2]"

    lab.wait_for(is_complete, 60, "sacct to know it all")
    assert rows[0]["Comment"] == "hello"
    assert [row["Name"] for row in lab.squeue() if row["JobID"] == job_id] == ["a b"]


def test_a_memory_limit_kills(lab: cluster.Lab, alice_home: str) -> None:
    if not lab.settings.cgroups:
        pytest.skip("no cgroup v1 on this machine: Slurm polls memory instead of limiting it")
    hog = f"{PYTHON} -c 'x = bytearray(400 << 20)'"
    options = ["--mem=100", "--job-name=hog", f"--output={alice_home}/out"]
    job_id = submit(lab, *options, f"--wrap=srun {hog}")
    assert end(lab, job_id) in ("FAILED", "OUT_OF_MEMORY")

    def is_reported() -> bool:
        rows = lab.sacct(job_id, "--name=hog")
        return any(row["State"] == "OUT_OF_MEMORY" for row in rows)

    lab.wait_for(is_reported, 120, "sacct")


def test_limits_and_users(lab: cluster.Lab) -> None:
    sleep = ["--qos=tiny", "--hold", "--wrap=true"]
    for _ in range(3):
        submit(lab, *sleep)
    assert "QOSMaxSubmitJobPerUserLimit" in lab.run(["sbatch", *sleep]).stderr
    nobody = lab.run(["sbatch", "--wrap=true"], user="carol")
    assert "Invalid account" in nobody.stderr
    assert lab.run(["ls", "/home/alice"], user="bob").returncode == 2


def test_a_better_partition_preempts(lab: cluster.Lab) -> None:
    everything = ["-N4", "--exclusive", "--output=/dev/null"]
    low = submit(lab, *everything, "-pscavenge", "--requeue", "--wrap=sleep 300")
    lab.wait_for(lambda: lab.job_state(low) == "RUNNING", 120, "the low job to run")
    high = submit(lab, *everything, "--wrap=true")
    assert end(lab, high) == "COMPLETED"
    assert lab.job(low)["Restarts"] == "1"


def test_commands_are_killed_at_their_timeout(lab: cluster.Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run(["sh", "-c", "echo begun; sleep 321 & wait"], timeout_seconds=0.5)

    def is_gone() -> bool:
        return "sleep 321" not in lab.run(["ps", "-ef"], user="root").stdout

    # The kernel may take a moment to end a killed process.
    lab.wait_for(is_gone, 30, "the end of sleep")
    with lab.popen(["sleep", "321"]) as sleeper:
        name = pathlib.Path(f"/proc/{lab.process(sleeper).pid}/comm")
        # Before, it is setpriv and env.
        lab.wait_for(lambda: name.read_text() == "sleep\n", 60, "the command itself")
        lab.kill(sleeper)
        assert sleeper.wait(60) == -9


def test_slurmctld_can_be_paused_killed_and_lose_its_state(lab: cluster.Lab) -> None:
    lab.pause("slurmctld")
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run(["squeue"], timeout_seconds=2)
    lab.resume("slurmctld")
    earlier = lab.save_slurmctld_state()
    lost = submit(lab, "--hold", "--job-name=lost", "--wrap=true")
    lab.wipe_slurmctld_state(earlier)
    assert lab.job(lost) == {}
    assert submit(lab, "--hold", "--job-name=other", "--wrap=true") == lost


def test_slurm_without_accounting_forgets_jobs(lab: cluster.Lab, alice_home: str) -> None:
    lab.reconfigure(accounting=False, min_job_age_seconds=2)
    job_id = submit(lab, f"--output={alice_home}/out", "--wrap=true")
    assert end(lab, job_id) in ("COMPLETED", "")
    lab.forget(job_id)
    assert "Slurm accounting storage is disabled" in lab.run(["sacct"]).stderr


@pytest.mark.slow
def test_disconnected_node_loses_its_job(lab: cluster.Lab) -> None:
    options = ["-wn3", "--requeue", "--job-name=disconnected", "--output=/dev/null"]
    job_id = submit(lab, *options, "--wrap=sleep 300")
    lab.wait_for(lambda: lab.job_state(job_id) == "RUNNING", 120, "the job to run")
    lab.cut("n3")
    lab.wait_for(lambda: lab.job(job_id)["Restarts"] == "1", 120, "the job to be requeued")

    def is_reported() -> bool:
        rows = lab.sacct(job_id, "--name=disconnected")
        return [row["State"] for row in rows[:1]] == ["NODE_FAIL"]

    lab.wait_for(is_reported, 120, "sacct")
    lab.heal("n3")
    lab.wait_for(lambda: lab.job_state(job_id) == "RUNNING", 120, "the job to run again")


# ---- wrappers


def test_wrappers_forward_and_count_calls(lab: cluster.Lab) -> None:
    with lab.faults() as seen:
        done = lab.run(["sbatch", "--parsable", "--hold"], env=seen.env, input="#!/bin/sh\ntrue\n")
        bad = lab.run(["sbatch", "--no-such-option"], env=seen.env)
    assert lab.job(done.stdout.strip())["JobState"] == "PENDING"
    assert bad.returncode == 255
    assert [(call.command, call.argv, call.rc) for call in seen.calls()] == [
        ("sbatch", ("--parsable", "--hold"), 0),
        ("sbatch", ("--no-such-option",), 255),
    ]


def test_output_is_lost_replaced_and_garbled(lab: cluster.Lab) -> None:
    argv = ["sbatch", "--parsable", "--hold", "--wrap=true"]
    rules = (
        faults.Rule(command="sbatch", times=1, stdout="", stderr=faults.SOCKET_TIMED_OUT, rc=1),
        faults.Rule(command="sbatch", times=1, stdout_prefix="Welcome!\n", delay_after_seconds=0.2),
        faults.Rule(command="sbatch", match="--nice", run=False, rc=7),
    )
    with lab.faults(*rules) as wrong:
        lost = lab.run(argv, env=wrong.env)
        noisy = lab.run(argv, env=wrong.env)
        real = lab.run(argv, env=wrong.env)
        never = lab.run([*argv, "--nice"], env=wrong.env)
    assert (lost.stdout, lost.stderr, lost.returncode) == ("", faults.SOCKET_TIMED_OUT, 1)
    first, second, third, fourth = wrong.calls("sbatch")
    assert first.real_rc == 0 and first.real_stdout
    assert lab.job(first.real_stdout.strip())["JobState"] == "PENDING"
    assert noisy.stdout == f"Welcome!\n{second.real_stdout}"
    assert second.seconds is not None and second.seconds > 0.2
    assert third.rule is None and real.stdout.strip().isdigit()
    assert (never.returncode, never.stdout, fourth.real_rc) == (7, "", None)


@pytest.mark.parametrize("point", ["before", "during", "after"])
def test_the_caller_is_killed_at_a_point(lab: cluster.Lab, alice_home: str, point: str) -> None:
    call = "import subprocess as s; s.check_output(['sbatch', '-H', '--wrap=true']); print('told')"
    rule = faults.Rule(command="sbatch", kill_parent=point)
    with lab.faults(rule) as wrong:
        done = lab.run(["python3", "-c", call], env=wrong.env, cwd=alice_home)
        lab.wait_for(lambda: wrong.calls()[0].seconds is not None, 120, "sbatch to end")
    assert (done.returncode, done.stdout) == (-9, "")
    assert wrong.calls()[0].real_rc == 0


def test_everything_stops_at_a_point(lab: cluster.Lab) -> None:
    rule = faults.Rule(command="sbatch", stop_at="after")
    with lab.faults(rule) as wrong:
        argv = ["sbatch", "--parsable", "--hold", "--wrap=true"]
        with lab.popen(argv, env=wrong.env) as process:
            wrong.wait_stopped()
            assert [row["State"] for row in lab.squeue("-t", "pending")] == ["PENDING"]
            assert process.poll() is None
            wrong.go_on_all()
            stdout, _ = process.communicate(timeout=120)
    assert lab.job(stdout.strip())["JobState"] == "PENDING"


# ---- what is left


def traces(state: pathlib.Path) -> list[str]:
    """What the cluster of a state folder has left on this machine."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    ours = {hosts.BRIDGE, hosts.SWITCH, *configuration.HOSTS}
    names = [line.split()[1].rstrip(":").partition("@")[0] for line in links.stdout.splitlines()]
    groups = [base / fleet.cgroup_name(state) for base in machine.cgroup_controllers()]
    return [
        *(line for line in mounts if str(state) in line or str(machine.lab_dir()) in line),
        *(name for name in names if name in ours),
        *(str(group) for group in groups if group.exists()),
    ]


def test_host_start_failure_is_explained() -> None:
    reader, writer = os.pipe()
    plan = hosts.Plan(name="n9", cgroups={"memory": "/no/such/folder"})
    try:
        with pytest.raises(hosts.HostError) as caught:
            hosts.start(plan, tie=reader, locks=[])
    finally:
        os.close(reader)
        os.close(writer)
    output = str(caught.value)
    assert output.startswith("host n9 did not start (exit status 1): ")
    assert "/no/such/folder/cgroup.procs" in output


# A new cluster in argv[1], tied to this process, which reports it and waits to be killed.
TIED = """
import pathlib, sys, time
from tests.cluster import lab, machine
made = lab.Lab(pathlib.Path(sys.argv[1]), machine.lab_dir())
made.up(sys.argv[2], accounting=False, tie_to_caller=True)
print("up", flush=True)
time.sleep(600)
"""


def test_down_and_kill_leave_nothing_behind(
    lab: cluster.Lab, slurm_release: str, tmp_path: pathlib.Path
) -> None:
    other = tmp_path / "other"
    argv = [sys.executable, "-c", TIED, str(other), slurm_release]
    with subprocess.Popen(argv, cwd=cluster.CHECKOUT, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "up\n"
        record = json.loads((other / "state.json").read_text())
        everyone = [
            hosts.Process(pid=pid, start_ticks=ticks)
            for part in ("processes", "daemons")
            for pid, ticks in record[part].values()
        ]
        # Two clusters at once, with the same names and addresses, and each has its own jobs.
        assert len(everyone) == 6 + 5 + 5 and all(process.alive() for process in everyone)
        assert lab.alive()
        caller.kill()
    lab.wait_for(lambda: not any(p.alive() for p in everyone), 120, "the tied cluster to end")
    second = cluster.Lab(other, machine.lab_dir())
    second.up(slurm_release, accounting=False)
    assert second.run(["sinfo", "-h", "-o", "%D"]).stdout.split()[0] == "4"
    second.down()
    assert traces(other) == []
