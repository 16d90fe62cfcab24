"""A new user's first minute on a login node: a profile, a program with PyTorch, its metrics."""

from __future__ import annotations

import pathlib
import re
import time

from tests.cluster import lab as cluster

PROGRAM = pathlib.Path(__file__).parents[1] / "data/first_minute/train.py"


def test_a_profile_a_program_and_its_metrics(lab: cluster.Lab, alice_home: str) -> None:
    lab.write(f"{alice_home}/train.py", PROGRAM.read_text())

    def run(*argv: str, code: int = 0) -> tuple[str, str]:
        env = {"HOME": alice_home}
        done = lab.orchestrator(argv, env=env, cwd=alice_home, timeout_seconds=120)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    started = time.monotonic()
    profile = f"{alice_home}/.config/orchestrator/config.toml"
    _, note = run("config", "init")
    assert note == f"Wrote {profile}. Review it, then run: orchestrator doctor\n"
    out, err = run("submit", "train.py", "--wait")
    assert re.fullmatch(r"Submitted batch job \d+ \(@1, train\)\n", out)
    states = r"PENDING|(RUNNING|COMPLETING|COMPLETED) on n\d"
    assert re.fullmatch(rf"(\S+ \d+ ({states})\n)+", err)
    assert "COMPLETED" in err
    rows, err = run("metrics", "train", "--format", "table")
    seconds = time.monotonic() - started
    head, *lines = rows.splitlines()
    assert head.split() == ["JOB_ID", "NAME", "VALUE", "UNIT", "EPOCH", "STEP", "TIME", "SOURCE"]
    names = [line.split()[1] for line in lines]
    assert names == ["loss", "throughput"] * 6
    assert [line.split()[3:6] for line in lines[-1:]] == [["samples/sec", "1", "20"]]
    assert err == ""
    # A minute where no other tests use the processors.
    assert seconds < 120
