"""The MCP server on a real Slurm, with the official client."""

from __future__ import annotations

from tests.cluster import site as sites
from tests.flow import mcp_server


def test_an_agent_submits_a_job_and_reads_its_log(site: sites.Site) -> None:
    site.shell("greeting", "echo step 1 loss 0.5; exit 3")

    async def act(tools: mcp_server.Tools) -> None:
        assert (await tools.call("list_jobs"))["items"] == []
        answer = await tools.call("plan_submit", file="greeting.toml")
        (planned,) = answer["items"]
        assert (await tools.call("list_jobs"))["items"] == []
        await tools.call("apply", token=planned["token"])
        assert "applied only once" in await tools.refusal("apply", token=planned["token"])
        (job,) = (await tools.call("list_jobs"))["items"]
        (ended,) = (await tools.call("wait_for_jobs", jobs=[job["job_id"]]))["items"]
        assert (ended["state"], ended["exit_code"]) == ("FAILED", 3)
        log = await tools.call("read_log", job=job["job_id"], search="loss")
        assert log["untrusted_text"].endswith(":step 1 loss 0.5\n")

    command = site.lab.command(["orchestrator", "mcp"], env=site.environ, cwd=site.home)
    mcp_server.use(act, command)
    (row,) = site.items("status", "--name", "greeting")
    sources = {event["source"] for event in site.job(row["job_id"])["events"]}
    assert "user, through MCP" in sources
