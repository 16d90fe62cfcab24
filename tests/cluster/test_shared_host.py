"""Two users on one login host: files of bob must not run as alice.

The attacks are those of docs/security.md. Each leaves a mark in bob's folder, which every user can
write, when it succeeds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

SPEC = """\
[job]
name = "victim"
time_limit = "00:02:00"
[launch]
launcher = "python"
command = "id -un"
"""


@pytest.fixture
def scratch(lab: cluster.Lab, alice_home: str) -> Iterator[str]:
    """A folder for all users, as /tmp: everybody can write, with the sticky bit."""
    folder = f"/home/scratch-{alice_home.rpartition('-')[2]}"
    lab.make_folder(folder, "root")
    lab.path(folder).chmod(0o1777)
    lab.make_folder(f"{folder}/marks", "bob")
    lab.path(f"{folder}/marks").chmod(0o777)
    yield folder
    lab.run(["rm", "-rf", folder], user="root")


def marks(lab: cluster.Lab, scratch: str) -> list[str]:
    """Return who ran what bob planted."""
    return sorted(os.listdir(lab.path(f"{scratch}/marks")))


def planted_template(scratch: str) -> str:
    mark = f"touch {scratch}/marks/template-$(id -un)"
    blocks = f"{{% block environment %}}\n{{{{ super() }}}}\n{mark}\n{{% endblock %}}\n"
    return f'{{% extends "orchestrator/job.sbatch.j2" %}}\n{blocks}'


def test_configuration_of_another_user_in_a_parent_folder(
    site: sites.Site, lab: cluster.Lab, scratch: str
) -> None:
    """bob makes /scratch/.git and /scratch/orchestrator.toml; alice works in /scratch/alice."""
    lab.make_folder(f"{scratch}/.git", "bob")
    lab.write(f"{scratch}/templates/job.sbatch.j2", planted_template(scratch), "bob")
    lab.write(
        f"{scratch}/orchestrator.toml", 'templates_dir = "templates"\nstate_dir = "s"\n', "bob"
    )
    lab.write(f"{scratch}/alice/spec.toml", SPEC)
    done = lab.orchestrator(
        ["submit", "spec.toml", "--wait"],
        env=site.environ,
        cwd=f"{scratch}/alice",
        timeout_seconds=120,
    )
    assert marks(lab, scratch) == []
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"{scratch}/orchestrator.toml is not read: ") == 1
    assert "belongs to user bob" in done.stderr
    assert lab.orchestrator(["logs", "victim"], env=site.environ).stdout.endswith("alice\n")


def test_repository_containing_a_spool(site: sites.Site, lab: cluster.Lab, scratch: str) -> None:
    """alice copies bob's project, which contains a state folder with a waiting job."""
    project = f"{site.home}/project"
    lab.make_folder(f"{project}/.git")
    lab.write(f"{project}/orchestrator.toml", 'state_dir = ".state"\nruns_dir = ".runs"\n')
    lab.write(f"{project}/evil.sh", f"touch {scratch}/marks/spool-$(id -un)\n")
    lab.write(f"{project}/.runs/x.abcdefghijkl/script.sbatch", "#!/bin/bash\ntrue\n", mode=0o755)
    request = {
        "token": "abcdefghijkl",
        "name": "x.abcdefghijkl",
        "script": f"{project}/.runs/x.abcdefghijkl/script.sbatch",
        "run_dir": f"{project}/.runs/x.abcdefghijkl",
        "folder": project,
        "environ": {"PATH": "/usr/bin:/bin", "BASH_ENV": f"{project}/evil.sh"},
        "cpus_per_task": None,
        "signal_seconds": None,
        "kill_wait_seconds": 5,
        "slots_are_gpus": False,
        "slots": 1,
        "devices": ["cpu0"],
        "time_limit_seconds": None,
        "may_requeue": False,
        "number": 1,
    }
    entry = {
        "number": 1,
        "task": None,
        "raw_number": 1,
        "token": "abcdefghijkl",
        "name": "x.abcdefghijkl",
        "host": lab.run(["hostname"]).stdout.strip(),
        "slots": 1,
        "devices": ["cpu0"],
        "most_at_once": None,
        "time_limit_seconds": None,
        "may_requeue": False,
        "stdout_path": f"{project}/.runs/x.abcdefghijkl/1.out",
        "stderr_path": None,
        "submitted_at": 1.0,
        "queued_at": 1.0,
        "state": "PENDING",
        "keeper": None,
        "runner": None,
        "given": [],
        "ended": [],
    }
    spool = f"{project}/.state/local"
    lab.write(f"{spool}/requests/abcdefghijkl.json", json.dumps(request))
    lab.write(f"{spool}/queue/1.json", json.dumps(entry))
    lab.make_folder(f"{spool}/ended")
    for verb in (["status"], ["refresh"], ["tick"], ["submit", "--scheduler", "local", "--", "id"]):
        done = lab.orchestrator(verb, env=site.environ, cwd=project, timeout_seconds=60)
        assert marks(lab, scratch) == [], verb
        assert done.returncode == 3, (verb, done.stdout, done.stderr)
        assert f"{project}/orchestrator.toml:1: state_dir: " in done.stderr
        assert f"orchestrator trust {project}" in done.stderr


