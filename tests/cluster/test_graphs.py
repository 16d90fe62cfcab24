"""Graphs and names in dependencies on a real Slurm: in order, each node once."""

from __future__ import annotations

import collections
import json

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites

KILL_AT = "/srv/orchestrator/tests/cluster/kill_at.py"
#: Each leaves its name and its ID in `ran`, and fails where one before it is not there.
LINE = 'test -z "$1" || grep -q "^$1 " ran || exit 4; echo "$0 $SLURM_JOB_ID" >> ran'
SWEEP = '[sweep]\nkind = "list"\npoints = [{"job.comment" = "a"}, {"job.comment" = "b"}]\n'


def spec(site: sites.Site, name: str, before: str = "", more: str = "", wait: str = "") -> str:
    line = json.dumps(f"sh -c {json.dumps(LINE).replace('$', chr(92) + '$')} {name} {before}")
    text = f'[job]\nname = "{name}"\ntime_limit = "5"\n[resources]\nmem = "50M"\n{more}'
    command = json.dumps(f"{wait}\n{json.loads(line)}")
    return site.spec(name, f'{text}\n[launch]\nlauncher = "python"\ncommand = {command}\n')


def graph(site: sites.Site, name: str) -> str:
    """Write a graph of a job, a sweep of two points behind it, and a job behind that."""
    spec(site, f"{name}-prep", wait="sleep 1")
    spec(site, f"{name}-train", f"{name}-prep", SWEEP)
    spec(site, f"{name}-eval", f"{name}-train")
    return site.spec(
        name,
        f'[graph]\nname = "{name}"\n'
        f'[graph.nodes.eval]\nspec = "{name}-eval.toml"\nafter_ok = ["train"]\n'
        f'[graph.nodes.prep]\nspec = "{name}-prep.toml"\n'
        f'[graph.nodes.train]\nspec = "{name}-train.toml"\nafter_ok = ["prep"]\n',
    )


def ran(site: sites.Site) -> collections.Counter[str]:
    lines = site.lab.run(["cat", f"{site.home}/ran"]).stdout.splitlines()
    return collections.Counter(line.split()[0] for line in lines)


def change(site: sites.Site, statement: str) -> None:
    """Change the database by hand."""
    code = (
        "import sqlite3; db = sqlite3.connect('state/orchestrator.db'); "
        f"db.execute({statement!r}); db.commit()"
    )
    command = [sites.PYTHON, "-c", code]
    site.lab.run(command, user="alice", cwd=site.home).check_returncode()


def once(site: sites.Site, name: str) -> None:
    site.run("wait", "--name", f"{name}-eval", check=None)
    items = site.items("graph", "status", name, "--refresh")
    assert [item["states"] for item in items] == [
        {"COMPLETED": 1},
        {"COMPLETED": 2},
        {"COMPLETED": 1},
    ], items
    result = ran(site)
    assert [result[f"{name}-{item}"] for item in ("prep", "train", "eval")] == [1, 2, 1]


def test_a_graph_runs_in_its_order(lab: cluster.Lab, site: sites.Site) -> None:
    done = site.run("graph", "submit", graph(site, "g"))
    assert "Error" not in done.stderr
    once(site, "g")
    assert site.run("graph", "cancel", "g").stdout == "Graph g (@1) had already ended\n"


def test_killed_in_each_window_and_finished_by_tick(lab: cluster.Lab, site: sites.Site) -> None:
    quick = sites.Site.make(
        lab,
        site.home,
        more="resend_min_seconds = 1\nresend_max_seconds = 2\nsubmit_grace_seconds = 20\n",
    )
    points = ("intent", "committed", "answered", "storing")
    for point in points:
        command = [KILL_AT, point, "0", "graph", "submit", graph(quick, point)]
        done = lab.script(command, env=quick.environ, cwd=quick.home)
        assert done.returncode == -9, done.stderr
    # Other processes leave the graph to that command for a minute.
    change(quick, "UPDATE graphs SET created_at = '2026-01-01 00:00:00.000000'")

    def is_submitted() -> bool:
        quick.run("tick", check=None)
        rows = quick.items("graph", "list")
        assert {row["name"] for row in rows} == set(points)
        return all(row["submitted"] == 3 for row in rows)

    lab.wait_for(is_submitted, 120, "all nodes to be submitted", 1.0)

    def has_ended() -> bool:
        quick.run("tick", check=None)
        return all(row["ended"] for row in quick.items("graph", "list"))

    lab.wait_for(has_ended, 180, "all graphs to end", 1.0)
    for point in points:
        once(quick, point)


