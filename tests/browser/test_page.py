"""The page in a real browser: logging in, the board, new plans, context, the log, the keyboard."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Page, Route, expect

from cleveragents.demo.sample import GOALS
from tests.page_bench import PageBench, until

NOWHERE = ["/nowhere", "/plans/nowhere", "/plans/%E0%A4", "/sessions/nowhere"]
VIEWS = ["/", "/new", "/sessions", "/context", "/costs", "/events", "/jobs", "/projects", "/users", "/docs"]
CONTROLS = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton", "tab"}


def test_a_token_in_the_address_logs_in_and_is_gone_from_it(bench: PageBench) -> None:
    visit = bench.stranger()
    visit.keep_notices()
    visit.page.goto(f"{bench.url}/login#{bench.token}")
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Board")
    assert visit.page.url == f"{bench.url}/"
    assert not any(bench.token in url for url in visit.asked)
    assert visit.page.evaluate("document.cookie") == ""  # no script can read it
    other = _token_of(bench, "olaf")
    visit.page.goto(f"{bench.url}/login#{other}")  # a link does not switch the user
    expect(visit.page.get_by_text("You are already logged in as admin")).to_be_visible()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Board")
    assert visit.page.evaluate("location.href") == f"{bench.url}/"


def test_a_new_login_in_one_tab_continues_in_the_other(bench: PageBench) -> None:
    visit = bench.visit()
    page, other = visit.go("/projects"), visit.another_tab()
    other.goto(f"{bench.url}/login")
    other.get_by_label("Token").fill(bench.token)
    other.get_by_label("Token").press("Enter")
    expect(other.get_by_role("heading", level=1)).to_have_text("Board")
    page.get_by_role("button", name="Add project").click()
    page.get_by_label("Name").fill("anew")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="anew")).to_be_visible()
    other.goto(f"{bench.url}/login")
    other.get_by_label("Token").fill(_token_of(bench, "otto"))
    other.get_by_label("Token").press("Enter")
    expect(other.get_by_text("otto")).to_be_visible()
    page.get_by_role("button", name="Add project").click()
    page.get_by_label("Name").fill("as-another")
    for _ in range(2):  # a retry is not done as the other user either
        with page.expect_response(lambda answer: answer.request.method == "POST") as refused:
            page.get_by_role("button", name="Add", exact=True).click()
        assert refused.value.status == 403
        expect(page.get_by_text("is now logged in on this browser")).to_be_visible()


def test_a_wrong_token_is_refused_beside_the_field_and_the_right_one_lets_in(bench: PageBench) -> None:
    page = bench.stranger().page
    page.goto(f"{bench.url}/context")
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    field.fill("agents_sk_nothing")
    expect(page.get_by_role("main")).to_contain_text("agents user token admin")
    page.get_by_role("button", name="Log in").click()
    expect(field).to_have_accessible_description(re.compile("Invalid token"))
    field.fill(bench.token)
    field.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Context")  # where the visitor wanted to go
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"{bench.url}/login#cut")
    expect(field).to_have_accessible_description(re.compile("Invalid token"))


def test_without_plans_the_board_says_what_to_do(bench: PageBench) -> None:
    visit = bench.stranger()
    visit.page.route(re.compile(r"/api/plans(\?|$)"), _without_items)  # whatever other tests have made
    visit.page.goto(f"{bench.url}/#{bench.token}")
    page = visit.page
    expect(page.get_by_text("No plans yet")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="New plan").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("New plan")


def test_a_double_click_makes_one_plan_and_another_browser_sees_it_come_and_be_done(bench: PageBench) -> None:
    watcher = bench.visit().page
    author = bench.visit().go("/new")
    author.get_by_label("Goal", exact=True).fill(GOALS["receipt"])
    author.get_by_label("Model").fill(bench.model)
    author.get_by_label("Checks").fill("sh test.sh")
    author.get_by_role("button", name="Start plan").dblclick()
    author.wait_for_url(re.compile("/plans/"))
    plan_id = author.url.rpartition("/")[2]
    row = watcher.get_by_role("listitem").filter(has_text=GOALS["receipt"])
    expect(row).to_have_count(1)
    group = watcher.get_by_role("region", name=re.compile("Ready for review"))
    expect(group.get_by_role("link", name=GOALS["receipt"])).to_be_visible()
    made = [plan for plan in bench.ask("GET", "/plans")["items"] if plan["goal"] == GOALS["receipt"]]
    assert [plan["id"] for plan in made] == [plan_id]
    assert (made[0]["phase"], made[0]["state"]) == ("execute", "complete")


def test_missing_and_refused_fields_show_their_error(bench: PageBench) -> None:
    page = bench.visit().go("/new")
    page.get_by_role("button", name="Start plan").click()
    expect(page.get_by_label("Goal", exact=True)).to_have_accessible_description(re.compile("Enter a goal"))
    page.get_by_label("Goal", exact=True).fill("x")
    page.get_by_label("Steps").fill("0")
    page.get_by_role("button", name="Start plan").click()
    expect(page.get_by_label("Steps")).to_have_accessible_description(
        re.compile("greater than or equal to 1")
    )
    page.get_by_label("Steps").fill("")
    page.get_by_label("Model").fill("nobody/knows")
    page.get_by_role("button", name="Start plan").click()
    expect(page.get_by_label("Model")).to_have_accessible_description(re.compile("no provider 'nobody'"))
    expect(page.get_by_label("Model")).to_be_focused()
    page.get_by_label("Model").fill("")
    page.get_by_role("button", name="Start plan").click()
    expect(page.get_by_label("Model")).to_have_accessible_description(re.compile("Choose a model"))
    # An error without a visible field is shown above the form.
    page.get_by_label("Action").select_option("builtin/command")
    page.get_by_label("Command", exact=True).fill("true")
    page.get_by_label("Dollars").fill("1")
    page.get_by_role("button", name="Start plan").click()
    expect(page.get_by_role("alert").filter(has_text="limits need an actor")).to_be_visible()


def test_a_command_is_typed_as_in_a_shell_and_is_not_sent_before_its_quotes_are_closed(
    bench: PageBench,
) -> None:
    page = bench.visit().go("/new")
    page.get_by_label("Action").select_option("builtin/command")
    command = page.get_by_label("Command", exact=True)
    command.fill("sh -c 'echo teal")
    page.get_by_role("button", name="Start plan").click()
    expect(command).to_have_accessible_description(re.compile("Missing closing quote"))
    command.fill("sh -c 'echo teal >> colours.txt'")
    words = page.get_by_role("list", name="Arguments").get_by_role("listitem")
    expect(words).to_have_text(["sh", "-c", "echo teal >> colours.txt"])
    page.get_by_label("One argument per line").check()
    expect(command).to_have_value("sh\n-c\necho teal >> colours.txt")
    page.get_by_role("button", name="Start plan").click()
    page.wait_for_url(re.compile("/plans/"))
    made = bench.ask("GET", f"/plans/{page.url.rpartition('/')[2]}")
    assert made["action"] == "builtin/command"
    assert made["request"]["arguments"]["argv"] == ["sh", "-c", "echo teal >> colours.txt"]


def test_the_context_explorer_shows_fragments_and_who_found_them(bench: PageBench) -> None:
    page = bench.visit().go("/context")
    page.get_by_label("Repository").select_option("paint-shop")
    page.get_by_label("Question").fill("What does a receipt print?")
    page.get_by_role("button", name="Search").click()
    fragments = page.get_by_role("region", name="Fragments")
    expect(fragments.get_by_text("prices.sh", exact=True)).to_be_visible()
    expect(page.get_by_role("complementary").get_by_text("keyword", exact=True)).to_be_visible()
    expect(fragments).to_contain_text(re.compile(r"of 8,000 tokens"))


def test_the_log_grows_by_itself_can_be_held_filtered_and_verified(bench: PageBench) -> None:
    page = bench.visit().go("/events")
    bench.ask("POST", "/projects", json={"name": "first", "description": ""})
    expect(page.get_by_role("cell", name="first", exact=True)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    bench.ask("POST", "/projects", json={"name": "second", "description": ""})
    bench.ask("POST", "/projects", json={"name": "third", "description": ""})
    expect(page.get_by_role("cell", name="second", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("cell", name="third", exact=True)).to_have_count(1)
    expect(page.get_by_role("cell", name="second", exact=True)).to_have_count(1)
    page.get_by_label("Event type").fill("project.added")
    page.get_by_label("Event type").press("Enter")
    page.wait_for_url("**/events?type=project.added")
    expect(page.locator(".event-type").filter(has_not_text="project.added")).to_have_count(0)
    expect(page.locator(".event-type").first).to_have_text("project.added")
    page.get_by_role("button", name="Verify log").click()
    expect(page.get_by_text(re.compile(r"\d+ events verified"))).to_be_visible()


def test_waiting_plans_are_on_the_board_beside_many_undecided_ones(bench: PageBench) -> None:
    plan = bench.plan(GOALS["receipt"])
    row = next(one for one in bench.ask("GET", "/plans")["items"] if one["id"] == plan)

    def answer(route: Route) -> None:
        if "state=waiting" in route.request.url:
            # Not the real one's id: what that does meanwhile is read for itself.
            items = [row | {"id": "0" * 26, "state": "waiting", "goal": "an old question"}]
            route.fulfill(json={"items": items, "next": None})
        elif "state=complete" in route.request.url:
            after = route.request.url.partition("after=")[2]
            ids = [f"{after or 1}{number:03}" for number in range(200)]
            route.fulfill(json={"items": [row | {"id": one} for one in ids], "next": ids[-1]})
        else:
            route.fulfill(json={"items": [], "next": None})

    visit = bench.stranger()
    visit.page.route(re.compile(r"/api/plans\?"), answer)
    visit.page.goto(f"{bench.url}/#{bench.token}")
    expect(visit.page.get_by_role("link", name="an old question")).to_be_visible()
    expect(visit.page.get_by_text("newest 600 plans")).to_be_visible()


def test_running_workers_are_listed_beside_many_gone_ones(bench: PageBench) -> None:
    visit = bench.visit()

    def answer(route: Route) -> None:
        first = "after=" not in route.request.url
        one = bench.ask("GET", "/workers")["items"][0]
        gone = [one | {"id": f"{number:026}", "name": "left", "state": "gone"} for number in range(200)]
        here = [one | {"id": "Z" * 26, "name": "still-here", "state": "idle"}]
        route.fulfill(json={"items": gone if first else here, "next": "0" * 26 if first else None})

    visit.page.route(re.compile(r"/api/workers(\?|$)"), answer)
    rows = visit.go("/jobs").get_by_role("table", name="Workers").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("still-here")
    expect(rows).to_have_count(22)


def test_projects_and_repositories_are_added_on_the_page(bench: PageBench) -> None:
    """A newcomer's report: a name that is refused was answered with a regular expression."""
    page = bench.visit().go("/projects")
    page.get_by_role("button", name="Add project").click()
    dialog = page.get_by_role("dialog", name="Add project")
    dialog.get_by_label("Name").fill("My Shop")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_label("Name")).to_have_accessible_description(re.compile("starting with a letter"))
    dialog.get_by_label("Name").fill("shop")
    dialog.get_by_label("Max parallel").fill("2")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("region", name="Project shop", exact=True)).to_contain_text("max parallel: 2")
    for name, place in (("here", None), ("far", "ssh://git@git.example/shop.git")):
        page.get_by_role("button", name="Add repository").click()
        dialog = page.get_by_role("dialog", name="Add repository")
        dialog.get_by_label("Name").fill("paint-shop")
        dialog.get_by_label("Project").select_option("shop")
        if place is not None:
            dialog.get_by_text("Git remote").click()
            dialog.get_by_label("Branch").fill("trunk")
        dialog.get_by_label("Directory" if place is None else "Address").fill(place or str(bench.sample.root))
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.get_by_label("Name")).to_have_accessible_description(re.compile("already"))
        dialog.get_by_label("Name").fill(name)
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("button", name=f"Remove {name}")).to_be_visible()
    made = {one["name"]: one for one in bench.ask("GET", "/resources?project=shop")["items"]}
    assert made["here"]["location"] == str(bench.sample.root)
    assert (made["far"]["kind"], made["far"]["branch"]) == ("remote", "trunk")


