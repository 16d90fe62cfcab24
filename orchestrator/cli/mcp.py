"""orchestrator mcp."""

from __future__ import annotations

import os

import click

from orchestrator import errors
from orchestrator.cli import commands, session
from orchestrator.cli.arguments import options


@commands.command(
    "mcp",
    "orchestrator mcp",
    "orchestrator --read-only mcp",
    "orchestrator mcp --max-gpu-hours 50",
    changes="nothing",
)
def mcp(
    ctx: click.Context,
    max_gpu_hours: float | None = options.max_gpu_hours,
) -> None:
    """Serve jobs to an AI agent: an MCP server on stdin and stdout.

    The agent starts it. Its tools list jobs and sweeps, read logs and metrics, and explain
    failures. What submits, cancels or changes jobs is planned first, and done by the tool `apply`
    with the token of the plan; with --read-only these tools are missing. Files are relative to the
    current folder. See docs/howto/agents.md.
    """
    try:
        from orchestrator.mcp import calls, server
    except ModuleNotFoundError as error:
        raise errors.OrchestratorError(
            f"`mcp` needs {error.name}, which is not installed. Install it: "
            "pip install 'orchestrator[mcp]'"
        ) from error
    caller = calls.Caller(
        options=session.preceding_options(ctx),
        environ=os.environ,
        is_read_only=session.is_read_only(ctx),
    )
    server.make(caller, max_gpu_hours=max_gpu_hours).run()
