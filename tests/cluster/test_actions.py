"""hold, release, requeue and resubmit on a real Slurm."""

from __future__ import annotations

import re
import signal
import time

from tests.cluster import faults
from tests.cluster import site as sites

#: Its first attempt waits to be requeued, its second one ends.
TWO_ATTEMPTS = '[ "$ORCHESTRATOR_ATTEMPT" = 1 ] || sleep 300'


def test_hold_and_release(site: sites.Site) -> None:
    later = 'time_limit = "2"\nlabels = ["set=held"]'
    first = site.submit(site.shell("later", "true", job=later, sbatch='begin = "now+1hour"'))
    after = f'{later}\ndependency = "afterok:{first}"'
    second = site.submit(site.shell("after", "true", job=after))
    running = site.submit(site.shell("running", "sleep 300", job=later))
    site.wait_state(running, "RUNNING")
    done = site.run("hold", "--label", "set=held", check=6)
    assert set(done.stdout.splitlines()) == {
        f"{first} is PENDING (JobHeldUser)",
        f"{second} is PENDING (JobHeldUser)",
    }
    assert f"Error: {running} is RUNNING; only a pending job can be held" in done.stderr
    again = site.run("hold", first)
    assert again.stdout == f"{first} was already held: PENDING (JobHeldUser)\n"
    assert "needs action" in site.run("show", first).stdout
    done = site.run("release", first, second)
    # Until its next round the scheduler has no reason for them (24.11).
    lines = rf"{first} is PENDING( \(BeginTime\))?\n{second} is PENDING( \(Dependency\))?\n"
    assert re.fullmatch(lines, done.stdout), done.stdout
    details = sites.details(site.job(first))
    assert "scontrol hold requested" in details and "scontrol release requested" in details
    assert site.run("cancel", "--label", "set=held").returncode == 0
    assert f"Error: {first} has ended (CANCELLED)\n" == site.run("release", first, check=6).stderr


def test_state_change_during_hold_or_release_is_reported_at_once(site: sites.Site) -> None:
    lab = site.lab
    job = 'time_limit = "5"\nrequeue = true'
    later = f'{job}\n[sbatch]\nbegin = "now+1hour"'
    runs = site.submit(site.shell("runs", "sleep 300", job=later))
    ends = site.submit(site.shell("ends", "true", job=later))
    with lab.faults(faults.Rule(command="scontrol", match="hold", stop_at="before")) as wrong:
        asked = site.with_env(**wrong.env).popen("hold", runs, ends)
        wrong.wait_stopped()
        lab.run(["scontrol", "update", f"jobid={runs},{ends}", "starttime=now"]).check_returncode()
        site.wait_state(runs, "RUNNING")
        site.wait_state(ends, "COMPLETED")
        begun = time.monotonic()
        wrong.go_on_all()
        out, err = asked.communicate(timeout=60)
    assert (asked.returncode, out) == (5, "")
    assert err.splitlines()[-2:] == [
        f"Error: {runs} started before it could be held (RUNNING); "
        f"`orchestrator requeue --hold {runs}` stops it and holds it",
        f"Slurm refused the request for {ends}: Job has already finished",
    ]
    assert time.monotonic() - begun < 20
    # Held while it runs, it would wait for ever after a requeue.
    site.run("requeue", runs)
    site.wait_state(runs, "RUNNING")
    site.run("cancel", runs)

    held = site.submit(site.shell("held", "true", sbatch="hold = true"))
    with lab.faults(faults.Rule(command="scontrol", match="release", stop_at="before")) as wrong:
        asked = site.with_env(**wrong.env).popen("release", held)
        wrong.wait_stopped()
        lab.run(["scancel", held]).check_returncode()
        wrong.go_on_all()
        out, err = asked.communicate(timeout=60)
    assert (asked.returncode, out) == (5, "")
    assert err == f"Error: Slurm refused the request for {held}: Job has already finished\n"


def test_requeue_of_running_and_ended_jobs(site: sites.Site) -> None:
    job = 'time_limit = "5"\nrequeue = true'
    runs = site.submit(site.shell("runs", TWO_ATTEMPTS, job=job))
    ended = site.submit(site.shell("ended", "exit $((3 - 3 * ORCHESTRATOR_ATTEMPT))", job=job))
    never = 'time_limit = "5"\nrequeue = false'
    fixed = site.submit(site.shell("fixed", "sleep 300", job=never))
    site.wait_state(runs, "RUNNING")
    site.wait_state(fixed, "RUNNING")
    site.run("wait", ended, check=1)
    done = site.run("requeue", "--hold", runs, ended)
    assert done.stdout == "".join(
        f"{job_id} is PENDING (job requeued in held state)\n" for job_id in (runs, ended)
    )
    for job_id in (runs, ended):
        seen = site.job(job_id)
        assert (seen["state"], seen["attempt"]) == ("PENDING", 1)
    refused = site.run("requeue", fixed, check=5)
    assert refused.stderr.startswith(
        f"Error: Slurm refused the request for {fixed}: Requested operation is presently disabled ("
    )
    waits = site.run("requeue", runs, check=6)
    message = f"{runs} is already pending, held; `orchestrator release {runs}` releases it"
    assert waits.stderr == f"Error: {message}\n"
    released = site.run("release", runs, ended)
    assert re.fullmatch(rf"{runs} is .*\n{ended} is .*\n", released.stdout)
    site.run("wait", runs, ended, timeout_seconds=240)
    for job_id in (runs, ended):
        seen = site.job(job_id)
        assert (seen["state"], seen["attempt"], len(seen["attempts"])) == ("COMPLETED", 1, 2)
    site.run("cancel", fixed)


