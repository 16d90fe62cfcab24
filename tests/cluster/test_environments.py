"""Differences between sites: limits, plugins that rewrite jobs, private data, no requeue."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.cluster import faults
from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: Due at once, and a short grace.
QUICK = "resend_min_seconds = 2\nresend_max_seconds = 4\nsubmit_grace_seconds = 4\n"
HELD = "hold = true"
#: A job_submit plugin as sites have: names by their own rules, the comment is theirs.
REWRITES = """\
function slurm_job_submit(job, partitions, uid)
   job.name = "site_" .. string.sub(job.name, 1, 4)
   job.comment = "charged to " .. (job.account or "nobody")
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
return slurm.SUCCESS
"""
EVERYTHING = "PrivateData=accounts,events,jobs,nodes,partitions,reservations,usage,users"
#: slurmdbd supports only some of these words.
ACCOUNTS = "PrivateData=accounts,events,jobs,reservations,usage,users"


@pytest.fixture
def limits(lab: cluster.Lab) -> Iterator[cluster.Lab]:
    """A cluster where alice's own limits may be changed."""
    yield lab
    set_limits(lab, "MaxSubmitJobs=-1", "MaxJobs=-1")


def set_limits(lab: cluster.Lab, *limits: str) -> None:
    argv = ["sacctmgr", "-i", "modify", "user", "alice", "set", *limits]
    lab.run(argv, user="root").check_returncode()


def test_submissions_are_deferred_at_the_submit_limit(site: sites.Site) -> None:
    quick = sites.Site.make(site.lab, site.home, more=QUICK)
    names = [f"held-{number}" for number in range(3)]
    ids = [quick.submit(quick.shell(name, "true", sbatch=HELD), "--qos=tiny") for name in names]
    for name in ("first", "second"):
        done = quick.run("submit", "--queue", "--qos=tiny", quick.shell(name, "pwd; sleep 1"))
        assert re.fullmatch(
            r"@\d deferred: QOSMaxSubmitJobPerUserLimit; next try at [\d:]{8}\n",
            done.stdout,
        ), done.stdout
    for row in ("@4", "@5"):
        reported = quick.items("show", row, "--no-refresh")[0]
        assert (reported["state"], reported["job_id"]) == ("NOT_SUBMITTED", None)
        assert reported["reason"] == "deferred: QOSMaxSubmitJobPerUserLimit"
        assert reported["resend_at"] is not None
    waiting = quick.popen("wait", "@4", "@5")
    quick.run("cancel", ids[0])
    stdout, stderr = waiting.communicate(timeout=120)
    assert (waiting.returncode, stdout) == (0, ""), stderr
    sent = re.findall(r"Submitted batch job (\d+) \((@\d), ", stderr)
    assert [row for _, row in sent] == ["@4", "@5"], "the oldest first"
    for job_id, row in sent:
        job = quick.job(row)
        assert (job["job_id"], job["state"], job["resend_at"]) == (job_id, "COMPLETED", None)
        assert quick.run("logs", job_id).stdout.splitlines()[1:] == [site.home]
    # Two held jobs and one more are allowed: the second had to wait for the first one's end.
    assert quick.job("@4")["ended_at"] <= quick.job("@5")["submitted_at"]


def test_empty_values_of_set_override_the_profile(lab: cluster.Lab, site: sites.Site) -> None:
    more = 'modules = ["absent/1"]\nqos = "tiny"\nvariables = { OF_PROFILE = "1" }\n'
    bad = sites.Site.make(lab, site.home, more=more)
    spec = bad.shell("plain", 'test -z "$OF_PROFILE"')
    empty = ("environment.modules=[]", "job.qos=", "environment.variables={}")
    job_id = bad.submit(spec, *(word for key in empty for word in ("--set", key)))
    assert bad.wait_state(job_id, ("COMPLETED", "FAILED"))["state"] == "COMPLETED"
    assert bad.job(job_id)["qos"] != "tiny"


def test_deferred_submissions_can_be_cancelled(site: sites.Site) -> None:
    for number in range(3):
        site.submit(site.shell(f"held-{number}", "true", sbatch=HELD), "--qos=tiny")
    site.run("submit", "--queue", "--qos=tiny", site.shell("waits", "true"))
    assert site.run("cancel", "waits").stdout == "@4 is NOT_SUBMITTED\n"
    assert site.items("show", "@4", "--refresh")[0]["resend_at"] is None
    assert site.run("wait", "@4", check=1).stdout == ""


