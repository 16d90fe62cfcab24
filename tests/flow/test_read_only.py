"""--read-only and ORCHESTRATOR_READ_ONLY: nothing is submitted, cancelled or changed."""

from __future__ import annotations

import pytest

from orchestrator.cli import commands
from tests import reference

JOB = """\
[job]
name = "demo"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
"""
SWEEP = f'{JOB}[sweep]\nkind = "grid"\naxes.args.lr = [0.1, 0.01]\n'
GRAPH = '[graph]\nname = "nightly"\n[graph.nodes.first]\nspec = "job.toml"\n'
#: What a person may want to change, with the files of `project`.
CHANGES = [
    "submit job.toml",
    "submit --like 1",
    "resubmit 1",
    "cancel 1",
    "hold 1",
    "release 1",
    "requeue 1",
    "track 7",
    "sweep submit sweep.toml",
    "sweep resume sweep",
    "sweep rerun sweep",
    "sweep add sweep sweep.toml",
    "sweep cancel sweep",
    "graph submit graph.toml",
    "graph cancel nightly",
    "schedule add nightly job.toml --cron @daily",
    "schedule run nightly",
    "schedule pause nightly",
    "schedule resume nightly",
    "schedule remove nightly",
    "schedule install --cron --write",
    "schedule install --cron --remove",
    "baseline set before 1",
    "image build env.def",
    "image remove env",
    "metrics reparse 1",
    "metrics export 1 --to tensorboard",
    "prune --run-folders 1 --yes",
    "notices test mail",
    "notices retry",
    "config init",
    "trust .",
    "trust --remove .",
    "doctor --job",
    "setup --host mill",
    "db upgrade",
    "db restore backup.db",
    "db copy --to sqlite:////tmp/other.db",
    "apply 0f343b0931126a20",
    "tick",
    "serve",
    "web --allow-actions",
]
ALLOWED = [
    "status",
    "refresh",
    "show 1",
    "logs 1",
    "metrics 1",
    "explain 1",
    "usage",
    "render job.toml",
    "submit job.toml --dry-run",
    "submit job.toml --test-only",
    "sweep submit sweep.toml --dry-run",
    "sweep render sweep.toml",
    "sweep list",
    "graph list",
    "schedule list",
    "schedule install --cron",
    "baseline show",
    "prune --run-folders 1",
    "notices list",
    "config show",
    "trust --list",
    "db check",
    "db restore",
    "schema",
]


@pytest.fixture
def project(cli):
    """A pending job, and files of a job, a sweep and a graph."""
    (cli.folder / "train.py").touch()
    cli.spec(JOB)
    cli.spec(SWEEP, "sweep.toml")
    cli.spec(GRAPH, "graph.toml")
    assert cli("submit", "job.toml").code == 0
    return cli


def everything(cli, fake_slurm):
    """What a change would show in."""
    calls = [call for name in ("sbatch", "scancel") for call in fake_slurm.calls(name)]
    calls = [call for call in calls if "--test-only" not in call]
    tables = "jobs sweeps graphs schedules baselines notices".split()
    counts = [cli.rows(f"SELECT count(*) FROM {table}") for table in tables]
    files = sorted(path for path in cli.home.rglob("*") if ".cache" not in path.parts)
    return calls, counts, cli.run_folders(), [path for path in files if "traceback" in str(path)]


def test_all_commands_that_change_something_are_tried():
    changing = {
        context.command_path.removeprefix("orchestrator ")
        for command, context in reference.everything()
        if (effects := commands.effects_of(command)) and effects.changes != "nothing"
    }
    tried = {path for path in changing if any(words.startswith(path) for words in CHANGES)}
    assert tried == changing


@pytest.mark.parametrize("by", ["option", "variable"])
def test_changes_are_refused_before_anything_happens(project, fake_slurm, by):
    cli, before = project, everything(project, fake_slurm)
    option = ["--read-only"] if by == "option" else []
    variable = {} if by == "option" else {"ORCHESTRATOR_READ_ONLY": "1"}
    for words in CHANGES if by == "option" else CHANGES[:3]:
        done = cli(*option, *words.split(), **variable)
        command = " ".join(done.err.split("`")[1].split())
        assert words.startswith(command.removeprefix("orchestrator ")), words
        assert (done.code, done.out) == (6, ""), words
        assert done.err == (
            f"Error: `{command}` would change something, and --read-only or ORCHESTRATOR_READ_ONLY "
            "forbids it. Nothing was done.\n"
        )
    assert everything(cli, fake_slurm) == before


def test_looking_is_allowed(project, fake_slurm):
    before = everything(project, fake_slurm)
    for words in ALLOWED:
        done = project("--read-only", *words.split())
        assert done.code == 0, (words, done)
    assert everything(project, fake_slurm) == before


def test_states_are_tracked_but_deferred_jobs_are_not_submitted(project, fake_slurm):
    cli = project
    failed = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n"
    fake_slurm.fail("sbatch", stderr=f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{failed}")
    assert cli("submit", "job.toml", "--queue").code == 0
    fake_slurm.set_state(1, "COMPLETED")
    calls = len(fake_slurm.calls("sbatch"))
    # Otherwise the deferred job would be submitted, because another one has ended.
    assert cli("--read-only", "refresh").code == 0
    states = [item["state"] for item in cli("--read-only", "status", "--json").items]
    assert states == ["NOT_SUBMITTED", "COMPLETED"]
    assert len(fake_slurm.calls("sbatch")) == calls


def test_recovery_rules_are_not_applied(project, fake_slurm):
    assert project("submit", "job.toml", "--set", "retry.max_retries=1").code == 0
    fake_slurm.set_state(2, "NODE_FAIL")
    done = project("--read-only", "wait", "2", "--timeout", "1")
    assert done.code == 1
    assert (
        "Nothing applies the recovery rules of 2: no controller is running, and this command may "
        "change nothing\n"
    ) in done.err
    assert len(fake_slurm.jobs()) == 2


def test_a_variable_that_is_neither_yes_nor_no_is_refused(cli):
    done = cli("status", ORCHESTRATOR_READ_ONLY="perhaps")
    assert done.code == 2
    assert cli("status", ORCHESTRATOR_READ_ONLY="0").code == 0