def test_requeue_of_purged_jobs(site: sites.Site) -> None:
    site.lab.reconfigure(min_job_age_seconds=2)
    job_id = site.submit(site.shell("gone", "true"))
    site.run("wait", job_id)
    site.lab.forget(job_id)
    message = (
        f"{job_id} has ended (COMPLETED) and Slurm has forgotten it; "
        f"`orchestrator resubmit {job_id}` submits it again as a new job"
    )
    assert site.run("requeue", job_id, check=6).stderr == f"Error: {message}\n"
    again = site.run("resubmit", job_id, "--parsable").stdout.strip()
    assert again != job_id
    site.run("wait", again)


def test_earlier_attempt_in_a_separate_error_log(site: sites.Site) -> None:
    # Slurm appends the messages of both attempts to one file.
    fails = "echo \"ModuleNotFoundError: No module named 'gone'\" >&2; sleep 300"
    command = f'[ "$ORCHESTRATOR_ATTEMPT" = 1 ] && exit 3; {fails}'
    logs = 'output = "all-%j.out"\nerror = "all-%j.err"'
    job = f'time_limit = "5"\nrequeue = true\n{logs}'
    job_id = site.submit(site.shell("separate", command, job=job))
    site.wait_state(job_id, "RUNNING")
    errors = f"{site.home}/all-{job_id}.err"
    site.lab.wait_for(
        lambda: "gone" in str(site.lab.read_lines(errors)), 120, "the error of attempt 0"
    )
    site.lab.run(["scontrol", "requeue", job_id], user="alice").check_returncode()
    site.run("wait", job_id, check=1, timeout_seconds=240)
    (newest,) = site.items("explain", job_id)
    assert (newest["cause"], "gone" in str(newest)) == ("nonzero_exit", False)
    banners = [line for line in site.lab.read(errors).splitlines() if line.startswith("=== ")]
    assert [line.partition(" attempt ")[2][:1] for line in banners] == ["0", "1"]


def test_ctrl_c_leaves_a_submitted_job_alone(site: sites.Site) -> None:
    spec = site.shell("goes-on", f"until [ -e {site.home}/go ]; do sleep 0.1; done")
    waiting = site.popen("submit", spec, "--wait")
    assert waiting.stdout is not None and waiting.stderr is not None
    match = re.fullmatch(r"Submitted batch job (\d+) \(@1, goes-on\)\n", waiting.stdout.readline())
    assert match is not None
    # It waits.
    assert f" {match[1]} " in waiting.stderr.readline()
    site.lab.kill(waiting, signal.SIGINT)
    _, message = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert message.endswith(
        f"The job goes on. Follow: orchestrator logs -f {match[1]}; wait: orchestrator wait "
        f"{match[1]}; cancel: orchestrator cancel {match[1]}\n\nInterrupted.\n"
    )
    site.lab.write(f"{site.home}/go", "")
    assert site.wait_state(match[1], ("COMPLETED", "CANCELLED"))["state"] == "COMPLETED"


def test_special_exit_is_released(site: sites.Site) -> None:
    job = 'time_limit = "5"\nrequeue = true'
    job_id = site.submit(site.shell("special", TWO_ATTEMPTS, job=job))
    site.wait_state(job_id, "RUNNING")
    special = ["scontrol", "requeuehold", "State=SpecialExit", job_id]
    site.lab.run(special).check_returncode()
    site.wait_state(job_id, "SPECIAL_EXIT")
    assert site.run("hold", job_id).stdout.startswith(f"{job_id} was already held: SPECIAL_EXIT")
    assert site.run("release", job_id).stdout.startswith(f"{job_id} is ")
    site.run("wait", job_id, timeout_seconds=240)


def test_resubmit_of_jobs_that_never_reached_slurm(site: sites.Site) -> None:
    lab = site.lab
    where = 'pwd; scontrol show job "$SLURM_JOB_ID" | grep -o "WorkDir=.*"'
    spec = site.shell("refused", where, job='time_limit = "2"\npartition = "spare"')
    kept = re.search(r"\(stored as (@\d+)\)$", site.run("submit", spec, check=5).stderr.strip())
    assert kept is not None
    row = kept[1]
    folder = site.job(row)["run_dir"]
    assert site.run("resubmit", row, check=5).stderr.strip().endswith(f"(stored as {row})")
    make = ["scontrol", "create", "partitionname=spare", "nodes=n1", "maxtime=10"]
    lab.run(make, user="root").check_returncode()
    job_id = site.run("resubmit", row, "--parsable").stdout.strip()
    site.run("wait", job_id)
    job = site.job(row)
    assert (job["job_id"], job["state"], job["run_dir"]) == (job_id, "COMPLETED", folder)
    assert sites.details(job).count("sent again, with the same token and folder") == 2
    log = site.run("logs", job_id).stdout.splitlines()
    assert log[1:] == [site.home, f"WorkDir={site.home}"]
    anew = site.run("resubmit", job_id).stdout
    match = re.fullmatch(r"Submitted batch job (\d+) \((@\d+), refused\)\n", anew)
    assert match is not None and match[2] != row
    site.run("wait", match[1])
    new = site.job(match[2])
    assert new["run_dir"] != folder
    assert site.run("show", row, "--script").stdout == site.run("show", match[2], "--script").stdout
    assert f"resubmits {row}" in sites.details(new)
    lab.run(["scontrol", "delete", "partitionname=spare"], user="root").check_returncode()
