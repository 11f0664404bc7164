"""Joins modules into one: one docstring, one list of imports, one `__all__`, and all definitions.

The definitions of the first module come first, then those of the others, except that anything needed while
the module is imported (a base class, a decorator, a default, a table) comes before its use.

If two modules define a private name differently, the name is prefixed with that of its module. Any other
change of meaning is refused.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tools.scopes import Needs, Use, bound_at_top, global_uses, is_type_checking, local_names, needs

__all__ = ["Joined", "Origin", "Part", "Refused", "joined"]

Origin = tuple[str, str]
"""A module and a name in it; the name is empty if the module itself is meant."""

_FUTURE = "from __future__ import annotations"
_BUILTINS = frozenset(dir(builtins))


class Refused(Exception):
    """The modules cannot be joined automatically; the message says why."""


@dataclass(frozen=True)
class Part:
    """A module to be joined, and the origins of its imported names."""

    name: str
    text: str
    origin: Callable[[str, str], Origin]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Joined:
    """The text of the joined module, and the new names of definitions."""

    text: str
    renamed: Mapping[Origin, str]


@dataclass
class _Item:
    """One statement (or several that define one name), with the comments above and the docstring below."""

    part: str
    number: int
    text: str
    nodes: list[ast.stmt]
    leading: bool
    names: set[str] = field(default_factory=set)

    def read(self) -> Needs:
        return needs(self.nodes)


@dataclass
class _Read:
    """A parsed part."""

    part: Part
    tree: ast.Module
    defined: dict[str, str]
    imported: dict[str, Origin]


def joined(parts: Sequence[Part]) -> Joined:
    """Join the modules into one, which takes the place of the first."""
    read = [_read(part) for part in parts]
    names = {part.name for part in parts}
    final, dropped, aliases = _final_names(read, names)
    texts = [_renamed(one, names, final, aliases[one.part.name]) for one in read]
    pieces = [_pieces(one.part, text, dropped) for one, text in zip(read, texts, strict=True)]
    changed = {origin: name for origin, name in final.items() if origin[1] != name}
    return Joined(_assembled(pieces), changed)


def _read(part: Part) -> _Read:
    tree = ast.parse(part.text)
    imported: dict[str, Origin] = {}
    defined: dict[str, str] = {}
    for node in tree.body:
        inside = node.body if is_type_checking(node) and isinstance(node, ast.If) else [node]
        for one in inside:
            if isinstance(one, ast.Import | ast.ImportFrom):
                imported |= _imported(part, one)
            elif not (isinstance(one, ast.Assign) and _is_all(one)):
                for name in bound_at_top(one) - {"_"}:
                    text = ast.get_source_segment(part.text, one) or ""
                    defined[name] = defined.get(name, "") + text
    imported.pop("annotations", None)
    return _Read(part, tree, defined, imported)


def _imported(part: Part, node: ast.Import | ast.ImportFrom) -> dict[str, Origin]:
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: (
                alias.name if alias.asname else alias.name.split(".")[0],
                "",
            )
            for alias in node.names
        }
    if node.level:
        raise Refused(f"{part.name} has relative imports")
    return {alias.asname or alias.name: part.origin(node.module or "", alias.name) for alias in node.names}


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )


def _final_names(
    read: list[_Read], parts: set[str]
) -> tuple[dict[Origin, str], set[Origin], dict[str, dict[str, str]]]:
    """Return the final name of each definition, duplicate definitions, and names that imports take."""
    final: dict[Origin, str] = {}
    dropped: set[Origin] = set()
    taken: dict[str, Origin] = {}
    by_name = {one.part.name: one for one in read}
    for one in read:
        for name in one.defined:
            origin = (one.part.name, name)
            earlier = taken.get(name)
            if earlier is None:
                final[origin] = name
                taken[name] = origin
            elif _same(by_name[earlier[0]], one, name):
                dropped.add(origin)
                final[origin] = name
            else:
                new = _prefixed(one.part.stem, name)
                if not name.startswith("_") or new in taken:
                    raise Refused(f"{earlier[0]} and {one.part.name} define {name}")
                final[origin] = new
                taken[new] = origin
    aliases = {one.part.name: _import_names(one, parts, taken) for one in read}
    for one in read:
        _ensure_builtins(one, taken)
    return final, dropped, aliases


def _same(one: _Read, other: _Read, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether both define it with the same text and the same meaning."""
    if one.defined[name] != other.defined[name]:
        return False
    seen |= {name}
    used = {use.node.id for use in global_uses(ast.parse(one.defined[name]))} - seen
    return all(
        _meaning(one, word) == _meaning(other, word)
        or (word in one.defined and word in other.defined and _same(one, other, word, seen))
        for word in used
    )