def test_unsatisfiable_dependency_is_reported_and_moved_to_the_continuation(
    lab: cluster.Lab, site: sites.Site
) -> None:
    command = f"cat >> {site.home}/told"
    site = sites.Site.make(
        lab,
        site.home,
        more=f'[notices.log]\nkind = "command"\ncommand = ["sh", "-c", {json.dumps(command)}]\n',
    )
    site.run("tick")
    line = f"while [ ! -e {site.home}/go ]; do sleep 0.1; done; exit 3"
    first = site.submit(site.shell("first", line))
    after = spec(site, "after")
    second = site.submit(after, "--dependency", "afterok:first")
    assert site.job(second)["state"] == "PENDING"
    lab.write(f"{site.home}/go", "")
    site.wait_state(first, "FAILED")
    ticked = site.run("tick").stderr
    assert f"{second} after: it can never start: afterok: {first} (first) ended FAILED" in ticked
    subjects: list[str] = []

    def are_told() -> bool:
        # The cause of the first job is known when its log and Slurm's record are complete.
        site.run("tick")
        notices = site.lab.run(["cat", f"{site.home}/told"]).stdout
        subjects[:] = [
            item["subject"]
            for line in notices.replace("}{", "}\n{").splitlines()
            for item in json.loads(line)["items"]
        ]
        return len(subjects) >= 2

    lab.wait_for(are_told, 60, "both notices")
    assert sorted(subjects) == sorted(
        [f"{first} first: FAILED, nonzero_exit", f"{second} after: can never start"]
    )
    (event,) = [entry for entry in site.job(second)["events"] if entry["kind"] == "never"]
    assert event["detail"] == f"it can never start: afterok: {first} (first) ended FAILED"
    # Submitting it now is an error at once.
    refused = site.run("submit", after, "--dependency", "afterok:first", check=6)
    assert "the job could never start: afterok" in refused.stderr
    # The first job is continued, as by a recovery rule.
    line = f"while [ ! -e {site.home}/go-on ]; do sleep 0.1; done"
    third = site.submit(site.shell("third", line))
    change(site, "UPDATE jobs SET continues = 1 WHERE row = (SELECT max(row) FROM jobs)")
    turned = site.run("tick").stderr
    assert f"now depends on afterok:{third}: the continuation job" in turned
    assert f"depends on afterok:{third}" not in site.run("tick").stderr, "it is told once"
    lab.write(f"{site.home}/go-on", "")
    assert site.wait_state(second, "COMPLETED")["job_id"] == second


def test_dependents_of_a_retried_job_wait_for_its_continuations(site: sites.Site) -> None:
    """Slurm itself takes the first bad end for the last, and may cancel what waits for it."""
    site.lab.reconfigure(extra=("DependencyParameters=kill_invalid_depend",))
    lab, small = site.lab, "cpus_per_task = 1\nmem = '50M'"
    fails = "echo 'OSError: [Errno 5] Input/output error' >&2; exit 3"
    wait = f"until [ -e {site.home}/go ]; do sleep 0.1; done; "

    def tables(most: int) -> dict[str, str]:
        return {"resources": small, "retry": f"max_retries = {most}\nbackoff_seconds = 1\n"}

    def once(name: str) -> str:
        return f"{wait}[ ! -e {site.home}/{name} ] || exit 0; touch {site.home}/{name}; {fails}"

    first = site.submit(site.shell("first", once("first"), **tables(3)))
    bad = site.submit(site.shell("bad", wait + fails, **tables(1)))
    site.shell("node", once("node"), **tables(3))
    after = site.shell("after", "true", resources=small)
    nodes = '[graph.nodes.a]\nspec = "node.toml"\n[graph.nodes.b]\nspec = "after.toml"\n'
    site.run("graph", "submit", site.spec("g", f'[graph]\nname = "g"\n{nodes}after_ok = ["a"]\n'))
    behind = site.submit(after, "--dependency", "afterok:first", "--name", "behind")
    never = site.submit(after, "--dependency", "afterok:bad", "--name", "never")
    for job_id in (first, bad):
        site.wait_state(job_id, "RUNNING")
    lab.write(f"{site.home}/go", "")
    messages: list[str] = []

    def over() -> bool:
        messages.extend(site.run("tick", check=None).stderr.splitlines())
        states = {row["name"]: row["state"] for row in site.items("status", "--all")}
        # That no retry is left is decided when the cause is known, after the end.
        is_told = any("can never start" in line for line in messages)
        return states["behind"] == states["after"] == "COMPLETED" and is_told

    lab.wait_for(over, 120, "the chains and what waits for them", 0.5)
    messages += site.run("tick", check=None).stderr.splitlines()
    again = "the failed job was started again"
    mine = [line.removeprefix("graphs: ") for line in messages if line.startswith("graphs: ")]
    assert f"{behind} behind now depends on afterok:{first}: {again}" in mine
    vain = f"it can never start: afterok: {bad} (bad) ended FAILED"
    assert [line for line in mine if "can never" in line] == [f"{never} never: {vain}"]
    assert site.job(first)["attempt"] == site.job("node")["attempt"] == 1
    assert site.job(never)["reason"] == "DependencyNeverSatisfied"
    (node,) = [item for item in site.items("graph", "status", "g") if item["node"] == "b"]
    assert node["states"] == {"COMPLETED": 1}


@pytest.mark.parametrize("form", ["@{row}", "sweep/two"])
def test_a_name_in_a_dependency(site: sites.Site, form: str) -> None:
    spec(site, "two", more=SWEEP, wait="sleep 2")
    site.run("sweep", "submit", f"{site.home}/two.toml")
    row = site.items("status")[0]["row"]
    job_id = site.submit(
        spec(site, "last", "two"), "--dependency", f"afterok:{form.format(row=row)}"
    )
    assert site.wait_state(job_id, ("COMPLETED", "FAILED"))["state"] == "COMPLETED"
