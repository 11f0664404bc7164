"""The page's files: all are served, none is another's, browsers keep what never changes."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from cleveragents.server.routes.page import PAGES, page_files
from tests.server_bench import ServerBench, server_bench

STATIC = Path(str(files("cleveragents.server.web") / "static"))
VENDORED = STATIC / "vendor" / "htm-preact-standalone.module.js"
VENDORED_SHA256 = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"
_MAKES_CODE = re.compile(r"\beval\(|new Function\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write")
VISIT = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.mark.parametrize("path", [path.replace("{plan_id}", "01ABC") for path in PAGES])
def test_every_address_of_the_page_is_public(bench: ServerBench, path: str) -> None:
    answer = bench.stranger.get(path, headers=VISIT)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert 'id="app"' in answer.text


def test_a_page_that_did_not_change_is_not_sent_again(bench: ServerBench) -> None:
    first = bench.stranger.get("/")
    again = bench.stranger.get("/", headers={"If-None-Match": first.headers["etag"]})
    other = bench.stranger.get("/", headers={"If-None-Match": '"another"'})
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert other.content == first.content


def test_every_file_of_the_page_exists_and_is_cacheable(bench: ServerBench) -> None:
    named = _Named()
    named.feed(bench.stranger.get("/").text)
    assert len(named.paths) > 5
    for path in named.paths:
        answer = bench.stranger.get(path)
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]


def test_a_file_without_the_digest_in_its_address_is_asked_for_again(bench: ServerBench) -> None:
    plain = bench.stranger.get("/static/js/app.js")
    dated = bench.stranger.get(f"/static/{page_files().digest}/js/app.js")
    assert plain.content == dated.content
    assert plain.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("js/app.js", "text/javascript; charset=utf-8"),
        ("css/base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/LICENSE.htm.txt", "text/plain; charset=utf-8"),
    ],
)
def test_files_say_what_they_are(bench: ServerBench, path: str, media_type: str) -> None:
    answer = bench.stranger.get(f"/static/{path}")
    assert answer.headers["content-type"] == media_type
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../files.py",
        "/static/%2e%2e/files.py",
        "/static/..%2ffiles.py",
        "/static//etc/passwd",
        "/static/js",
        "/static/",
        "/static/0000000000000000/js/app.js",
        "/static/js/app.js%00",
    ],
)
def test_nothing_else_can_be_asked_for(bench: ServerBench, path: str) -> None:
    answer = bench.stranger.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_address_that_leads_nowhere_is_a_page_for_people_and_a_problem_for_programs(
    bench: ServerBench,
) -> None:
    person = bench.stranger.get("/nowhere/at/all", headers=VISIT)
    program = bench.stranger.get("/nowhere/at/all")
    api = bench.stranger.get("/api/nowhere", headers=VISIT)
    sent = bench.stranger.post("/nowhere/at/all", headers=VISIT)
    assert (person.status_code, 'id="app"' in person.text) == (404, True)
    for answer in (program, api, sent):
        assert answer.status_code == 404
        assert answer.json()["code"] == "not-found"


def test_vendored_files_are_unmodified_and_have_licences() -> None:
    origin = (STATIC / "vendor" / "ORIGIN.txt").read_text()
    assert sha256(VENDORED.read_bytes()).hexdigest() == VENDORED_SHA256
    assert VENDORED_SHA256 in origin
    assert "Apache License" in (STATIC / "vendor" / "LICENSE.htm.txt").read_text()
    assert "The MIT License" in (STATIC / "vendor" / "LICENSE.preact.txt").read_text()
    marked = STATIC / "vendor" / "marked.esm.js"
    assert sha256(marked.read_bytes()).hexdigest() in origin
    assert "MIT" in (STATIC / "vendor" / "LICENSE.marked.txt").read_text()
    assert {path.name for path in (STATIC / "vendor").glob("*.js")} == {VENDORED.name, marked.name}
    for script in (STATIC / "vendor" / "highlight").iterdir():
        assert f"{sha256(script.read_bytes()).hexdigest()}  {script.name}" in origin
    assert "BSD 3-Clause" in (STATIC / "vendor" / "LICENSE.highlight.txt").read_text()


def test_every_import_of_a_script_leads_to_a_file() -> None:
    for script in STATIC.glob("js/**/*.js"):
        for target in re.findall(r'^(?:import|export) .*?from "([^"]+)";', script.read_text(), re.M | re.S):
            assert target.startswith("."), f"{script.name} imports {target}"
            assert (script.parent / target).resolve().is_file(), f"{script.name} imports {target}"


def test_every_script_says_what_it_does_and_is_not_long() -> None:
    for script in STATIC.glob("js/**/*.js"):
        lines = script.read_text().splitlines()
        assert lines[0].startswith("// "), f"{script.name} says nothing"
        assert len(lines) <= 400, f"{script.name} has {len(lines)} lines"


@pytest.mark.parametrize("path", sorted(STATIC.glob("**/*.*")), ids=lambda path: path.name)
def test_no_file_of_ours_fetches_anything_from_elsewhere_or_makes_code(path: Path) -> None:
    if "vendor" in path.parts:
        return
    text = path.read_text()
    addresses = set(re.findall(r"\b(?:https?|wss?)://[^\s\"'`<>)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://git.example.org/shop.git"}
    assert not re.search(
        r"\beval\(|new Function\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
    )


_TEXTS = {
    "text": ("ground", "surface", "raised", "sunken", "hover", "accent-soft"),
    "text-soft": ("ground", "surface", "sunken", "hover"),
    "text-faint": ("ground", "surface", "sunken"),
    "accent": ("ground", "surface"),
    "on-fill": ("fill",),
    **{
        f"code-{token}": ("surface", "add-soft", "remove-soft")
        for token in ("keyword", "string", "number", "comment", "title", "type")
    },
    **{tone: (f"{tone}-soft", "surface") for tone in ("run", "need", "good", "bad", "done", "wait", "off")},
}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "grounds"), _TEXTS.items(), ids=_TEXTS.keys())
def test_every_text_can_be_read_on_its_ground(text: str, grounds: tuple[str, ...], theme: int) -> None:
    colours = _colours(theme)
    for ground in grounds:
        assert _contrast(colours[text], colours[ground]) >= 4.5, f"{text} on {ground}"


def _colours(theme: int) -> dict[str, str]:
    """The design's colours by name, in the light theme or the dark one."""
    css = (STATIC / "css" / "base.css").read_text()
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    plain = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css)
    return {name: both[theme] for name, *both in pairs} | dict(plain)


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 computes it: 21 for black on white."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_page_is_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BUILD, str(tmp_path)]
    built = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=_root(),
        check=False,
    )
    if "No module named 'hatchling'" in built.stderr:
        pytest.skip("hatchling, which builds the wheel, is not installed here")
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if "/web/static/" in name}
    assert len(shipped) == len([path for path in STATIC.glob("**/*.*") if path.is_file()])
    assert {f"cleveragents/server/web/static/{name}" for name in ("index.html", "js/app.js")} <= shipped


_BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"


def _root() -> Path:
    return Path(__file__).parents[3]


class _Named(HTMLParser):
    """The addresses of files that a document names."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href") and value is not None and value.startswith("/"):
                self.paths.append(value)
