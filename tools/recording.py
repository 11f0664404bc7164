"""Records `docs/images/run.svg`, the terminal in the README: `python -m tools.recording`.

The commands run for real, in the repository and with the scripted model of the tutorial `first-plan.md`. The
picture shows their output line by line and plays once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

__all__ = ["main"]

_ROOT = Path(__file__).parents[1]
_PICTURE = _ROOT / "docs" / "images" / "run.svg"
_TUTORIAL = _ROOT / "docs" / "tutorial" / "first-plan.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)

_COMMANDS = (
    'agents run "Add a --json flag to export.py" --model "scripted/$HOME/model.yaml"'
    ' --check "python3 check.py" --max-usd 0.50 --review',
    "agents plan diff {plan} --stat",
    "agents plan apply {plan}",
    "agents plan undo {plan}",
)
_COLUMNS, _LINE, _CHARACTER, _MARGIN = 100, 19, 8.1, 18
_SECONDS_A_LINE, _SECONDS_A_COMMAND = 0.16, 0.9
_STYLE = """
  rect { fill: #15181d; }
  text { font: 13.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d8dee9;
         white-space: pre; opacity: 0; animation: shown 0s forwards; }
  .command { fill: #a3d977; font-weight: 600; }
  .circle { fill: #3b4252; }
  @keyframes shown { to { opacity: 1; } }
  @media (prefers-reduced-motion: reduce) { text { animation-delay: 0s !important; } }
"""


def main() -> None:
    """Run the commands and draw their output."""
    lines: list[tuple[str, str, float]] = []
    moment = 0.3
    with tempfile.TemporaryDirectory() as home:
        environment = _environment(home)
        for block in _BLOCK.findall(_TUTORIAL.read_text(encoding="utf-8"))[1:3]:
            subprocess.run(["bash", "-ec", block], env=environment, check=True)
        place, plan = Path(home, "first-plan"), "PLAN"
        for command in _COMMANDS:
            command = command.format(plan=plan[-6:])
            for number, line in enumerate(_wrapped(f"$ {command}")):
                lines.append(("command", line, moment + number * 0.05))
            printed = _output(command, place, environment).replace(home, "/home/you")
            plan = next(iter(re.findall(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b", printed)), plan)
            for line in printed.splitlines():
                moment += _SECONDS_A_LINE
                lines += [("", part, moment) for part in _wrapped(line)]
            moment += _SECONDS_A_COMMAND
    _PICTURE.write_text(_drawn(lines), encoding="utf-8")


def _environment(home: str) -> dict[str, str]:
    return {
        "HOME": home,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(_COLUMNS),
        "LANG": "C.UTF-8",
    }


def _output(command: str, place: Path, environment: dict[str, str]) -> str:
    said = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, text=True, stdout=-1, stderr=subprocess.STDOUT
    )
    return said.stdout


def _wrapped(line: str) -> list[str]:
    """Return the first few parts of a line, wrapped as in a terminal."""
    parts = [line[start : start + _COLUMNS] for start in range(0, len(line), _COLUMNS)] or [""]
    return parts[:3]


def _drawn(lines: list[tuple[str, str, float]]) -> str:
    width = round(_COLUMNS * _CHARACTER + 2 * _MARGIN)
    height = len(lines) * _LINE + 2 * _MARGIN + 16
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>A goal is run, reviewed, applied and undone in a terminal</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8"/>',
        *(f'<circle class="circle" cx="{_MARGIN + 16 * n}" cy="16" r="5"/>' for n in range(3)),
    ]
    for number, (kind, line, moment) in enumerate(lines):
        y = _MARGIN + 24 + number * _LINE
        drawn.append(
            f'<text x="{_MARGIN}" y="{y}" class="{kind}" style="animation-delay: {moment:.2f}s"'
            f' xml:space="preserve">{escape(line)}</text>'
        )
    return "\n".join([*drawn, "</svg>", ""])


if __name__ == "__main__":
    main()