def test_limits_of_an_association(limits: cluster.Lab, site: sites.Site) -> None:
    set_limits(limits, "MaxJobs=1", "MaxSubmitJobs=2")
    first = site.submit(site.shell("first", "sleep 300"))
    site.wait_state(first, "RUNNING")
    second = site.submit(site.shell("second", "true"))
    limits.wait_for(
        lambda: site.job(second)["reason"] == "AssocMaxJobsLimit", 120, "AssocMaxJobsLimit", 0.5
    )
    assert "limit reached" in site.run("show", second).stdout
    refused = site.run("submit", site.shell("third", "true"), check=5)
    assert refused.stderr.startswith("Error: Slurm refused the job: AssocMaxSubmitJobLimit; ")
    assert refused.stderr.endswith(
        "(stored as @3; `orchestrator resubmit --queue @3` "
        "submits it as soon as Slurm accepts it)\n"
    )
    done = site.run("resubmit", "--queue", "@3")
    assert done.stdout.startswith("@3 deferred: AssocMaxSubmitJobLimit; next try at ")
    set_limits(limits, "MaxSubmitJobs=-1")
    assert re.fullmatch(r"Submitted batch job \d+ .*\n", site.run("resubmit", "@3").stdout)


def test_site_rewrites_job_names_and_comments(lab: cluster.Lab, site: sites.Site) -> None:
    lab.reconfigure(job_submit_lua=REWRITES, min_job_age_seconds=2)
    quick = sites.Site.make(lab, site.home, more=QUICK)
    job_id = quick.submit(
        quick.shell("renamed", f"until [ -e {site.home}/go ]; do sleep 0.2; done; exit 3")
    )
    assert (lab.job(job_id)["JobName"], lab.job(job_id)["Comment"]) == ("site_rena", "charged")
    assert quick.wait_state(job_id, "RUNNING")["name"] == "renamed"
    # The folder of its log identifies it, without a call per job.
    with lab.faults() as seen:
        quick.with_env(**seen.env).run("refresh")
        assert [call.command for call in seen.calls()] == ["squeue"]
    lab.write(f"{site.home}/go", "")
    quick.run("wait", job_id, check=1)
    lab.forget(job_id)
    job = quick.wait_state(job_id, "FAILED")
    assert (job["exit_code"], job["job_id"]) == (3, job_id)

    # The reply is lost, and there is no claim yet: neither name nor comment has the token.
    lost = faults.Rule(command="sbatch", stderr=faults.SOCKET_TIMED_OUT, stdout="", rc=1)
    with lab.faults(lost) as seen:
        done = quick.with_env(**seen.env).run(
            "submit", quick.shell("lost", "true", sbatch=HELD), "--parsable"
        )
    job_id = done.stdout.strip()
    assert lab.job(job_id)["JobName"] == "site_lost"
    assert quick.run("release", job_id).stdout.startswith(f"{job_id} is ")
    quick.run("wait", job_id)
    held = quick.submit(quick.shell("held", "true", sbatch=HELD))
    assert quick.run("cancel", held).stdout == f"{held} is CANCELLED\n"


def test_private_data(lab: cluster.Lab, site: sites.Site) -> None:
    lab.reconfigure(extra=(EVERYTHING,), dbd_extra=(ACCOUNTS,), min_job_age_seconds=2)
    quick = sites.Site.make(lab, site.home, more=QUICK)
    good, bad = (quick.submit(quick.shell(name, "exit 3")) for name in ("good", "bad"))
    held = quick.submit(quick.shell("held", "true", sbatch=HELD))
    for job_id in (good, bad):
        lab.forget(job_id)
        job = quick.wait_state(job_id, "FAILED")
        assert (job["exit_code"], job["stale_since"]) == (3, None)
        assert job["node_list"] and job["started_at"]
    assert quick.run("cancel", held).stdout == f"{held} is CANCELLED\n"
    checks = {check["check"]: check["outcome"] for check in quick.items("doctor")}
    assert set(checks.values()) == {"ok"}, checks


def test_accounting_private_to_administrators(lab: cluster.Lab, site: sites.Site) -> None:
    """If sacct succeeds without a row, the exit record of the script is used."""
    lab.reconfigure(min_job_age_seconds=2)
    quick = sites.Site.make(lab, site.home, more=QUICK)
    with lab.faults(faults.Rule(command="sacct", stdout="")) as seen:
        blind = quick.with_env(**seen.env)
        ids = [
            blind.submit(blind.shell(name, end))
            for name, end in (("good", "true"), ("bad", "exit 3"))
        ]
        for job_id in ids:
            lab.forget(job_id)
        ends = [blind.wait_state(job_id, ("COMPLETED", "FAILED", "LOST")) for job_id in ids]
        assert [(job["state"], job["exit_code"]) for job in ends] == [
            ("COMPLETED", 0),
            ("FAILED", 3),
        ]


