"""The demo's plans on a server of the test's own, and browsers that look at them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cleveragents.interfaces.demo.goals import CHECK, GOALS, laid_script
from cleveragents.interfaces.demo.sample import SampleRepository

__all__ = ["PlanPageBench", "browser_alone", "plan_page_bench", "until", "words_of"]

_PATIENCE_SECONDS = 60.0
_AGENTS = [sys.executable, "-m", "cleveragents"]
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# Every word that the badge says, in order, from when the page is there.
_WATCH = """() => {
  window.badgeWords = [];
  const look = () => {
    const word = document.querySelector(".p-state")?.textContent.trim();
    if (word && word !== window.badgeWords.at(-1)) window.badgeWords.push(word);
  };
  look();
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


def until(what: str, holds: Callable[[], bool]) -> None:
    """Returns when it holds; an AssertionError if that does not come to pass."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, f"waited for {what}"
        time.sleep(0.05)


class _Server:
    """`agents serve` on one port, as often as it is started."""

    def __init__(self, state: Path, environment: dict[str, str]) -> None:
        self._state = state
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.url = ""

    def start(self) -> None:
        """Returns when it listens, where it did before."""
        self._starts += 1
        port = self.url.rpartition(":")[2] or "0"
        log = self._state.parent / f"serve-{self._starts}.log"
        with log.open("w") as said:
            command = [*_AGENTS, "serve", "--port", port, "--workers", "6"]
            self._process = subprocess.Popen(
                command, env=self._environment, cwd=self._state.parent, stdout=said, stderr=said
            )
        ended = self._process.poll
        until("the server", lambda: "listening on " in log.read_text() or ended() is not None)
        assert ended() is None, log.read_text()
        self.url = log.read_text().partition("listening on ")[2].split()[0]

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_PATIENCE_SECONDS)

    @property
    def token(self) -> str:
        return (self._state / "server-token").read_text().strip()


@dataclass
class PlanPageBench:
    """A server with the demo's repository and script. Not thread-safe: use it in the thread that made it."""

    server: _Server
    api: httpx.Client
    browser: Browser
    sample: SampleRepository
    script: Path
    errors: list[str] = field(default_factory=list)

    def begin(self, goal: str, **more: Any) -> str:
        """A plan for one of the demo's goals, or for another; its id."""
        body = {"goal": GOALS.get(goal, goal), "resource": "paint-shop", "model": f"scripted/{self.script}"}
        made = self.api.post("/plans", json={**body, "checks": [CHECK], **more})
        assert made.status_code in (201, 202), made.text
        return str(made.json()["id"])

    def account(self, plan_id: str) -> dict[str, Any]:
        answer = self.api.get(f"/plans/{plan_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, plan_id: str, phase: str, state: str) -> None:
        """Until the API says that the plan stands there."""

        def stands() -> bool:
            found = self.account(plan_id)
            ended = found["state"] in ("errored", "cancelled") and found["state"] != state
            assert not ended, f"{found['phase']}/{found['state']}: {found['error']}"
            return (found["phase"], found["state"]) == (phase, state)

        until(f"{phase}/{state} of {plan_id}", stands)

    def open(self, plan_id: str, tab: str = "", token: str = "", **options: Any) -> Page:
        """The plan's page in a browser of its own, logged in; what its badge says is kept."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(_PATIENCE_SECONDS * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if _is_bad(said.text) else None)
        page.goto(f"{self.server.url}/#{token or self.server.token}")
        page.locator("main").wait_for()
        self.go(page, plan_id, tab)
        return page

    def go(self, page: Page, plan_id: str, tab: str = "") -> None:
        """To that plan, in the browser that is open."""
        page.goto(f"{self.server.url}/plans/{plan_id}" + (f"#{tab}" if tab else ""))
        page.locator(f"[data-plan='{plan_id}']").wait_for()
        page.evaluate(_WATCH)

    def agrees(self, page: Page, plan_id: str) -> None:
        """What the page shows comes to be what the API says at the end."""
        said = self.account(plan_id)
        standing = f"{said['phase']}/{said['state']}"
        expect(page.locator(f"[data-plan='{plan_id}'][data-state='{standing}']")).to_have_count(1)
        calls = page.locator("#tab-timeline .p-tab-mark")
        expect(calls).to_have_text(str(len(said["calls"])))
        expect(page.locator("#tab-diff")).to_contain_text(f"Diff{said['files_changed'] or ''}")
        assert self.account(plan_id)["updated"] == said["updated"]


def words_of(page: Page) -> list[str]:
    """What the badge has said."""
    words: list[str] = page.evaluate("window.badgeWords")
    return words


def _is_bad(text: str) -> bool:
    return "Content Security Policy" in text or "Uncaught" in text


@contextmanager
def browser_alone() -> Iterator[Browser]:
    """A browser, and no server."""
    chromium = which("chromium") or which("chromium-browser") or which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        expect.set_options(timeout=_PATIENCE_SECONDS * 1000)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def plan_page_bench(directory: Path) -> Iterator[PlanPageBench]:
    """The bench in that empty directory; everything it started has ended afterwards."""
    state = directory / "state"
    state.mkdir()
    sample = SampleRepository(directory / "paint-shop")
    sample.make()
    environment = {**os.environ, "HOME": str(directory), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    for words in (["project", "add", "shop"], _resource(sample)):
        subprocess.run([*_AGENTS, *words], env=environment, check=True, capture_output=True, cwd=directory)
    with ExitStack() as stack:
        browser = stack.enter_context(browser_alone())
        server = _Server(state, environment)
        server.start()
        stack.callback(server.stop)
        headers = {"Authorization": f"Bearer {server.token}"}
        api = stack.enter_context(httpx.Client(base_url=f"{server.url}/api", headers=headers, timeout=30))
        yield PlanPageBench(server, api, browser, sample, laid_script(directory))


def _resource(sample: SampleRepository) -> list[str]:
    return ["resource", "add", "paint-shop", "--project", "shop", "--path", str(sample.root)]
