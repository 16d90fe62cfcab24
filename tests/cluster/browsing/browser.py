"""Chromium of the cluster's root, as alice on the login host, driven through a pipe."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Iterator
from typing import Any

import axe_playwright_python.base
import pytest
from playwright import sync_api

from tests.cluster import lab as cluster
from tests.cluster import machine

CHROMIUM = "/usr/bin/chromium-headless-shell"
#: On the login host; on this machine Playwright takes another one, which stays empty.
PROFILE = "/tmp/chromium-of-the-tests"
#: The viewer's, which is not the server's.
TIME_ZONE = "America/New_York"
HEIGHT = 900
#: Of what axe finds, by its impact.
GRAVE = ("serious", "critical")
TIMEOUT_SECONDS = 30.0


@contextlib.contextmanager
def running(lab: cluster.Lab) -> Iterator[sync_api.BrowserContext]:
    """Start Chromium, and a session without cookies.

    Chromium ends when its pipe is closed, so it does not outlive this process; the host that it is
    on ends with this process too.
    """
    # Of Playwright's own Node.js; a minimal Debian does not have it.
    machine.require_library("libatomic.so.1", "libatomic1")
    folder = lab.state / "browser"
    folder.mkdir(exist_ok=True)
    start = folder / "chromium"
    words = shlex.join(lab.command([CHROMIUM], user="alice"))
    # Of an option given twice the last one counts.
    start.write_text(f'#!/bin/sh\nexec {words} "$@" --user-data-dir={PROFILE}\n')
    start.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        # Its temporary files go with the cluster, also if this process is killed.
        patch.setenv("TMPDIR", str(folder))
        playwright = sync_api.sync_playwright().start()
    try:
        chromium = playwright.chromium.launch(executable_path=start)
        context = chromium.new_context(timezone_id=TIME_ZONE, locale="en-GB")
        context.set_default_timeout(TIMEOUT_SECONDS * 1000)
        sync_api.expect.set_options(timeout=TIMEOUT_SECONDS * 1000)
        yield context
        chromium.close()
    finally:
        playwright.stop()


@dataclasses.dataclass
class Page:
    """A tab, and what went wrong in it."""

    tab: sync_api.Page
    #: messages of the console, failed requests, answers with an error
    problems: list[str]

    @classmethod
    def open(cls, context: sync_api.BrowserContext) -> Page:
        tab = context.new_page()
        page = cls(tab, [])
        tab.on("console", page._add_message)
        tab.on("pageerror", lambda error: page.problems.append(f"exception: {error}"))
        tab.on("requestfailed", page._add_failed_request)
        tab.on("response", page._add_answer)
        tab.on("dialog", lambda dialog: page.problems.append(f"dialog: {dialog.message}"))
        return page

    def _add_message(self, message: sync_api.ConsoleMessage) -> None:
        # Violations of the Content-Security-Policy are errors here.
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _add_failed_request(self, request: sync_api.Request) -> None:
        # A page that is left ends its stream, and a reload of its parts ends the one before.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed request: {request.url}: {request.failure}")

    def _add_answer(self, response: sync_api.Response) -> None:
        if response.status >= 400:
            self.problems.append(f"answer {response.status}: {response.url}")

    def show(self, width: int, scheme: Any) -> None:
        self.tab.set_viewport_size({"width": width, "height": HEIGHT})
        self.tab.emulate_media(color_scheme=scheme)
        # Charts follow in the next frame.
        self.tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def path(self) -> str:
        """Return the address without the server."""
        return re.sub(r"^\w+://[^/]+", "", self.tab.url)

    def settle(self) -> None:
        """Wait for the stream and the curves of a page that has them."""
        if self.tab.locator("[data-events]").count():
            sync_api.expect(self.tab.locator("#connection")).to_have_text("live")
        # Beside its curves a page has their values as a table.
        if self.tab.locator("[data-charts]").count() and self.tab.locator(_VALUES).count():
            self.tab.locator("[data-charts] canvas").first.wait_for()

    def overflow(self) -> list[str]:
        """Return what makes the page wider than the window; nothing: it is not."""
        return self.tab.evaluate(_OVERFLOW)

    def axe(self) -> list[str]:
        """Return what axe finds serious or critical."""
        if not self.tab.evaluate("typeof axe === 'object'"):
            # Not as a script of the page, which its policy refuses.
            self.tab.evaluate(axe_playwright_python.base.AXE_SCRIPT)
        found = self.tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"axe: {each['id']} ({each['impact']}): {node['html'][:200]}: {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
            if each["impact"] in GRAVE
        ]

    def open_details(self) -> None:
        """Show what is folded, which axe skips; not long lists, which cost it seconds."""
        self.tab.evaluate(
            "document.querySelectorAll('details').forEach("
            "(each) => (each.open = each.querySelectorAll('*').length < 100))"
        )

    def tab_to(self, label: str) -> list[str]:
        """Press Tab until an element is focused; return what was focused on the way."""
        labels: list[str] = []
        while not labels or labels[-1] != label:
            assert len(labels) < 100, labels
            self.tab.keyboard.press("Tab")
            labels.append(self.tab.evaluate(_FOCUSED))
        return labels


_VALUES = "#part-metrics table, #part-measured table"
#: What a screen reader calls the focused element.
_FOCUSED = """() => {
  const element = document.activeElement;
  return element.getAttribute("aria-label") || element.textContent.trim() || element.name;
}"""
_OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const actual = document.documentElement.scrollWidth;
  if (actual <= width) return [];
  const isWide = (each) => each.getBoundingClientRect().right > width + 1;
  const wide = [...document.body.querySelectorAll("*")].filter(isWide);
  const names = wide.slice(0, 3).map((each) => each.outerHTML.slice(0, 120));
  return [`the page is ${actual} px wide: ${names.join(" ")}`];
}"""
