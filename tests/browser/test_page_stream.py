"""The live stream of the page while tabs, connections and servers come and go."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from cleveragents.demo.sample import GOALS
from tests.page_bench import PageBench, Visit, until


def test_a_server_that_goes_away_and_comes_back_costs_no_event_and_shows_none_twice(bench: PageBench) -> None:
    visit = bench.visit()
    page = visit.go("/events")
    page.locator(".event-type").first.wait_for()
    first = _positions(page)[-1]
    bench.plan(GOALS["discount"])
    until("a first event of it", lambda: _positions(page)[-1] > first)
    visit.may_fail = True
    other = visit.another_tab()
    other.goto(f"{bench.url}/")
    other.locator("main h1").wait_for()
    bench.stop()
    expect(page.get_by_role("alert").filter(has_text="Cannot reach the server")).to_be_visible()
    other.get_by_role("link", name="Projects").click()
    expect(other.get_by_role("button", name="Try again")).to_be_visible()
    bench.start()
    bench.ask("POST", "/projects", json={"name": "after", "description": ""})
    expect(other.get_by_text("after", exact=True)).to_be_visible()  # without a reload
    other.close()
    expect(page.get_by_role("alert").filter(has_text="Cannot reach the server")).to_have_count(0)
    expect(page.get_by_role("cell", name="after", exact=True)).to_have_count(1)
    shown = _positions(page)
    assert shown == list(range(shown[0], shown[-1] + 1))  # none is missing, none is there twice
    until("the plan's end", lambda: _state(bench, GOALS["discount"]) == "complete")
    last = bench.ask("GET", "/events?limit=1")["items"][0]["position"]
    until("its last event", lambda: _positions(page)[-1] >= last)
    shown = _positions(page)
    assert shown == list(range(shown[0], shown[-1] + 1))


def test_tabs_share_one_stream_and_when_its_tab_is_closed_another_goes_on(bench: PageBench) -> None:
    visit = bench.visit()
    before = _live(visit, "/events")
    others = [visit.another_tab() for _ in range(2)]
    for tab in others:
        tab.goto(f"{bench.url}/events")
        tab.locator(".event-type").first.wait_for()
    bench.ask("POST", "/projects", json={"name": "shared", "description": ""})
    for tab in (visit.page, *others):
        expect(tab.get_by_role("cell", name="shared", exact=True)).to_have_count(1)
    assert visit.streams() == before
    visit.page.close()
    until("another stream", lambda: visit.streams() == before + 1)
    bench.ask("POST", "/projects", json={"name": "taken-over", "description": ""})
    for tab in others:
        expect(tab.get_by_role("cell", name="taken-over", exact=True)).to_have_count(1)
        shown = _positions(tab)
        assert shown == list(range(shown[0], shown[-1] + 1))
    assert visit.streams() == before + 1


def test_a_page_that_is_read_again_goes_on_where_it_was(bench: PageBench) -> None:
    visit = bench.visit()
    before = _live(visit, "/")
    bench.ask("POST", "/projects", json={"name": "seen", "description": ""})
    last = bench.ask("GET", "/events?limit=1")["items"][0]["position"]
    kept = "Number(sessionStorage.getItem('cleveragents.position'))"
    until("the event", lambda: bool(visit.page.evaluate(kept) >= last))
    visit.page.reload()
    until("another stream", lambda: visit.streams() == before + 1)
    now = bench.ask("GET", "/events?limit=1")["items"][0]["position"]
    after = int(_streams(visit)[-1].partition("after=")[2].partition("&")[0])
    assert last <= after <= now  # what a job writes when its plan is done may have come meanwhile


def test_a_page_logged_out_elsewhere_is_live_again_after_a_login(bench: PageBench) -> None:
    visit = bench.visit()
    _live(visit, "/events")
    logins = [one for one in bench.ask("GET", "/users/admin/tokens")["items"] if one["kind"] == "browser"]
    for login in logins:
        bench.ask("DELETE", f"/tokens/{login['id']}")
    token = visit.page.get_by_label("Token")
    # The stream may have said so already; then there is no such button any more.
    visit.page.get_by_role("button", name="Verify log").or_(token).click()
    token.fill(bench.token)
    visit.page.get_by_role("button", name="Log in").click()
    visit.page.locator(".event-type").first.wait_for()
    bench.ask("POST", "/projects", json={"name": "again", "description": ""})
    expect(visit.page.get_by_role("cell", name="again", exact=True)).to_have_count(1)


def test_two_browsers_see_the_same_board_while_plans_run(bench: PageBench) -> None:
    pages = [bench.visit().page, bench.visit().page]
    bench.plan(GOALS["catalogue"])
    bench.plan(GOALS["tax"])
    for goal in (GOALS["catalogue"], GOALS["tax"]):
        until(f"the end of {goal}", lambda goal=goal: _state(bench, goal) == "complete")
    for page in pages:
        review = page.get_by_role("region", name="Ready for review")
        for goal in (GOALS["catalogue"], GOALS["tax"]):
            expect(review.get_by_role("link", name=goal)).to_have_count(1)
    # Sorted by the latest change; one tab may be behind the other.
    until("the same order in both", lambda: _rows(pages[0]) == _rows(pages[1]))


def _rows(page: Page) -> list[str]:
    """The plans on the board, in its order."""
    return page.locator("a.row-link").all_inner_texts()


def _positions(page: Page) -> list[int]:
    """The numbers of the events that the page shows, the first first."""
    texts = page.locator("td[data-label='No.']").all_inner_texts()
    return [int(text) for text in reversed(texts)]


def _live(visit: Visit, path: str) -> int:
    """Opens it and waits until it is live; how often the browser has asked for a stream by then."""
    visit.go(path)
    expect(visit.page.get_by_text("Live", exact=True)).to_be_visible()
    return visit.streams()


def _streams(visit: Visit) -> list[str]:
    return [url for url in visit.asked if "/api/events/stream" in url]


def _state(bench: PageBench, goal: str) -> str:
    found = [plan for plan in bench.ask("GET", "/plans")["items"] if plan["goal"] == goal]
    return str(found[0]["state"])