def test_members_of_a_project_are_managed_on_the_page(bench: PageBench) -> None:
    bench.ask("POST", "/projects", json={"name": "guild", "description": ""})
    bench.ask("POST", "/users", json={"name": "mia", "role": "viewer"})
    page = bench.visit().go("/projects")
    page.get_by_role("button", name="Members of guild").click()
    dialog = page.get_by_role("dialog", name="Members of guild")
    dialog.get_by_label("User", exact=True).fill("nobody")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("nobody")
    dialog.get_by_label("User", exact=True).fill("mia")
    dialog.get_by_role("button", name="Add", exact=True).click()
    role = dialog.get_by_label("Role of mia")
    expect(role).to_have_value("viewer")
    role.select_option("operator")
    until("the role of mia", lambda: _members(bench).get("mia") == "operator")
    dialog.get_by_role("button", name="Remove mia").click()
    page.get_by_role("dialog", name="Remove mia from guild?").get_by_role("button", name="Remove").click()
    expect(role).to_have_count(0)
    assert "mia" not in _members(bench)


def test_the_page_shows_what_a_repository_would_run_before_it_is_trusted(bench: PageBench) -> None:
    servers = {
        "far": {"url": "https://tracker.example/${PLACE}", "headers": {"X-Token": "${OPENAI_API_KEY}"}},
        "near": {"command": "serve", "args": ["<b>${WORD}</b>"], "env": {"KEY": "${INNER}"}, "cwd": "sub"},
    }
    file = bench.sample.root / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    try:
        page = bench.visit().go("/projects")
        page.get_by_role("button", name="Review config of paint-shop").click()
        dialog = page.get_by_role("dialog", name="Config of paint-shop")
        shown = dialog.get_by_role("region", name=".mcp.json", exact=True)
        expect(shown).to_contain_text("not trusted")
        for told in ("OPENAI_API_KEY", "X-Token", "PLACE", "WORD", "INNER", "KEY", "sub", "<b>"):
            expect(shown).to_contain_text(told)
        expect(dialog).to_contain_text("agents trust --resource paint-shop")
    finally:
        file.unlink()


