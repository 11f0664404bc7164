"""Drawings of an actor's graph: as Mermaid text, and as a tree for the terminal.

Labels contain text from actor files. It is escaped, so that it cannot end a label or control the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from cleveragents.actors.model.actor import END, Actor, Node, RouterNode

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["edges", "mermaid", "node_summary", "node_type", "tree"]

_LABEL_LIMIT = 60
_ESCAPED = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\\": "#92;"})
_BRACKETS = {
    "llm": ("([", "])"),
    "router": ("{", "}"),
    "subgraph": ("[[", "]]"),
    "human": ("[/", "/]"),
    "command": ("[/", "\\]"),
    "acp": ("[/", "\\]"),
}
_AGENTS = ("command", "acp")
_PLAIN_BRACKETS = ("[", "]")


def node_type(node: Node) -> str:
    """Return the node's type as in YAML."""
    return type(node).__name__.removesuffix("Node").lower()


def edges(actor: Actor) -> Iterator[tuple[str, str, str]]:
    """Yield the edges as source, target and condition; the condition is empty if there is none."""
    for node in actor.nodes:
        if isinstance(node, RouterNode):
            last = len(node.routes) - 1
            for number, route in enumerate(node.routes):
                yield node.name, route.to, route.when or ("otherwise" if number == last and last else "")
        else:
            for name in node.next:
                yield node.name, name, ""


def mermaid(actor: Actor) -> str:
    """Return a flowchart for Mermaid: https://mermaid.live, or a fenced block in Markdown."""
    # Numbers, because names such as `end` or `graph` have a meaning in Mermaid.
    ids = {node.name: f"n{number}" for number, node in enumerate(actor.nodes, start=1)}
    ids[END] = "stop"
    lines = ["flowchart TD", "    begin((start))"]
    for node in actor.nodes:
        left, right = _BRACKETS.get(node_type(node), _PLAIN_BRACKETS)
        what = node_summary(node_type(node), asdict(node))
        label = _quoted(node.name) + (f"<br/>{_quoted(what)}" if what else "")
        lines.append(f'    {ids[node.name]}{left}"{label}"{right}')
    lines += ["    stop((end))", f"    begin --> {ids[actor.entry]}"]
    for source, target, when in edges(actor):
        arrow = f'-- "{_quoted(when)}" -->' if when else "-->"
        lines.append(f"    {ids[source]} {arrow} {ids[target]}")
    return "\n".join(lines) + "\n"


def tree(name: str, entry: str, edges: Iterable[tuple[str, str, str]], summaries: Mapping[str, str]) -> Tree:
    """Return the graph as a tree, starting at the entry.

    A node that appears again is shown without its successors. `summaries` describes each node.
    """
    from rich.text import Text
    from rich.tree import Tree

    onward: dict[str, list[tuple[str, str]]] = {}
    for source, target, when in edges:
        onward.setdefault(source, []).append((target, when))
    shown: set[str] = set()

    def label(name: str, when: str) -> Text:
        text = Text()
        if when:
            text.append(f"{_shown(when)}: ", style="dim")
        text.append(_shown(name), style="bold")
        if name == END:
            return text
        if name in shown:
            return text.append(" (see above)", style="dim")
        what = summaries.get(name, "")
        return text.append(f"  {_shown(what)}" if what else "")

    def grow(above: Tree, name: str, when: str) -> None:
        branch = above.add(label(name, when))
        if name == END or name in shown:
            return
        shown.add(name)
        for target, condition in onward.get(name, ()):
            grow(branch, target, condition)

    root = Tree(Text(name, style="bold"))
    grow(root, entry, "")
    return root


def node_summary(kind: str, facts: Mapping[str, Any]) -> str:
    """Describe a node by its type and fields."""
    if kind == "llm":
        tools = facts["tools"]
        more = ", ".join(filter(None, [facts["model"] or "", f"{len(tools)} tools" if tools else ""]))
        return f"{kind} ({more})" if more else kind
    if kind == "router":
        return kind
    if kind == "subgraph":
        return f"{kind} {facts['actor']}"
    if kind == "human":
        return f"{kind}: {facts['question']}"
    if kind in _AGENTS:
        return f"{kind} {facts['argv'][0]}"
    return f"{kind} {facts['tool']}"


def _shown(text: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= _LABEL_LIMIT else f"{line[: _LABEL_LIMIT - 1]}…"


def _quoted(text: str) -> str:
    return _shown(text).translate(_ESCAPED)
