"""The demo's plans on the test's own server, and browsers that look at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from cleveragents.demo.sample import CHECK, GOALS, SampleRepository
from tests.page_bench import PageBench, page_bench, until

__all__ = ["PlanPageBench", "plan_page_bench", "words_of"]

# Records every word of the badge, in order, from when the page is loaded.
_WATCH = """() => {
  window.badgeWords = [];
  const look = () => {
    const word = document.querySelector(".p-state")?.textContent.trim();
    if (word && word !== window.badgeWords.at(-1)) window.badgeWords.push(word);
  };
  look();
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@dataclass
class PlanPageBench:
    """A server with the demo's repository and script. Not thread-safe: use it in the thread that made it."""

    server: PageBench
    api: httpx.Client

    @property
    def sample(self) -> SampleRepository:
        return self.server.sample

    @property
    def script(self) -> Path:
        return self.server.script

    def begin(self, goal: str, **more: Any) -> str:
        """Create a plan for one of the demo's goals, or for another; return its id."""
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
        """Wait until the API reports this state of the plan."""

        def stands() -> bool:
            found = self.account(plan_id)
            ended = found["state"] in ("errored", "cancelled") and found["state"] != state
            assert not ended, f"{found['phase']}/{found['state']}: {found['error']}"
            return (found["phase"], found["state"]) == (phase, state)

        until(f"{phase}/{state} of {plan_id}", stands)

    def open(self, plan_id: str, tab: str = "", token: str | None = None, **options: Any) -> Page:
        """Open the plan's page in a separate browser, logged in; its badge is recorded."""
        page = self.server.visit(token=token, **options).page
        self.go(page, plan_id, tab)
        return page

    def go(self, page: Page, plan_id: str, tab: str = "") -> None:
        """Go to this plan in the open browser."""
        page.goto(f"{self.server.url}/plans/{plan_id}" + (f"#{tab}" if tab else ""))
        page.locator(f"[data-plan='{plan_id}']").wait_for()
        page.evaluate(_WATCH)

    def agrees(self, page: Page, plan_id: str) -> None:
        """Check that the page finally shows what the API reports."""
        said = self.account(plan_id)
        phase_state = f"{said['phase']}/{said['state']}"
        shown = page.locator(f"[data-plan='{plan_id}'][data-state='{phase_state}']")
        expect(shown).to_have_attribute("data-calls", str(len(said["calls"])))
        expect(page.locator("#tab-diff")).to_contain_text(f"Diff{said['files_changed'] or ''}")
        assert self.account(plan_id)["updated"] == said["updated"]


def words_of(page: Page) -> list[str]:
    """Return the recorded words of the badge."""
    words: list[str] = page.evaluate("window.badgeWords")
    return words


@contextmanager
def plan_page_bench(directory: Path) -> Iterator[PlanPageBench]:
    """Run the bench in this empty directory.

    Afterwards everything it started has ended, and no browser has recorded a problem.
    """
    with ExitStack() as stack:
        server = stack.enter_context(page_bench(directory, workers=6))
        headers = {"Authorization": f"Bearer {server.token}"}
        # The server may close a kept connection just when the next request is on its way.
        unkept = httpx.Limits(max_keepalive_connections=0)
        api = stack.enter_context(
            httpx.Client(base_url=f"{server.url}/api", headers=headers, timeout=60, limits=unkept)
        )
        yield PlanPageBench(server, api)
        server.close_visits()
