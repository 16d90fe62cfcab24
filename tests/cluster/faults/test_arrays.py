"""Row 37: an array of which some tasks are cancelled, and long lists of tasks."""

from __future__ import annotations

import re

from tests.cluster import lab as cluster
from tests.cluster import site as sites


def test_row_37_partly_cancelled_array(lab: cluster.Lab, site: sites.Site) -> None:
    profile = f"{site.home}/config/orchestrator/config.toml"
    text = lab.run(["cat", profile]).stdout
    lab.write(profile, f"{text}submit_grace_seconds = 5\n")
    command = '[ "$SLURM_ARRAY_TASK_ID" -gt 4 ] || sleep 300'
    spec = site.spec(
        "partly",
        '[job]\nname = "partly"\ntime_limit = "5"\n[launch]\nlauncher = "python"\n'
        f"command = '{command}'\n[array]\nsize = 101\nmax_running = 4\n",
    )
    number = site.submit(spec)
    site.wait_state(f"{number}_3", "RUNNING")
    others = sorted(set(range(8, 101, 2)))
    ids = ",".join(map(str, others))
    # By hand: tasks that wait, one that runs.
    lab.run(["scancel", f"{number}_[{ids}]", f"{number}_1"]).check_returncode()
    # By us: some more that wait.
    site.run("cancel", f"{number}_[91,93,95]")
    ours = [91, 93, 95]

    def settled() -> bool:
        site.run("refresh")
        rows = site.items("status", number, "--no-refresh")
        return all(row["state"] == "CANCELLED" for row in rows if row["array_task_id"] in others)

    lab.wait_for(settled, 120, "what was cancelled by hand to be seen", 1)
    site.run("cancel", f"{number}_[0,2-4]")
    site.run("wait", number, check=1, timeout_seconds=240)
    rows = {row["array_task_id"]: row for row in site.items("status", number)}
    assert len(rows) == 101
    cancelled = {0, 1, 2, 3, 4, *others, *ours}
    assert {task for task, row in rows.items() if row["state"] == "CANCELLED"} == cancelled
    assert {rows[task]["state"] for task in set(rows) - cancelled} == {"COMPLETED"}
    assert rows[8]["started_at"] is None and rows[1]["started_at"] is not None
    (by_hand,) = site.items("show", f"{number}_8")
    (by_us,) = site.items("show", f"{number}_91")
    assert "while pending: Slurm has no record of this task" in sites.details(by_hand)[-1]
    assert sites.details(by_us)[-1].startswith("cancelled by orchestrator while pending:")

    def differing() -> list[dict[str, str]]:
        mine = [row for row in lab.sacct(number, "-X", "-D") if re.search(r"_\d+$", row["JobID"])]
        return [
            row
            for row in mine
            if rows[int(row["JobID"].partition("_")[2])]["state"] != row["State"].split()[0]
        ]

    # Slurm's remaining records agree, task by task; the last ends come late.
    lab.wait_for(lambda: not differing(), 120, "sacct to agree", 1)