def test_a_site_without_requeue(lab: cluster.Lab, site: sites.Site) -> None:
    lab.reconfigure(extra=("JobRequeue=0",))
    job_id = site.submit(site.shell("fixed", "sleep 300"))
    site.wait_state(job_id, "RUNNING")
    refused = site.run("requeue", job_id, check=5)
    assert refused.stdout == ""
    assert refused.stderr == (
        f"Error: Slurm refused the request for {job_id}: Requested operation is presently disabled "
        "(the job was submitted with --no-requeue, or the site disables requeueing; after it "
        f"has ended, `orchestrator resubmit {job_id}` submits it again)\n"
    )
    job = site.job(job_id)
    assert (job["state"], job["attempt"]) == ("RUNNING", 0)
    assert sites.details(job)[-1] == (
        "scontrol requeue was refused: Requested operation is presently disabled"
    )
    # A job that asks for it may be requeued there too.
    job_id = site.submit(site.shell("free", "sleep 300", job='time_limit = "5"\nrequeue = true'))
    site.wait_state(job_id, "RUNNING")
    assert site.run("requeue", job_id).stdout.startswith(f"{job_id} is PENDING")


def test_slurmctld_starts_with_an_empty_state(lab: cluster.Lab, site: sites.Site) -> None:
    quick = sites.Site.make(lab, site.home, more=QUICK)
    ended = quick.submit(quick.shell("ended", "true"))
    quick.run("wait", ended)
    held = quick.submit(quick.shell("held", "true", sbatch=HELD))
    name = quick.job(held)["run_dir"].rpartition("/")[2]

    def accounted() -> list[str]:
        return [row["State"] for row in lab.sacct(held, "-X") if row["JobName"] == name]

    if lab.settings.release != "22.05":
        # What slurmctld had not sent to slurmdbd yet when it crashed is nowhere.
        lab.wait_for(lambda: accounted() == ["PENDING"], 120, "slurmdbd to have the held job")
    lab.wipe_slurmctld_state()
    # slurmdbd closes the rows of what slurmctld forgot; from 26.05 on not that of a held job. In
    # 22.05 it has no row of a job that was held since its submission.
    reported, state = {
        "22.05": ([], "LOST"),
        "26.05": (["PENDING"], "LOST"),
    }.get(lab.settings.release, (["CANCELLED"], "CANCELLED"))
    lab.wait_for(lambda: accounted() == reported, 120, "slurmdbd to know of the loss")
    gone = quick.wait_state(held, ("CANCELLED", "LOST"))
    assert gone["state"] == state
    # Job IDs start again and collide with known ones.
    fresh = quick.submit(quick.shell("fresh", "true"))
    assert int(fresh) <= int(ended)
    quick.run("wait", fresh)
    first, second = (quick.job(f"@{row}") for row in (1, 2))
    assert (first["state"], first["job_id"]) == ("COMPLETED", ended)
    assert (second["state"], second["job_id"]) == (gone["state"], held)
    again = quick.run("resubmit", "@2", "--parsable").stdout.strip()
    quick.wait_state(again, "PENDING")


@pytest.mark.slow
def test_slurm_is_upgraded(running_lab: cluster.Lab, tmp_path: pathlib.Path) -> None:
    """From 24.11 to 26.05 with all that it has on disk; 24.11 itself reads nothing of 22.05."""
    own = cluster.Lab(tmp_path, running_lab.cache)
    own.up("24.11", tie_to_caller=True)
    try:
        own.make_folder("/home/alice/upgraded")
        quick = sites.Site.make(own, "/home/alice/upgraded", more=QUICK)
        ended = quick.submit(quick.shell("ended", "exit 3"))
        quick.run("wait", ended, check=1)
        held = quick.submit(quick.shell("held", "true", sbatch=HELD))
        own.upgrade("26.05")
        quick.run("release", held)
        quick.run("wait", held)
        assert quick.job(ended)["exit_code"] == 3
        fresh = quick.submit(quick.shell("fresh", "true"))
        assert int(fresh) > int(held)
        quick.run("wait", fresh)
    finally:
        own.down()
