"""The page in real browsers: a server that can go away and come back, and browsers that record problems.

Every browser records its requests and errors: a request to another host, an error in the console or a
violation of the Content-Security-Policy fails the test that opened it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

from cleveragents.demo.sample import SampleRepository, write_script
from tests.conditions import wait_until
from tests.fork_server import Forked, ran

__all__ = ["CHROMIUM", "PATIENCE_MS", "PageBench", "Visit", "page_bench", "until"]

PATIENCE_MS = 240_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_AGENTS = [sys.executable, "-m", "cleveragents"]
# The last list of disabled features counts: Playwright's own, and the browser UI around the page, which
# would be created for each visit and took as long as all pages together.
_WITHOUT = [
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
    "PreloadTopChromeWebUI",
    "SpareRendererForSitePerProcess",
    "ThirdPartyStoragePartitioning",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
]
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(_WITHOUT)}",
]
# Short-lived elements must not disappear before a busy machine looks.
_NOTICES_STAY = """const later = window.setTimeout;
window.setTimeout = (run, ms, ...given) => later(run, ms === 6000 ? 600000 : ms, ...given);"""


def until(what: str, holds: Callable[[], bool]) -> None:
    """Return when the condition holds; raise AssertionError after the time limit."""
    wait_until(holds, what=what, seconds=PATIENCE_MS / 1000)


@dataclass
class Visit:
    """A separate browser with its own cookies and storage, and its records."""

    context: BrowserContext
    page: Page
    url: str
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    may_fail: bool = False

    def go(self, path: str) -> Page:
        """Open an address of the page, and wait for its content."""
        self.page.goto(f"{self.url}{path}")
        self.page.locator("main h1").wait_for()
        return self.page

    def keep_notices(self) -> None:
        """From the next page on, keep notices in the corner instead of hiding them after six seconds."""
        self.page.add_init_script(_NOTICES_STAY)

    def another_tab(self) -> Page:
        """Open another page in the same browser."""
        page = self.context.new_page()
        self.watch(page)
        return page

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._noted)
        page.on("requestfailed", self._failed)

    def streams(self) -> int:
        """Return how often this browser requested the stream of events."""
        self.context.pages[-1].evaluate("0")  # all earlier requests are recorded before this answer
        return sum("/api/events/stream" in url for url in self.asked)

    def ensure_clean(self) -> None:
        elsewhere = [url for url in self.asked if not url.startswith((f"{self.url}/", "data:"))]
        assert elsewhere == []
        assert self.wrong == []

    def _noted(self, said: ConsoleMessage) -> None:
        # A refusal by the server is not an error of the page, which shows it where it matters.
        if said.type in ("error", "warning") and not said.text.startswith("Failed to load resource"):
            self.wrong.append(said.text)

    def _failed(self, request: Request) -> None:
        # A page that is left at once does not wait for its icon.
        left = request.url.endswith("/icon.svg") and request.failure == "net::ERR_ABORTED"
        if "/static/" in request.url and not self.may_fail and not left:
            self.wrong.append(f"{request.url}: {request.failure}")


@dataclass
class PageBench:
    """A server with the demo's repository and script. Not thread-safe: use it in the thread that made it."""

    directory: Path
    state: Path
    sample: SampleRepository
    script: Path
    browser: Browser
    environment: dict[str, str]
    workers: int
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    held: socket.socket | None = None
    visits: list[Visit] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.state / "server-token").read_text().strip()

    @property
    def model(self) -> str:
        return f"scripted/{self.script}"

    def start(self) -> None:
        """Start the server, at its previous address if it has one."""
        log = self.directory / "serve.log"
        log.write_text("")
        options = ("--port", str(self.port), "--workers", str(self.workers), "--drain-seconds", "10")
        command = [*_AGENTS, "serve", *options]
        with log.open("w") as said:
            self.process = Forked(command, env=self.environment, cwd=self.directory, stdout=said, stderr=said)
        started = self.process
        until("the server", lambda: "listening on " in log.read_text() or started.poll() is not None)
        assert started.poll() is None, log.read_text()
        self.port = int(log.read_text().partition("listening on ")[2].split()[0].rpartition(":")[2])
        self.release_hold()

    def stop(self) -> None:
        """Stop the server in order; its connections are cut.

        Its port stays reserved until it starts again.
        """
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE_MS / 1000)
            self.process = None
            self.held = socket.socket()
            # A server may listen on a bound port; a request for any port does not get it.
            self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):  # a port taken meanwhile is reported at the next start
                self.held.bind(("127.0.0.1", self.port))

    def release_hold(self) -> None:
        """Release the port."""
        if self.held is not None:
            self.held.close()
            self.held = None

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Return the answer of the API."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.request(
            method, f"{self.url}/api{path}", headers=headers, timeout=PATIENCE_MS / 1000, **more
        )
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None

    def plan(self, goal: str, **more: Any) -> str:
        """Create a plan for a goal; return its id."""
        body = {"goal": goal, "resource": "paint-shop", "model": self.model, **more}
        return str(self.ask("POST", "/plans", json=body)["id"])

    def visit(self, *, token: str | None = None, **options: Any) -> Visit:
        """Return a new browser with the admin, or the user with this token, logged in."""
        visit = self.stranger(**options)
        visit.page.goto(f"{self.url}/#{token or self.token}")
        visit.page.locator(".shell").wait_for()
        return visit

    def stranger(self, **options: Any) -> Visit:
        """Return a new browser without a login."""
        # Endless animations would be drawn by the processor, sixty times a second.
        context = self.browser.new_context(**{"reduced_motion": "reduce", **options})
        context.set_default_timeout(PATIENCE_MS)
        visit = Visit(context, context.new_page(), self.url)
        visit.watch(visit.page)
        self.visits.append(visit)
        return visit

    def close_visits(self) -> None:
        """Close all browsers; each must have recorded no problem."""
        visits, self.visits = self.visits, []
        for visit in visits:
            visit.context.close()
        for visit in visits:
            visit.ensure_clean()


@contextmanager
def page_bench(directory: Path, *, workers: int = 2) -> Iterator[PageBench]:
    """Run the bench in this empty directory; everything it started has ended afterwards."""
    state = directory / "state"
    state.mkdir()
    sample = SampleRepository(directory / "paint-shop")
    sample.make()
    environment = {**os.environ, "HOME": str(directory), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    # An element not found in time is not shown.
    environment["CLEVERAGENTS_CONTEXT_DEADLINE_SECONDS"] = "60"
    place = ["resource", "add", "paint-shop", "--project", "paint", "--path", str(sample.root)]
    for words in (["project", "add", "paint"], place):
        code, _, said = ran([*_AGENTS, *words], env=environment, cwd=directory, timeout=PATIENCE_MS / 1000)
        assert code == 0, said
    expect.set_options(timeout=PATIENCE_MS)
    with ExitStack() as stack:
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS, timeout=PATIENCE_MS)
        stack.callback(browser.close)
        bench = PageBench(directory, state, sample, write_script(directory), browser, environment, workers)
        stack.callback(bench.release_hold)
        stack.callback(bench.stop)
        bench.start()
        yield bench
