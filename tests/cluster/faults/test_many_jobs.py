"""Row 49: thousands of other users' jobs in squeue's output."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cluster import faults
from tests.cluster import site as sites
from tests.cluster.faults import rows

USE_OF = "/srv/orchestrator/tests/cluster/use_of.py"
#: What the issue allows one refresh.
CPU_SECONDS = 2.0
MEMORY_BYTES = 200 << 20
CROWD = 20_000
#: In the place of `JobArrayID` and of `Name`, in the columns that squeue was asked for.
FOREIGN = (
    ("9{n}", "train"),
    ("9{n}_[1-400%3]", "sweep.aaaaaaaaaaaa"),
    ("9{n}_7", "x" * 900),
    ("9{n}", "$(touch canary); rm -rf /"),
    ("9{n}", "wei\u00df \u30c6\u30b9\u30c8 \u202e.zzzz00000000"),
    ("9{n}", "ctrl \x1b[2J \x07 \x1f\x1f\x1f"),
    ("9{n}", "two\nlines"),
    ("9{n}+0", "het"),
    ("", ""),
)


def foreign_lines(columns: int, ours: str) -> tuple[str, ...]:
    """Lines of squeue about jobs of others; `ours` is a name of ours, almost repeated in some."""
    middle = ["9{n}", "RUNNING", "0", "0", *["2026-11-21T10:00:00"] * 3, "1:00:00", "1"]
    middle += ["(null)"] * (columns - len(middle) - 2)
    names = (*FOREIGN, ("9{n}", ours.upper()), ("9{n}", f"{ours}x"), ("9{n}", f" {ours} "))
    return tuple("\x1f".join([job_id, *middle, name]) for job_id, name in names)


def test_row_49_twenty_thousand_jobs_of_others(row: rows.Row, tell: Callable[[str], None]) -> None:
    lab, home = row.site.lab, row.site.home
    running = row.submit("runs", f"until [ -e {home}/go ]; do sleep 0.2; done")
    waits = row.submit("waits", "true", sbatch="hold = true")
    name = row.site.wait_state(running, "RUNNING")["run_dir"].rpartition("/")[2]
    asked = row.seen.calls("squeue")[-1].argv
    crowd = foreign_lines(asked[asked.index("-O") + 1].count(",") + 1, name)

    def refresh(lines: int) -> str:
        # The crowd comes in spite of --me: as from a site's own wrapper around squeue.
        row.seen.set(faults.Rule(command="squeue", crowd=crowd, crowd_lines=lines))
        argv = [sites.PYTHON, USE_OF, f"{home}/use.json", "refresh"]
        done = lab.run(argv, env=row.site.environ, cwd=home)
        assert done.returncode == 0, done.stderr
        used = json.loads(lab.read(f"{home}/use.json"))
        cpu, memory = used["cpu_seconds"], used["max_rss_bytes"]
        usage = f"{cpu:.2f} s of CPU, {memory / 2**20:.0f} MiB"
        tell(f"a refresh beside {lines} foreign jobs: {usage}")
        assert cpu < CPU_SECONDS, usage
        assert memory < MEMORY_BYTES, usage
        return done.stderr

    refresh(0)
    output = refresh(CROWD)
    assert "lines could not be parsed" in output, "the crowd was there"
    assert output.count("\n") <= 3, "and was reported once"
    lab.run(["scontrol", "release", waits]).check_returncode()
    assert row.site.wait_state(waits, "COMPLETED")["job_id"] == waits
    assert row.site.job(running)["state"] == "RUNNING"
    assert {job["job_id"] for job in row.jobs()} == {running, waits}
    lab.write(f"{home}/go", "")
    row.site.run("wait", running)
