"""The documentation site has every page, and its picture of the architecture is up to date."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tools.architecture_picture import PICTURE, picture
from tools.docs_site import site_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation() -> None:
    navigation = json.dumps(
        tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    )
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [page for page in pages if navigation.count(f'"{page}"') != 1] == []


def test_the_picture_follows_the_import_contract() -> None:
    drawn = PICTURE.read_text(encoding="utf-8")
    assert drawn == picture(), "run `python -m tools.architecture_picture`"
    assert drawn.index(">cli<") < drawn.index(">api<") < drawn.index(">core<")


def test_a_page_of_the_site_links_only_to_the_site() -> None:
    page = DOCS / "explanation" / "security.md"
    text = "[a test](../../tests/conftest.py), [here](../how-to/deploy.md#tls), ![picture](../../x.png)"
    assert site_page(text, page, DOCS) == "a test, [here](../how-to/deploy.md#tls), ![picture](../../x.png)"
