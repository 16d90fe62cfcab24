"""Calls the tools of `orchestrator mcp` with the official client, over stdin and stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import mcp
import mcp.client.stdio

Result = TypeVar("Result")
TIMEOUT_SECONDS = 120.0


class Tools:
    """The tools of one server."""

    def __init__(self, client: mcp.Client) -> None:
        self._client = client

    async def names(self) -> list[str]:
        listed = await self._client.list_tools()
        return [tool.name for tool in listed.tools]

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the structured answer of a tool."""
        result = await self._client.call_tool(name, arguments)
        assert not result.is_error, result.content
        answer = result.structured_content
        return answer.get("result", answer)

    async def refusal(self, name: str, /, **arguments: Any) -> str:
        """Return the error of a tool."""
        result = await self._client.call_tool(name, arguments)
        assert result.is_error, result.structured_content
        return "".join(part.text for part in result.content)


def use(
    work: Callable[[Tools], Awaitable[Result]],
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Result:
    """Start a command, which is to be an MCP server, and do the work with its tools."""
    parameters = mcp.client.stdio.StdioServerParameters(
        command=command[0],
        args=list(command[1:]),
        env=None if environ is None else dict(environ),
        cwd=folder,
    )

    async def run() -> Result:
        async with mcp.Client(parameters) as client:
            return await work(Tools(client))

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))
