"""Lists with --limit: a message exactly if there is more than is shown; what has ended says so."""

from __future__ import annotations

LOCAL = ("--scheduler", "local")
JOB = '[job]\nname = "train"\n[launch]\nlauncher = "python"\ncommand = "true"\n'
SWEEP = (
    JOB.replace('command = "true"', 'script = "train.py"')
    + '[sweep]\nkind = "grid"\naxes.args.lr = [1, 2]\n'
)
GRAPH = '[graph]\nname = "flow"\n[graph.nodes.one]\nspec = "job.toml"\n'
NOTICES = '[notices.log]\nkind = "command"\ncommand = ["true"]\n'


def assert_limited(cli, *argv):
    """Check a list that has three rows."""
    for form in ("csv", "table", "jsonl"):
        for limit, message in (
            (2, "Only the newest 2 are shown; --limit changes the number.\n"),
            (3, ""),
            (4, ""),
        ):
            done = cli(*argv, "--limit", str(limit), "--format", form)
            assert (done.code, done.err) == (0, message), (argv, form, limit)
    assert len(cli(*argv, "--limit", "2", "--json").items) == 2


def test_lists_say_when_there_is_more(cli, fake_slurm):
    spec, sweep = cli.spec(JOB), cli.spec(SWEEP, "sweep.toml")
    (cli.folder / "train.py").write_text("")
    cli("schedule", "add", "nightly", spec, "--cron", "@yearly", "--overlap", "queue")
    for number in range(3):
        assert cli("sweep", "submit", sweep, "--name", f"lr-{number}").code == 0
        ran = cli("schedule", "run", "nightly")
        assert ran.code == 0, ran.err
        graph = cli.spec(GRAPH.replace("flow", f"flow-{number}"), "graph.toml")
        assert cli("graph", "submit", graph).code == 0
    assert_limited(cli, "sweep", "list")
    assert_limited(cli, "schedule", "history", "nightly")
    assert_limited(cli, "graph", "list")


def test_notices_say_when_there_are_more(cli, fake_slurm):
    fake_slurm.run_jobs()
    folder = cli.home / ".config/orchestrator"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(NOTICES)
    assert cli("tick").code == 0
    for number in range(3):
        cli("submit", "--name", f"bad-{number}", *LOCAL, "--wait", "--", "false")
        assert cli("tick").code == 0
    assert_limited(cli, "notices", "list")


def test_a_graph_has_ended_when_its_jobs_have(cli, fake_slurm):
    cli.spec(JOB)
    graph = cli.spec(GRAPH, "graph.toml")
    assert cli("graph", "submit", graph).code == 0
    (row,) = cli("graph", "list", "--json").items
    assert (row["state"], row["ended"]) == ("open", False)
    assert cli("graph", "cancel", "flow").code == 0
    fake_slurm.run_jobs()
    assert cli("graph", "submit", graph).code == 0
    assert cli("wait", "2").code == 0
    assert [(row["state"], row["ended"]) for row in cli("graph", "list", "--json").items] == [
        ("ended", True),
        ("cancelled", True),
    ]
