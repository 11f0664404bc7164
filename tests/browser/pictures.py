"""Takes the pictures of the documents: `python -m tests.browser.pictures [DIRECTORY]`, or into `docs/images`.

A server of its own gets the demo's plans and a few more, so that every page has something on it. Look at each
picture before you keep it; what is wrong in one is a fault of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, expect

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.page_bench import CHROMIUM, until
from tests.plan_page_bench import PlanPageBench, plan_page_bench

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, TALL, TALLER = (
    {"width": 1280, "height": 800},
    {"width": 1280, "height": 820},
    {"width": 1280, "height": 900},
)
PAGES = {
    "costs": "/costs",
    "audit-log": "/events",
    "jobs": "/jobs",
    "projects": "/projects",
    "users": "/users",
    "api": "/docs",
}


class Pictures:
    """Where they go, and of which server they are."""

    def __init__(self, bench: PlanPageBench, directory: Path) -> None:
        self.bench = bench
        self.directory = directory

    def keep(self, page: Page, name: str) -> None:
        """The page as it is, once nothing in it is still loading."""
        expect(page.locator(".connection")).to_contain_text("Live")
        expect(page.locator(".loading, [aria-busy='true']")).to_have_count(0)
        page.screenshot(path=self.directory / f"{name}.png")

    @contextmanager
    def browser(self, size: dict[str, int], scheme: str = "light") -> Iterator[Page]:
        visit = self.bench.server.visit(viewport=size, color_scheme=scheme)
        yield visit.page
        self.bench.server.close_visits()

    def of_plan(self, page: Page, plan_id: str, tab: str, name: str) -> None:
        self.bench.go(page, plan_id, tab)
        self.keep(page, name)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch, plan_page_bench(Path(scratch)) as bench:
        pictures = Pictures(bench, directory)
        ids = _begun(bench)
        _take_plans(pictures, ids)
        _take_session(pictures)
        _take_pages(pictures)


def _begun(bench: PlanPageBench) -> dict[str, str]:
    ids = {name: bench.begin(name) for name in ("tax", "receipt", "catalogue", "welcome")}
    ids["discount"] = bench.begin("discount", profile="review")
    ids["split"] = bench.begin("Paint it", model=f"scripted/{_split(bench)}", checks=[])
    for name in ("tax", "receipt", "catalogue", "welcome"):
        bench.wait(ids[name], "execute", "complete")
    until("the question", lambda: bench.account(ids["discount"])["needs"] == "approval")
    until("the conflict", lambda: bench.account(ids["split"])["needs"] == "conflict")
    bench.api.post("/users", json={"name": "vera", "role": "viewer"})
    bench.api.post("/users", json={"name": "olga", "role": "operator"})
    return ids


def _split(bench: PlanPageBench) -> Path:
    """A goal in two parts that disagree."""
    rules: list[dict[str, Any]] = []
    for colour in ("Red", "Blue"):
        when = {"first_user": f"{colour} half"}
        edit = call("edit", path="README.md", old="# Paint shop\n", new=f"# {colour} shop\n")
        step = {"title": f"Write {colour}", "instructions": f"{colour} half"}
        rules += [strategizes(steps(step), when=when), executes(answer(edit), says("done"), when=when)]
    parts = [
        {"title": f"{one} half", "instructions": f"{one} half", "sub_plan": True} for one in ("Red", "Blue")
    ]
    whole = strategizes(steps(*parts), when={"first_user": "Paint it"})
    script = bench.script.with_name("split.yaml")
    script.write_text(json.dumps({"version": 1, "rules": [*rules, whole, reviews(accept())]}))
    return script


def _take_plans(pictures: Pictures, ids: dict[str, str]) -> None:
    bench = pictures.bench
    with pictures.browser(TALL) as page:
        pictures.of_plan(page, ids["discount"], "", "plan-approve")
        bench.api.post(f"/plans/{ids['discount']}/approve", json={})
        bench.wait(ids["discount"], "execute", "complete")
        for tab, name in (
            ("output", "output"),
            ("graph", "actors"),
            ("checks", "checks"),
            ("conversation", "conversation"),
            ("timeline", "timeline"),
        ):
            pictures.of_plan(page, ids["catalogue"], tab, f"plan-{name}")
        pictures.of_plan(page, ids["welcome"], "decisions", "plan-decisions")
        page.get_by_role("button", name="Correct …").click()
        wanted = page.get_by_role("dialog").get_by_role("textbox", name="Guidance")
        wanted.fill("At the beginning, please")
        expect(page.get_by_role("group", name="Effects")).to_contain_text("README.md")
        pictures.keep(page, "plan-correct")
        pictures.of_plan(page, ids["split"], "plans", "plan-sub-plans")
        for name, state in (("discount", "applied"), ("tax", "constrained")):
            bench.api.post(f"/plans/{ids[name]}/apply", json={})
            bench.wait(ids[name], "apply", state)
        pictures.of_plan(page, ids["tax"], "", "plan-conflict")
    _comment_on(bench, ids["receipt"])
    for name, scheme in (("plan-diff", "light"), ("plan-diff-dark", "dark")):
        with pictures.browser(TALLER, scheme) as page:
            pictures.of_plan(page, ids["receipt"], "diff", name)
    with pictures.browser({"width": 360, "height": 780}) as page:
        pictures.of_plan(page, ids["receipt"], "", "plan-narrow")


def _take_session(pictures: Pictures) -> None:
    """A question with its answer, and a request with its plan beside it."""
    old, new = "Closed on Sundays.", "Open on Sundays from 10 to 4."
    rules = [
        {
            "when": {"user": "person:\\s+When is"},
            "turns": [
                answer(call("grep", pattern="hours")),
                says("From 9 to 5, see `README.md:7`. The shop is **closed on Sundays**: `README.md:9`."),
            ],
        },
        {
            "when": {"user": "person:\\s+Please open", "offered": "start_plan"},
            "turns": [
                answer(call("start_plan", goal="Open on Sundays from 10 to 4")),
                says("I started a plan for this. It changes the opening hours; review the result."),
            ],
        },
        strategizes(steps({"title": "Hours", "instructions": "Change the hours"})),
        executes(answer(call("edit", path="README.md", old=old, new=new)), says("It opens on Sundays.")),
        reviews(accept()),
    ]
    script = pictures.bench.script.with_name("session.yaml")
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    body = {"resource": "paint-shop", "model": f"scripted/{script}"}
    talk = pictures.bench.api.post("/conversations", json=body).json()["id"]
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("narrow", {"width": 390, "height": 800})):
        with pictures.browser(size, "dark" if scheme == "dark" else "light") as page:
            _go(pictures, page, f"/sessions/{talk}")
            if scheme == "light":
                for number, text in ((1, "When is the shop open?"), (2, "Please open on Sundays, too")):
                    page.get_by_label("Message", exact=True).fill(text)
                    page.keyboard.press("Enter")
                    page.get_by_role("article", name=f"Answer {number}").wait_for()
            page.get_by_role("heading", name="Ready for review").wait_for()
            pictures.keep(page, f"session-{scheme}")


def _comment_on(bench: PlanPageBench, plan_id: str) -> None:
    """Comment on the first added line of the result."""
    [file, *_] = bench.api.get(f"/plans/{plan_id}/diff").json()["files"]
    line = next(line for hunk in file["hunks"] for line in hunk["lines"] if line["kind"] == "add")
    body = {"text": "Say which colour the sum is for.", "path": file["path"], "line": line["new"]}
    bench.api.post(f"/plans/{plan_id}/comments", json=body).raise_for_status()


def _take_pages(pictures: Pictures) -> None:
    bench = pictures.bench
    for goal in ("Count the orders of a night", "Sort the price list by colour"):
        body = {"action": "builtin/command", "arguments": {"argv": ["sleep", "600"]}, "goal": goal}
        made = bench.api.post("/plans", json={**body, "resource": "paint-shop", "profile": "full-auto"})
        assert made.status_code == 201, made.text
        plan_id = made.json()["id"]
        until("a running plan", lambda plan_id=plan_id: bench.account(plan_id)["state"] == "processing")
    for scheme in ("light", "dark"):
        with pictures.browser(WIDE, scheme) as page:
            for name, path in PAGES.items():
                _go(pictures, page, path)
                pictures.keep(page, f"{name}-{scheme}")
            _take_the_others(pictures, page, scheme)
    with pictures.browser({"width": 360, "height": 740}) as page:
        pictures.keep(page, "board-narrow")
    with pictures.browser({"width": 1280, "height": 860}) as page:
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        pictures.keep(page, "shortcuts-light")


def _take_the_others(pictures: Pictures, page: Page, scheme: str) -> None:
    """The board both ways, a question to the repository, and a plan that is about to be made."""
    _go(pictures, page, "/")
    pictures.keep(page, f"board-{scheme}")
    page.get_by_role("button", name="Columns").click()
    pictures.keep(page, f"board-columns-{scheme}")
    _go(pictures, page, "/context")
    page.get_by_role("main").get_by_role("textbox").first.fill("Where is the sum of a receipt made?")
    page.keyboard.press("Enter")
    page.locator(".strategies").first.wait_for(state="attached")
    pictures.keep(page, f"context-{scheme}")
    _go(pictures, page, "/new")
    page.get_by_role("main").get_by_role("textbox").first.fill("Show the sum at the end of a receipt")
    pictures.keep(page, f"new-plan-{scheme}")


def _go(pictures: Pictures, page: Page, path: str) -> None:
    page.goto(f"{pictures.bench.server.url}{path}")
    page.locator("main h1").wait_for()


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("no Chromium on this machine: install it (Debian: apt-get install chromium)")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