def _meaning(one: _Read, name: str) -> Origin:
    if name in one.imported:
        return one.imported[name]
    return (one.part.name, name) if name in one.defined else ("", name)


def _prefixed(stem: str, name: str) -> str:
    bare = name.lstrip("_")
    if bare.isupper():
        return f"_{stem.upper()}_{bare}"
    if bare[:1].isupper():
        return "_" + "".join(word.capitalize() for word in stem.split("_")) + bare
    return f"_{stem}_{bare}"


def _import_names(one: _Read, parts: set[str], taken: dict[str, Origin]) -> dict[str, str]:
    """Return new names for imports whose names mean something else in the joined module."""
    renamed: dict[str, str] = {}
    for name, origin in one.imported.items():
        if origin[0] in parts:
            continue
        earlier = taken.setdefault(name, origin)
        if earlier == origin:
            continue
        new = f"{origin[0].rpartition('.')[2]}_{origin[1]}" if origin[1] else f"{name}_module"
        if taken.setdefault(new, origin) != origin or new in local_names(one.tree):
            raise Refused(f"{one.part.name} uses {name} for {origin}, but {earlier} has the same name")
        renamed[name] = new
    return renamed


def _ensure_builtins(one: _Read, taken: Mapping[str, Origin]) -> None:
    own = set(one.defined) | set(one.imported)
    for use in global_uses(one.tree):
        name = use.node.id
        if name in _BUILTINS and name in taken and name not in own:
            raise Refused(f"{one.part.name} uses the builtin {name}, but {taken[name]} has the same name")


