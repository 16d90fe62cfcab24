"""Commands on a terminal with 80 columns, and the same in a pipe: the exact text."""

from __future__ import annotations

import re

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

NAME = "resnet50-imagenet-wide-cosine-lr0.1-seed3-weekly"
PROGRAM = """\
for epoch in (1, 2, 3):
    loss, throughput = 0.9312345678901 / epoch, 1234567.891 + epoch
    print(f"epoch={epoch} loss={loss} throughput={throughput} samples/s")
"""
STATUS = """\
JOB_ID NAME                     STATE     ELAPSED  TIME_LIMIT GPUS NODE_LIST ROW
1      resnet50-imagenet-wide-… COMPLETED 00:00:0N 01:00:00   8    n[1-2]    @1
"""
METRICS = """\
JOB_ID  NAME        VALUE    UNIT       EPOCH  STEP  TIME  SOURCE
1       loss        0.93123             1                  log:keyvalue
1       throughput  1234569  samples/s  1                  log:keyvalue
1       loss        0.46562             2                  log:keyvalue
1       throughput  1234570  samples/s  2                  log:keyvalue
1       loss        0.31041             3                  log:keyvalue
1       throughput  1234571  samples/s  3                  log:keyvalue

loss        █▃▁  0.31041 to 0.93123
throughput  ▁▅█  1234569 to 1234571 samples/s
"""
FOLLOWED = """\
1          loss                 0.93123                      epoch 1
1          throughput           1234569 samples/s            epoch 1
"""


def test_numbers_and_names(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(PROGRAM)
    options = ("--name", NAME, "--nodes", "2", "--gpus-per-node", "4", "--launcher", "python")
    assert cli("submit", *options, "--time-limit", "1:00:00", "--", "train.py").code == 0
    assert cli("wait", "1").code == 0

    def on_terminal(*argv: str) -> str:
        code, out, _ = cli.on_terminal(*argv, COLUMNS="80", NO_COLOR="1")
        assert code == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", out.decode().replace("\r\n", "\n"))

    assert re.sub(r"\b00:0\d:\d\d", "00:00:0N", on_terminal("status")) == STATUS
    assert on_terminal("metrics", "1", "--name", "loss", "--name", "throughput") == METRICS
    assert FOLLOWED in on_terminal("metrics", "1", "-f")
    # In a pipe all of it, as a table too.
    for form in ("tsv", "table"):
        piped = cli("status", "--format", form).out
        assert NAME in piped and "NODE_LIST" in piped.upper()
        values = cli("metrics", "1", "--format", form, "--last", "1").out
        assert "0.3104115226300333" in values and "1234570.891" in values
