"""`orchestrator web` on the login host, as alice starts it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence

from tests.cluster import site as sites

LINK = re.compile(r"http://localhost:(\d+)/\?token=\S+")
TIMEOUT_SECONDS = 60.0
#: The same server, as if its pages had been changed by an upgrade.
UPGRADED = """\
import sys
from orchestrator.web import rendering
rendering.version = lambda: "upgraded"
from orchestrator.__main__ import main
main()
"""


class Server:
    def __init__(self, site: sites.Site, process: subprocess.Popen[str]) -> None:
        self._site = site
        self._process = process
        self.link = self.next_link()
        match = LINK.fullmatch(self.link)
        assert match is not None
        self.port = int(match[1])
        self.address = f"http://localhost:{self.port}"

    def next_link(self) -> str:
        """Wait for the next link that it prints."""
        assert self._process.stdout is not None
        timer = threading.Timer(TIMEOUT_SECONDS, self._site.lab.kill_tree, [self._process])
        timer.start()
        try:
            for line in self._process.stdout:
                if match := LINK.search(line):
                    return match[0]
        finally:
            timer.cancel()
        raise AssertionError(f"the server ended: {self._process.communicate()[1]}")

    def kill(self) -> None:
        self._site.lab.kill_tree(self._process)
        self._process.communicate()


@contextlib.contextmanager
def running(site: sites.Site, *, port: int = 0, is_upgraded: bool = False) -> Iterator[Server]:
    program: Sequence[str] = ["orchestrator"]
    if is_upgraded:
        program = [sites.PYTHON, "-c", UPGRADED]
    process = site.lab.popen(
        [*program, "web", "--port", str(port), "--allow-actions"], env=site.environ, cwd=site.home
    )
    try:
        yield Server(site, process)
    finally:
        site.lab.kill_tree(process)
        process.communicate()