def _members(bench: PageBench) -> dict[str, str]:
    return {one["name"]: one["role"] for one in bench.ask("GET", "/projects/guild/members")["items"]}


def test_a_refused_question_takes_the_old_answer_away(bench: PageBench) -> None:
    page = bench.visit().go("/context")
    page.get_by_label("Repository").select_option("paint-shop")
    page.get_by_label("Question").fill("What does a receipt print?")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("region", name="Fragments")).to_be_visible()
    page.get_by_label("Max tokens").fill("99999999999")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("region", name="Fragments")).to_have_count(0)


def test_the_keyboard_is_enough(bench: PageBench) -> None:
    begun = [bench.plan(GOALS[goal]) for goal in ("welcome", "tax")]
    # The row of a plan that runs is made anew when it comes to another group, and the focus is lost with it.
    for plan in begun:
        until("its end", lambda plan=plan: bench.ask("GET", f"/plans/{plan}")["state"] == "complete")
    page = bench.visit().page
    review = page.get_by_role("region", name="Ready for review")
    expect(review.get_by_role("link", name=GOALS["tax"])).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Search plans")).to_be_focused()
    page.keyboard.type("tax")
    expect(page.locator("a.row-link")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=GOALS["tax"])).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/plans/"))
    for keys, heading in (("gc", "Context"), ("ge", "Audit log"), ("gn", "New plan"), ("gb", "Board")):
        until(heading, lambda keys=keys, heading=heading: leads_to(page, keys, heading))