class _Edits:
    """Replacements in a text, by the positions of `ast`."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.made: set[tuple[int, int, str]] = set()

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        end = self.at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        self.made.add((self.at(node.lineno, node.col_offset), end, new))

    def remove_lines(self, node: ast.stmt) -> None:
        self.made.add((self.starts[node.lineno - 1], self.starts[node.end_lineno or node.lineno], ""))

    def replace_word(self, node: ast.stmt, old: str, new: str) -> None:
        """Replace the first occurrence of a word in the statement, after its decorators."""
        begin, end = self.starts[node.lineno - 1], self.starts[node.end_lineno or node.lineno]
        found = re.search(rf"\b{re.escape(old)}\b".encode(), self.data[begin:end])
        if found is None:
            raise Refused(f"line {node.lineno} does not name {old}")
        self.made.add((begin + found.start(), begin + found.end(), new))

    def text(self) -> str:
        data = self.data
        for begin, end, new in sorted(self.made, reverse=True):
            data = data[:begin] + new.encode() + data[end:]
        return data.decode()


def _renamed(one: _Read, parts: set[str], final: Mapping[Origin, str], aliases: Mapping[str, str]) -> str:
    """Return the text of a part with the new names, and without imports of the other parts."""
    edits = _Edits(one.part.text)
    names = dict(aliases)
    for name in one.defined:
        names[name] = final[one.part.name, name]
    ours = {name: origin for name, origin in one.imported.items() if origin[0] in parts}
    names |= {name: _final(final, origin) for name, origin in ours.items() if origin[1]}
    modules = {name: origin[0] for name, origin in ours.items() if not origin[1]}
    _drop_imports(one, parts, final, edits)
    names = {name: new for name, new in names.items() if name != new}
    _rename_uses(one, names, modules, final, edits)
    for node in one.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            edits.replace_word(node, node.name, names[node.name])
    for inner in [inner for inner in ast.walk(one.tree) if isinstance(inner, ast.Global)]:
        for name in set(inner.names) & set(names):
            edits.replace_word(inner, name, names[name])
    for statement in _top_imports(one.tree):
        _rename_import(statement, aliases, edits)
    return edits.text()


def _rename_uses(
    one: _Read,
    names: Mapping[str, str],
    modules: Mapping[str, str],
    final: Mapping[Origin, str],
    edits: _Edits,
) -> None:
    for use in global_uses(one.tree):
        name = use.node.id
        if name in modules:
            if not isinstance(use.parent, ast.Attribute):
                raise Refused(f"{one.part.name} uses a module as a value (line {use.node.lineno})")
            _replace(one, use, use.parent, _final(final, (modules[name], use.parent.attr)), edits)
        elif name in names:
            _replace(one, use, use.node, names[name], edits)


def _replace(one: _Read, use: Use, node: ast.expr, new: str, edits: _Edits) -> None:
    if new in use.around:
        raise Refused(f"{one.part.name} has a local {new} where it uses {use.node.id}")
    edits.replace(node, new)


def _final(final: Mapping[Origin, str], origin: Origin) -> str:
    if origin not in final:
        raise Refused(f"{origin[0]} does not define {origin[1]}")
    return final[origin]


def _top_imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    inside = [
        one for node in tree.body if is_type_checking(node) and isinstance(node, ast.If) for one in node.body
    ]
    return [node for node in [*tree.body, *inside] if isinstance(node, ast.Import | ast.ImportFrom)]


def _rename_import(node: ast.Import | ast.ImportFrom, aliases: Mapping[str, str], edits: _Edits) -> None:
    for alias in node.names:
        name = alias.asname or alias.name
        if name in aliases:
            begin = edits.at(alias.lineno, alias.col_offset)
            end = edits.at(alias.end_lineno or alias.lineno, alias.end_col_offset or 0)
            edits.made.add((begin, end, f"{alias.name} as {aliases[name]}"))


def _drop_imports(one: _Read, parts: set[str], final: Mapping[Origin, str], edits: _Edits) -> None:
    """Remove imports of the parts, wherever they are."""
    of_top = _top_imports(one.tree)
    for block in _blocks(one.tree):
        emptied = 0
        for node in block:
            if isinstance(node, ast.Import) and any(alias.name in parts for alias in node.names):
                raise Refused(f"{one.part.name} imports a part by its whole name (line {node.lineno})")
            if not isinstance(node, ast.ImportFrom):
                continue
            origins = {alias: one.part.origin(node.module or "", alias.name) for alias in node.names}
            left = [alias for alias in node.names if origins[alias][0] not in parts]
            if len(left) == len(node.names):
                continue
            if node not in of_top:
                _ensure_plain(one, origins, parts, final)
            emptied += not left
            needs_rest = emptied == len(block) and block is not one.tree.body
            _take_out(node, left, edits, "pass" if needs_rest else "")


def _ensure_plain(
    one: _Read, origins: Mapping[ast.alias, Origin], parts: set[str], final: Mapping[Origin, str]
) -> None:
    """Raise `Refused` if an import inside a function cannot be dropped because it renames its target."""
    for alias, origin in origins.items():
        name = alias.asname or alias.name
        if origin[0] in parts and (not origin[1] or _final(final, origin) != name):
            raise Refused(f"{one.part.name} imports {origin} as {name} inside a function")


def _take_out(node: ast.ImportFrom, left: list[ast.alias], edits: _Edits, rest: str) -> None:
    if left:
        told = ", ".join(one.name + (f" as {one.asname}" if one.asname else "") for one in left)
        edits.replace(node, f"from {node.module} import {told}")
    elif rest:
        edits.replace(node, rest)
    else:
        edits.remove_lines(node)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


@dataclass
class _Pieces:
    docstring: str
    imports: list[str]
    for_types: list[str]
    public: list[str]
    items: list[_Item]


def _pieces(part: Part, text: str, dropped: set[Origin]) -> _Pieces:
    tree = ast.parse(text)
    lines = text.splitlines()
    pieces = _Pieces(ast.get_docstring(tree, clean=False) or "", [], [], [], [])
    end, leading = 0, True
    for number, node in enumerate(tree.body):
        begin, end = end, node.end_lineno or node.lineno
        segment = "\n".join(lines[begin:end]).strip("\n")
        if number == 0 and pieces.docstring:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            if segment.strip() != _FUTURE:
                pieces.imports.append(segment)
        elif is_type_checking(node) and isinstance(node, ast.If):
            pieces.for_types += _inner_imports(node, lines)
        elif isinstance(node, ast.Assign) and _is_all(node):
            pieces.public = list(ast.literal_eval(node.value))
        elif isinstance(node, ast.If) and "__name__" in _names_in(node.test):
            raise Refused(f"{part.name} is a program")
        else:
            leading = leading and isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr)
            _add(pieces.items, _Item(part.name, number, segment, [node], leading, bound_at_top(node) - {"_"}))
    rest = "\n".join(lines[end:]).strip("\n")
    if rest and pieces.items:
        pieces.items[-1].text += f"\n\n{rest}"
    pieces.items = [item for item in pieces.items if not _is_dropped(item, dropped)]
    return pieces


def _names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _inner_imports(node: ast.If, lines: list[str]) -> list[str]:
    found, end = [], node.lineno
    for inner in node.body:
        begin, end = end, inner.end_lineno or inner.lineno
        block = "\n".join(lines[begin:end]).strip("\n")
        found.append("\n".join(line[4:] if line.startswith("    ") else line for line in block.split("\n")))
    return [one for one in found if one.strip() != "pass"]


def _add(items: list[_Item], item: _Item) -> None:
    """Add a statement. A docstring belongs to the assignment above it, and overloads belong together."""
    node = item.nodes[0]
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if items and (is_text or (item.names and item.names <= items[-1].names)):
        glue = "\n" if is_text else "\n\n\n"
        items[-1].text += f"{glue}{item.text}"
        items[-1].nodes += item.nodes
    else:
        items.append(item)


def _is_dropped(item: _Item, dropped: set[Origin]) -> bool:
    gone = {(item.part, name) in dropped for name in item.names}
    if len(gone) > 1:
        raise Refused(f"{item.part} defines some of {sorted(item.names)} as another part does")
    return gone == {True}


def _assembled(pieces: list[_Pieces]) -> str:
    told = [pieces[0].docstring.strip()]
    told += [one.docstring.strip() for one in pieces[1:] if one.docstring.strip() not in told[0]]
    docstring = "\n\n".join(told)
    imports = list(dict.fromkeys(line for one in pieces for line in one.imports))
    at_runtime = _lines_of_names(imports)
    for_types = [
        line
        for line in dict.fromkeys(line for one in pieces for line in one.for_types)
        if not _lines_of_names([line]) <= at_runtime
    ]
    public = sorted({name for one in pieces for name in one.public})
    blocks = [f'"""{docstring}' + ('\n"""' if "\n" in docstring else '"""'), _FUTURE, "\n".join(imports)]
    if for_types:
        indented = "\n".join(f"    {line}" if line else "" for one in for_types for line in one.split("\n"))
        blocks.append(f"if TYPE_CHECKING:\n{indented}")
    blocks.append(f"__all__ = [{', '.join(repr(name) for name in public)}]".replace("'", '"'))
    return "\n\n".join(block for block in blocks if block) + "\n" + _body(_ordered(pieces)) + "\n"


