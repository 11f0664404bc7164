"""Draws the features and their order: `python -m tools.architecture_picture`.

The order is import-linter's contract in `pyproject.toml`. The text beside a feature is the first line of its
docstring.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

__all__ = ["PICTURE", "picture"]

_ROOT = Path(__file__).parents[1]
PICTURE = _ROOT / "docs" / "explanation" / "architecture.svg"

_LEFT_OUT = ("application", "infrastructure", "langgraph")  # published import paths only
_ROW, _WIDTH, _TOP = 30, 860, 44
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933; }
  .name { font: 600 14px ui-monospace, monospace; }
  .note { fill: #52606d; font-size: 12px; }
  rect { fill: #eef2f7; stroke: #cbd2d9; }
  path { stroke: #52606d; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb; } .note { fill: #9aa5b1; }
    rect { fill: #1f2933; stroke: #3e4c59; } path { stroke: #9aa5b1; }
  }
"""


def picture() -> str:
    """Return the picture: one row a feature, each importing only from the rows below it."""
    features = [feature for feature in _features() if feature not in _LEFT_OUT]
    height = _TOP + _ROW * len(features) + 12
    bottom = height - 20
    label = "The features of CleverAgents, each importing only from those below it"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{label}</title>",
        f"<style>{_STYLE}</style>",
        '<text x="46" y="26" class="note">A feature imports only from the rows below it.</text>',
        f'<path d="M24 {_TOP} V{bottom} M17 {bottom - 9} L24 {bottom} L31 {bottom - 9}"/>',
    ]
    for number, feature in enumerate(features):
        y = _TOP + _ROW * number
        lines += [
            f'<rect x="46" y="{y}" width="{_WIDTH - 58}" height="{_ROW - 4}" rx="5"/>',
            f'<text x="58" y="{y + 18}" class="name">{feature}</text>',
            f'<text x="160" y="{y + 18}">{escape(_purpose(feature))}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _features() -> list[str]:
    """Return the features from top to bottom."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [feature.strip() for layer in contract["layers"] for feature in layer.split("|")]


def _purpose(feature: str) -> str:
    source = _ROOT / "src" / "cleveragents" / feature / "__init__.py"
    described = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return described.partition("\n")[0].partition(". ")[0].replace("`", "").rstrip(".")


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