def leads_to(page: Page, keys: str, heading: str) -> bool:
    """Whether they do. On a busy machine, the second may come so late that the two are no pair."""
    title = page.get_by_role("heading", level=1).first
    title.focus()
    page.keyboard.type(keys)
    try:
        expect(title).to_have_text(heading, timeout=10_000)
    except AssertionError:
        return False
    return True


def test_the_first_stop_of_the_keyboard_leads_to_the_content(bench: PageBench) -> None:
    page = bench.visit().go("/jobs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_every_control_has_a_name_and_every_view_a_heading_and_landmarks(bench: PageBench) -> None:
    visit = bench.visit()
    for path in (*VIEWS, *NOWHERE):
        page = visit.go(path)
        expect(page.locator(".loading")).to_have_count(0)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("main")).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages")).to_have_count(1)
        found = _controls(page)
        assert len(found) > 8, path
        assert [node for node in found if not node[1].strip()] == [], path


def test_on_a_narrow_screen_nothing_is_cut_off_and_the_menu_opens(bench: PageBench) -> None:
    visit = bench.visit(viewport={"width": 360, "height": 740})
    for path in (*VIEWS, *NOWHERE):
        page = visit.go(path)
        expect(page.locator(".loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    page = visit.go("/")
    expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")


def test_the_theme_is_the_systems_until_it_is_chosen(bench: PageBench) -> None:
    page = bench.visit(color_scheme="dark").page
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Change theme (auto)").click()
    # Computed styles change with the next frame, not with the click.
    expect(page.locator("html")).not_to_have_css("background-color", dark)
    light = page.evaluate(ground)
    page.reload()
    page.get_by_role("button", name="Change theme (light)").wait_for()
    assert page.evaluate(ground) == light


def test_a_viewer_is_offered_nothing_that_would_be_refused(bench: PageBench) -> None:
    bench.ask("POST", "/users", json={"name": "vera", "role": "viewer"})
    token = bench.ask("POST", "/users/vera/tokens", json={"label": "test"})["token"]
    page = bench.visit(token=token).page
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    expect(page.get_by_role("link", name="New plan")).to_have_count(0)
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    for path in ("/new", "/context", "/users"):
        page.goto(f"{bench.url}{path}")
        expect(page.get_by_role("main").get_by_text(re.compile("^(Operators|Admins) only$"))).to_be_visible()
        expect(page.get_by_role("main").get_by_role("textbox")).to_have_count(0)


def test_users_and_tokens_are_added_and_removed_on_the_page(bench: PageBench) -> None:
    visit = bench.visit()
    visit.keep_notices()
    page = visit.go("/users")
    page.get_by_role("button", name="Add user").click()
    dialog = page.get_by_role("dialog", name="Add user")
    dialog.get_by_label("Name").fill("Olga K")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_label("Name")).to_have_accessible_description(re.compile("is not a valid user"))
    dialog.get_by_label("Name").fill("olga")
    dialog.get_by_role("button", name="Add", exact=True).click()
    role = page.get_by_label("Role of olga")
    expect(role).to_have_value("viewer")
    role.select_option("operator")
    expect(page.get_by_text("olga is now operator")).to_be_visible()
    assert bench.ask("GET", "/users/olga")["role"] == "operator"
    page.get_by_role("button", name="Tokens of olga").click()
    dialog = page.get_by_role("dialog", name="Tokens of olga")
    dialog.get_by_role("button", name="Create token").click()
    token = dialog.locator(".secret code").inner_text()
    other = bench.visit(token=token).page
    expect(other.get_by_text("olga")).to_be_visible()
    dialog.get_by_role("row").filter(has_text="program").get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Remove olga").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("button", name="Remove olga")).to_have_count(0)
    other.reload()
    expect(other.get_by_label("Token")).to_be_visible()  # with the user, the browser's cookie went


def _token_of(bench: PageBench, name: str) -> str:
    """A token of an operator of that name, who is added."""
    bench.ask("POST", "/users", json={"name": name, "role": "operator"})
    return str(bench.ask("POST", f"/users/{name}/tokens", json={"label": "test"})["token"])


def _without_items(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "items": []})


def _controls(page: Page) -> list[tuple[str, str]]:
    """Return role and name of every control, as a screen reader gets them."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node.get("ignored")]
    pairs = [
        (node["role"]["value"], str(node.get("name", {}).get("value", "")))
        for node in shown
        if "role" in node
    ]
    return [pair for pair in pairs if pair[0] in CONTROLS]


def test_a_revoked_token_shows_the_logout_notice(bench: PageBench) -> None:
    token = bench.ask("POST", "/users/admin/tokens", json={"label": "lent"})
    page = bench.visit(token=token["token"]).page
    page.locator("main h1").wait_for()
    bench.ask("DELETE", f"/tokens/{token['id']}")
    # The stream may have said so already; then there is no such link any more.
    page.get_by_role("link", name="Projects").or_(page.get_by_label("Token")).click()
    expect(page.get_by_role("status").filter(has_text="You were logged out")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