@pytest.mark.parametrize("setting", ["state_dir", "runs_dir"])
def test_folder_created_by_bob(
    site: sites.Site, lab: cluster.Lab, scratch: str, setting: str
) -> None:
    """bob guesses the folder that alice will use, and makes it, or one above it, before her."""
    lab.make_folder(f"{scratch}/alice", "bob")
    lab.path(f"{scratch}/alice").chmod(0o777)
    env = {**site.environ, f"ORCHESTRATOR_{setting.upper()}": f"{scratch}/alice/{setting}"}
    lab.write(f"{site.home}/spec.toml", SPEC)
    done = lab.orchestrator(["submit", "spec.toml"], env=env, cwd=site.home)
    assert done.returncode != 0
    assert f"{scratch}/alice belongs to user bob" in done.stderr
    assert not lab.path(f"{scratch}/alice/{setting}").exists()


def test_bob_cannot_read_files_of_alice(site: sites.Site, lab: cluster.Lab) -> None:
    """Whatever her umask is: the database, the run folders, the backups and the spool."""
    lab.write(f"{site.home}/spec.toml", SPEC)
    words = " && ".join(
        [
            "umask 000",
            "orchestrator submit spec.toml --wait",
            "orchestrator submit spec.toml --scheduler local --wait",
            "orchestrator tick",
            "orchestrator db backup state/copy.db",
            "orchestrator status",
        ]
    )
    done = lab.run(["bash", "-c", words], env=site.environ, cwd=site.home, timeout_seconds=180)
    assert done.returncode == 0, done.stderr
    for folder in ("state", "runs"):
        result = lab.run(["find", f"{site.home}/{folder}", "-readable"], user="bob")
        assert result.stdout == ""
        loose = ["find", f"{site.home}/{folder}", "-type", "d", "-perm", "/077"]
        assert lab.run(loose).stdout == ""


def test_the_environment_of_a_local_job_is_not_public(site: sites.Site, lab: cluster.Lab) -> None:
    """What bob sees of alice's processes: their command lines hold no secret."""
    env = {**site.environ, "GITHUB_PAT": "very-secret-value"}
    job = ["submit", "--scheduler", "local", "--name", "sleeper", "--", "sleep", "300"]
    done = lab.orchestrator(job, env=env, cwd=site.home)
    assert done.returncode == 0, done.stderr
    lab.wait_for(lambda: site.job("sleeper")["state"] == "RUNNING", 60, "the job to run")
    lines = lab.run(["ps", "-eww", "-o", "args="], user="bob").stdout
    assert "orchestrator.controller.submission.local_keeper" in lines
    assert "very-secret-value" not in lines
    result = lab.run(["grep", "-rl", "very-secret-value", site.home], user="root")
    assert result.stdout == ""
    site.run("cancel", "sleeper")