def _lines_of_names(statements: list[str]) -> set[tuple[str, str, str]]:
    found = set()
    for node in ast.parse("\n".join(statements)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            found |= {(module, alias.name, alias.asname or alias.name) for alias in node.names}
    return found


def _body(items: list[_Item]) -> str:
    text = ""
    last: _Item | None = None
    for item in items:
        close = last is not None and last.part == item.part and item.number == last.number + len(last.nodes)
        plain = (
            all(isinstance(one, ast.Assign | ast.AnnAssign) for one in item.nodes) and "\n\n" not in item.text
        )
        text += ("\n" if close and plain else "\n\n") + item.text
        last = item
    return text


def _ordered(pieces: list[_Pieces]) -> list[_Item]:
    """Sort: constants first, then the order of each part; but nothing before what it needs."""
    items = [item for one in pieces for item in one.items]
    wanted = [item for item in items if item.leading] + [item for item in items if not item.leading]
    owners: dict[str, list[int]] = {}
    for place, item in enumerate(wanted):
        for name in item.names:
            owners.setdefault(name, []).append(place)
    reads = [item.read() for item in wanted]
    hard = [_owned(owners, read.at_once) - {place} for place, read in enumerate(reads)]
    soft = [
        _owned(owners, read.annotated) | _reachable(owners, reads, read.called)
        for place, read in enumerate(reads)
    ]
    for places in owners.values():
        for earlier, later in pairwise(places):
            hard[later].add(earlier)
    for place, item in enumerate(wanted):
        if not item.names:
            soft[place] |= {
                other
                for other, one in enumerate(wanted)
                if one.part == item.part and one.number < item.number
            }
    order = _depth_first(len(wanted), [one | two for one, two in zip(hard, soft, strict=True)])
    if not _holds(order, hard):
        order = _depth_first(len(wanted), hard)
    if not _holds(order, hard):
        raise Refused("the definitions needed at import form a cycle")
    return [wanted[place] for place in order]


def _owned(owners: Mapping[str, list[int]], names: frozenset[str]) -> set[int]:
    return {place for name in names for place in owners.get(name, ())}


def _reachable(owners: Mapping[str, list[int]], reads: list[Needs], names: frozenset[str]) -> set[int]:
    """Return everything that may run when these are called."""
    found: set[int] = set()
    waiting = _owned(owners, names)
    while waiting:
        place = waiting.pop()
        found.add(place)
        waiting |= _owned(owners, reads[place].ever) - found
    return found


def _depth_first(count: int, before: list[set[int]]) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()

    def visit(place: int) -> None:
        if place in seen:
            return
        seen.add(place)
        for other in sorted(before[place]):
            visit(other)
        order.append(place)

    for place in range(count):
        visit(place)
    return order


def _holds(order: list[int], before: list[set[int]]) -> bool:
    at = {place: number for number, place in enumerate(order)}
    return all(
        at[other] < at[place] for place in range(len(order)) for other in before[place] if other != place
    )
