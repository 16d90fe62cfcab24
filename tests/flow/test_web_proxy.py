"""`orchestrator web` behind a proxy, as in Open OnDemand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow import command_line, web_server

URL = "https://ondemand.example.org/pun/dev/jobs"
HOST = {"Host": "ondemand.example.org"}


@pytest.fixture
def server(cli: command_line.CommandLine, tmp_path: Path) -> Iterator[web_server.Server]:
    path = tmp_path / "run" / "web.sock"
    options = ("--socket", path, "--url", f"{URL}/", "--allow-actions")
    with web_server.started(cli, *options) as started:
        assert started.printed == f"The proxy connects to {path}\nand open {URL}/\n"
        yield started


def test_links_begin_with_the_path(
    cli: command_line.CommandLine, server: web_server.Server
) -> None:
    assert cli("submit", cli.spec(web_server.JOB.format(name="demo"))).code == 0
    for path in ("/pun/dev/jobs/", "/"):
        page = server.get(path, **HOST)
        assert page.status == 200
        urls = re.findall(
            r'\s(?:href|src|action|formaction|data-events|data-root)="(/.*?)"', page.text
        )
        assert len(urls) > 20
        assert all(url.startswith("/pun/dev/jobs/") for url in urls)
        assert int(page.headers["Content-Length"]) == len(page.text.encode())
    assert server.get("/pun/dev/jobs", **HOST).headers["Location"] == "/pun/dev/jobs/"
    # Not a redirection to an address that is not ours.
    assert server.get("/pun/dev/jobs/sweeps/", **HOST).status == 404
    style = re.search(r'href="(\S+style.css)"', page.text)
    assert style is not None and server.get(style[1], **HOST).status == 200
    job = server.get("/pun/dev/jobs/jobs/1", **HOST)
    assert 'data-charts="/pun/dev/jobs/curves.json?job=1"' in job.text
    question = server.get("/pun/dev/jobs/actions/hold?job=1", **HOST)
    cookie = question.headers["Set-Cookie"]
    assert "Path=/pun/dev/jobs/;" in cookie and "Secure" in cookie
    fields = re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', question.text)
    body = "&".join(f"{name}={value}" for name, value in fields).encode()
    headers = {
        **HOST,
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
        "Cookie": cookie.partition(";")[0],
    }
    for origin, status in (("http://localhost", 403), ("https://ondemand.example.org", 303)):
        sent = server.request(
            "POST", "/pun/dev/jobs/actions/hold", {**headers, "Origin": origin}, body
        )
        assert sent.status == status
    assert sent.headers["Location"].startswith("/pun/dev/jobs/runs/")


@pytest.mark.parametrize("host", ["localhost", "evil.example", "ondemand.example.org:81"])
def test_other_names_are_refused(server: web_server.Server, host: str) -> None:
    answer = server.get("/pun/dev/jobs/", Host=host)
    assert answer.status == 421
    assert answer.text == "Open this server as https://ondemand.example.org.\n"


def test_addresses_that_are_none(cli: command_line.CommandLine) -> None:
    for url in (
        "ondemand.example.org",
        "ftp://x/",
        "https://x/?a=1",
        "https://a@x/",
        'https://x/"',
    ):
        done = cli("web", "--url", url)
        assert (done.code, done.err) == (
            1,
            f"Error: {url!r} is not an address of a page: write https://HOST/PATH\n",
        )
    done = cli("web", "--url", URL, "--port", "0")
    assert done.code == 2 and "--port and --url cannot be combined" in done.err


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_app_of_open_ondemand(
    cli: command_line.CommandLine, tmp_path: Path, checkout: Path
) -> None:
    app = tmp_path / "app"
    shutil.copytree(checkout / "examples" / "ondemand", app)
    socket = app / "passenger.sock"
    environ = {**os.environ, **cli.environ, "PORT": str(socket), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(["node", app / "app.js"], env=environ, stderr=subprocess.DEVNULL)
    try:
        cli.wait_until(socket.exists, "the app")
        front = web_server.Server(process, f"connects to {socket}")
        forwarded = {"Host": "localhost", "X-Forwarded-Host": "ondemand.example.org"}
        answer = front.request("GET", "/pun/dev/jobs/", forwarded)
        assert (answer.status, "alice/.venv/bin/orchestrator" in answer.text) == (502, True)
        command = [sys.executable, "-m", "orchestrator", "web"]
        (app / "config.json").write_text(json.dumps({"url": URL, "command": command}))
        answer = front.request("GET", "/pun/dev/jobs/", forwarded)
        assert answer.status == 200
        assert 'href="/pun/dev/jobs/sweeps"' in answer.text
        with front.events("/pun/dev/jobs/events", **forwarded) as events:
            events.next("hello")
        forwarded["X-Forwarded-Host"] = "evil.example"
        assert front.request("GET", "/pun/dev/jobs/", forwarded).status == 421
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        inner = tmp_path / f"orchestrator-{os.getuid()}" / "ondemand.sock"
        cli.wait_until(lambda: not inner.exists(), "the end of the server")
    finally:
        process.kill()
        process.wait()
