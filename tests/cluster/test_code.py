"""Code snapshots on a real cluster: what was submitted runs, whatever is edited since."""

from __future__ import annotations

import json

import pytest

from tests.cluster import root, test_recovery
from tests.cluster import site as sites

#: Appends the version and the attempt to a file that all jobs of a chain share.
RUN = """\
mkdir -p "$ORCHESTRATOR_RUN_DIR/checkpoints"
echo "{version} $(basename "$PWD")" >>"$ORCHESTRATOR_RUN_DIR/checkpoints/versions"
"""
#: Makes progress; the first two starts do not end by themselves.
SAVES = (
    RUN
    + """\
number=$(wc -l <"$ORCHESTRATOR_RUN_DIR/checkpoints/versions")
touch "$ORCHESTRATOR_RUN_DIR/checkpoints/checkpoint-$number.pt"
[ "$number" -ge 3 ] || sleep 300
"""
)
LOST = RUN + '[ "$SLURMD_NODENAME" != n3 ] || sleep 300\n'
RANK = 'echo "{version} $SLURM_NODEID $PWD" >"$ORCHESTRATOR_RUN_DIR/rank.$SLURM_NODEID"\n'
PROGRAMS = {"run.sh": RUN, "saves.sh": SAVES, "lost.sh": LOST, "rank.sh": RANK}
SMALL = "cpus_per_task = 1\nmem = '300M'"
HELD = "hold = true"


