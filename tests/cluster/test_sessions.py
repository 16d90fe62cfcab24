"""The sessions of docs/howto/from-sbatch.md on a cluster, command by command, and script/demo."""

from __future__ import annotations

import time

from tests import sessions
from tests.cluster import environment
from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.flow import command_line

TRAIN = """\
#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --output=train.out
echo "$@"
"""
#: Commands that can be repeated without harm.
LOOKS = ("status", "show")
BY_HAND = "#!/bin/sh\nsleep 60\n"


def is_running(lab: cluster.Lab, job_id: str) -> bool:
    return lab.run(["squeue", "-h", "-j", job_id, "-o", "%t"]).stdout == "R\n"


def run(site: sites.Site, words: list[str]) -> str:
    done = site.lab.run(
        sessions.argv(" ".join(words)),
        env={**site.environ, **sessions.ENVIRON},
        cwd=site.home,
        timeout_seconds=400,
    )
    return done.stdout


def test_the_sessions(lab: cluster.Lab, site: sites.Site) -> None:
    lab.write(f"{site.home}/train.sbatch", TRAIN)
    lab.write(f"{site.home}/by-hand.sh", BY_HAND)
    shown = [f"{environment.CHECKOUT_PLACE}/{name}" for name in ("examples", "tests")]
    assert lab.run(["ln", "-s", *shown, site.home]).returncode == 0
    sections = sessions.sections(sessions.FROM_SBATCH)
    steps = [
        *sections["Submit a batch script unchanged"],
        *sections["Follow a job that was submitted by hand"],
    ]
    # The job IDs that are shown, and those of this cluster.
    ids: dict[str, str] = {}
    try:
        for step in steps:
            words = [ids.get(word, word) for word in step.command.split(" ")]
            printed = run(site, words)
            # Slurm sets the reason of a pending job when it has tried to schedule it.
            deadline = time.monotonic() + 30
            while (
                words[1] in LOOKS
                and not sessions.is_as_shown(step, printed)
                and time.monotonic() < deadline
            ):
                printed = run(site, words)
            print(f"$ {' '.join(words)}\n{printed}")
            sessions.check(step, printed)
            if shown := sessions.job_id("\n".join(step.shown)):
                ids[shown] = str(sessions.job_id(printed))
                if words[0] == "sbatch":
                    lab.wait_for(lambda: is_running(lab, ids[shown]), 60, "the job to run")
    finally:
        lab.run(["scancel", *ids.values()])


def test_the_demo(lab: cluster.Lab, site: sites.Site) -> None:
    folder = f"{site.home}/the demo's"
    python = f"{environment.PLACE}/bin/python"
    words = ["--scheduler", "slurm", "--python", python, "--folder", folder]
    extra = ["--", "--set", "args.epochs=2", "--set", 'environment.variables.OMP_NUM_THREADS="1"']
    done = lab.run(
        [f"{environment.CHECKOUT_PLACE}/script/demo", *words, *extra],
        env=site.environ,
        cwd=site.home,
        timeout_seconds=400,
    )
    reported = command_line.PROGRESS.sub("", done.stderr)
    assert (done.returncode, reported) == (0, ""), done.stdout + done.stderr
    job_id = sessions.job_id(done.stdout)
    assert job_id is not None
    first = f"{job_id} is starting (loading PyTorch takes longest)\ntraining on 2 ranks\n"
    assert f"\n{first}epoch 1/2 " in done.stdout
    assert "\nState:       COMPLETED\n" in done.stdout
    assert "\nTotal processes: 2\n" in done.stdout
    assert "\nTraining completed successfully.\n" in done.stdout
    assert "The job ran on Slurm with two ranks. " in done.stdout
    there = {"ORCHESTRATOR_STATE_DIR": f"{folder}/state", "ORCHESTRATOR_RUNS_DIR": f"{folder}/runs"}
    reported = lab.run(
        ["orchestrator", "show", job_id, "--json"], env={**site.environ, **there}
    ).stdout
    assert '"state": "COMPLETED"' in reported and '"nodes": 1' in reported
