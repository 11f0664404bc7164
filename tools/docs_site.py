"""Builds the documentation site: `python -m tools.docs_site`, or `make docs`.

Pages may link to other files of the repository, such as tests. The site does not contain these files and
shows the text of such a link instead.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["build", "site_page"]

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(?:#[^)\s]*)?\)")


def site_page(text: str, page: Path, docs: Path) -> str:
    """Return the text of a page without its links to files outside of `docs`."""

    def linked(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        return match[0] if target.is_relative_to(docs.resolve()) else match[1]

    return _LINK.sub(linked, text)


def build(root: Path = _ROOT) -> int:
    """Build `build/site`. Warnings, such as a link to a missing page or heading, are errors."""
    docs, copy = root / "docs", root / "build" / "docs"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(docs, copy)
    for page in docs.rglob("*.md"):
        text = site_page(page.read_text(encoding="utf-8"), page, docs)
        (copy / page.relative_to(docs)).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=root, check=False)
    if built.returncode == 0:
        print("Built build/site. To read it: python -m http.server --directory build/site")
    return built.returncode


if __name__ == "__main__":
    sys.exit(build())