class Project:
    """A repository of alice's, and jobs that run its programs."""

    def __init__(self, site: sites.Site) -> None:
        self.site, self.lab = site, site.lab
        self.folder = f"{site.home}/project"
        self.edit("one")
        self._run(["git", "init", "-q", self.folder])

    def edit(self, version: str) -> None:
        for name, text in PROGRAMS.items():
            self.lab.write(f"{self.folder}/{name}", text.replace("{version}", version))

    def _run(self, argv: list[str]) -> str:
        done = self.lab.run(argv, user="alice", cwd=self.site.home, env=self.site.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def orchestrator(self, *argv: str) -> str:
        """Run a command in the project's folder."""
        done = self.lab.orchestrator(
            argv, user="alice", env=self.site.environ, cwd=self.folder, timeout_seconds=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def spec(self, name: str, command: str, **tables: str) -> str:
        return self.site.shell(name, command, **{"resources": SMALL, **tables})

    def submit(self, name: str, command: str, *argv: str, **tables: str) -> str:
        spec = self.spec(name, command, **tables)
        return self.orchestrator("submit", "--snapshot", spec, *argv, "--parsable")

    def versions(self, job_id: str) -> list[str]:
        folder = self.site.job(job_id)["run_dir"]
        return self._run(["cat", f"{folder}/checkpoints/versions"]).splitlines()


@pytest.fixture(name="project")
def _project(site: sites.Site) -> Project:
    return Project(site)


@pytest.mark.early
def test_the_submitted_version_runs(project: Project) -> None:
    """Pending, requeued, in a graph, in a container, on several nodes."""
    site = project.site
    image = f'runtime = "apptainer"\nimage = "{root.IMAGE}"\ngpu = "none"'
    job_ids = {
        "plain": project.submit("plain", "bash run.sh", sbatch=HELD),
        "contained": project.submit("contained", "bash run.sh", sbatch=HELD, container=image),
        "nodes": project.submit(
            "nodes",
            "bash rank.sh",
            "--launcher=srun",
            "--ntasks-per-node=1",
            sbatch=HELD,
            resources=f"nodes = 2\n{SMALL}",
            code='unpack = "node"',
        ),
    }
    specs = {
        "first": project.spec("first", "bash run.sh", sbatch=HELD),
        "second": project.spec("second", "bash run.sh"),
    }
    nodes = "".join(f"[graph.nodes.{name}]\nspec = {json.dumps(p)}\n" for name, p in specs.items())
    graph = f'[graph]\nname = "g"\n{nodes}after_ok = ["first"]\n'
    project.lab.write(f"{project.folder}/graph.toml", graph)
    project.orchestrator("graph", "submit", "--snapshot", "graph.toml")
    of_graph = [item["job_id"] for item in site.items("graph", "status", "g")]
    project.edit("two")
    for job_id in (*job_ids.values(), of_graph[0]):
        site.run("release", job_id)
    for job_id in (*job_ids.values(), *of_graph):
        site.wait_state(job_id, ("COMPLETED", "FAILED"), 240)
        if job_id == job_ids["plain"]:
            project.edit("three")
            site.run("requeue", job_id)
    for job_id in (job_ids["contained"], *of_graph):
        assert project.versions(job_id) == ["one code"], site.run("logs", job_id).stdout
    project.lab.wait_for(
        lambda: len(project.versions(job_ids["plain"])) == 2, 120, "the second attempt", 0.5
    )
    assert project.versions(job_ids["plain"]) == ["one code", "one code"]
    nodes_job = site.job(job_ids["nodes"])
    where = f"/tmp/orchestrator-code.{job_ids['nodes']}.0.0"
    for rank, host in enumerate(("n1", "n2")):
        text = project.lab.read(f"{nodes_job['run_dir']}/rank.{rank}")
        assert text == f"one {rank} {where}\n"
        assert not project.lab.path(where, host).exists()


@pytest.mark.early
def test_retries_run_the_submitted_version(project: Project) -> None:
    """After a lost node, and a continuation after the time limit."""
    site, lab = project.site, project.lab
    retry = test_recovery.RETRY
    lost = project.submit(
        "lost",
        "bash lost.sh",
        "--exclude=n1,n2",
        job='time_limit = "00:05:00"\nrequeue = false',
        retry=retry,
    )
    limit = project.submit("limit", "bash saves.sh", "--nodelist=n1", retry=retry)
    project.edit("two")
    for job_id in (lost, limit):
        site.wait_state(job_id, "RUNNING")
        lab.wait_for(lambda job_id=job_id: project.versions(job_id), 60, "its start", 0.5)
    assert site.job(lost)["node_list"] == "n3"
    lab.cut("n3")
    test_recovery.reach_limit(lab, site, "limit", 1)
    test_recovery.reach_limit(lab, site, "limit", 2)
    ended = test_recovery.drive(site, {"limit": limit, "lost": lost}, 240)
    lab.heal("n3")
    assert {name: job["state"] for name, job in ended.items()} == {
        "limit": "COMPLETED",
        "lost": "COMPLETED",
    }
    assert project.versions(f"@{ended['limit']['row']}") == ["one code"] * 3
    assert project.versions(f"@{ended['lost']['row']}") == ["one code"] * 2


@pytest.mark.early
def test_what_is_gone_or_full(project: Project) -> None:
    """While jobs are pending: their folder and an archive. On a node: the disk, for one attempt."""
    site, lab = project.site, project.site.lab
    small = "/tmp/small"
    lab.make_folder(small, host="n1")
    lab.write(f"{project.folder}/large", "x" * 2_000_000)
    of_node = Project(site.with_env(TMPDIR=small))
    held = {"sbatch": HELD, "job": 'time_limit = "00:05:00"'}
    moved = project.submit("moved", "bash run.sh", **held)
    without = project.submit("without", "bash run.sh", **held)
    full = of_node.submit("full", "bash run.sh", "--nodelist=n1", code='unpack = "node"', **held)
    archive = f"{site.job(without)['run_dir']}/code.tar"
    lab.path(archive).unlink()
    lab.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "x", small], user="root", host="n1")
    lab.path(project.folder).rename(lab.path(f"{project.folder}.moved"))
    for job_id in (moved, without, full):
        site.run("release", job_id)
        site.wait_state(job_id, ("COMPLETED", "FAILED"), 120)
    assert project.versions(moved) == ["one code"]
    assert site.run("resubmit", moved).returncode == 0
    causes = {}
    for job_id in (without, full):
        assert site.job(job_id)["exit_code"] == 73
        (explained,) = site.items("explain", job_id)
        causes[job_id] = explained["cause"], explained["summary"]
    host = site.job(without)["node_list"]
    assert causes[without] == (
        "snapshot",
        f"there is no snapshot {archive} on {host}: it was removed, or the script was not "
        "submitted with 'orchestrator submit'",
    )
    assert causes[full][0] == "disk_full"
    assert list(lab.path(small, "n1").iterdir()) == []
    lab.run(["umount", small], user="root", host="n1")
    site.run("requeue", full)
    site.wait_state(full, "COMPLETED", 120)
    assert project.versions(full) == [f"one orchestrator-code.{full}.0.1"]


def test_an_array_shares_one_copy(project: Project) -> None:
    """200 tasks; the first that starts unpacks."""
    site = project.site
    command = 'bash run.sh; [ "$(ls -d "$ORCHESTRATOR_RUN_DIR"/code* | wc -l)" -le 5 ]'
    array = project.submit("array", command, array="size = 200", sbatch=HELD)
    project.edit("two")
    site.run("release", array)
    site.run("wait", array, timeout_seconds=500)
    assert project.versions(f"{array}_0") == ["one code"] * 200
    folder = project.lab.path(site.job(f"{array}_0")["run_dir"])
    names = {path.name for path in folder.iterdir() if path.name.startswith("code")}
    assert names == {"code", "code.tar", "code.paths", "code.lock"}
