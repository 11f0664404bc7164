"""A cache of module code with SlipCover's probes, beside the interpreter's compiled code.

Parsing a module, marking its branches and inserting a probe before every line took as long as all other
imports, in every measured process. Only the probes themselves belong to a process. So the code is cached with
a mark in place of each probe, and an import inserts the probes.

A probe that was reached has nothing more to report: the code jumps over it from then on. SlipCover would
create new code for that, and search for every function with the old one; here one byte of the code changes.

A cache entry records its source and the version of SlipCover, and is recreated if they change. From Python
3.12 on there are no probes in the code, and nothing is cached.
"""

from __future__ import annotations

import ast
import ctypes
import dis
import marshal
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import slipcover.slipcover
from slipcover import Slipcover
from slipcover.branch import preinstrument
from slipcover.bytecode import Editor
from slipcover.importer import SlipcoverLoader
from slipcover.version import __version__

__all__ = ["make_ready", "take_what_is_ready"]

_NEEDED = sys.version_info < (3, 12)
_FORM = 2  # of the cache format
_SIGNAL = "\0probe"
_PROBE: Any = getattr(slipcover.slipcover, "probe", None)
_NOTHING, _JUMP = dis.opmap["NOP"], dis.opmap["JUMP_FORWARD"]
_making = threading.Lock()  # instrumenting replaces SlipCover's global probe factory
_Probe = tuple[str, object, list[int]]
_Made = tuple[CodeType, list[int], list[tuple[int, int]]]


def take_what_is_ready() -> None:
    """From now on, import the modules that SlipCover measures from the cache."""
    if _NEEDED:
        SlipcoverLoader.exec_module = _exec_module


def make_ready(sources: Sequence[Path]) -> None:
    """Fill the cache for these modules, so that several processes that share them do it once."""
    if _NEEDED:
        for source in sources:
            _made(source)


def _exec_module(loader: SlipcoverLoader, module: ModuleType) -> None:
    assert isinstance(loader.orig_loader, SourceFileLoader)
    counting: Slipcover = loader.sci
    code, lines, branches = _made(loader.origin)
    with counting.lock:
        counting.code_lines[code.co_filename].update(lines)
        counting.code_branches[code.co_filename].update(branches)
    exec(_with_probes(counting, code), module.__dict__)


def _with_probes(counting: Slipcover, code: CodeType) -> CodeType:
    """Return the same code with probes of this process in place of the marks."""
    signal, name = _reached(counting), code.co_filename

    def with_probes(code: CodeType) -> CodeType:
        constants: list[Any] = []
        own: list[tuple[list[int], tuple[int, ...]]] = []
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                constants.append(with_probes(constant))
            elif constant == _SIGNAL:
                constants.append(signal)
            elif type(constant) is tuple and constant[:1] == (_SIGNAL,):
                addresses: list[int] = []
                constants.append((name, constant[1], addresses))
                own.append((addresses, constant[2:]))
            else:
                constants.append(constant)
        made = code.replace(co_consts=tuple(constants))
        begin = id(made) + CodeType.__basicsize__  # the start of its instructions
        for addresses, offsets in own:
            addresses += [begin + offset for offset in offsets]
        return made

    return with_probes(code)


def _reached(counting: Slipcover) -> Callable[[_Probe], None]:
    """Report a probe the first time it is reached."""

    def signal(probe: _Probe) -> None:
        name, place, addresses = probe
        counting.newly_seen[name].add(place)
        for address in addresses:
            instruction = ctypes.c_ubyte.from_address(address)
            if instruction.value == _NOTHING:  # the length of the jump is already beside it
                instruction.value = _JUMP

    return signal


def _made(source: Path) -> _Made:
    """Return the code from the cache, or create and store it."""
    found = source.stat()
    told = [str(source), found.st_mtime_ns, found.st_size, __version__, _FORM]
    kept = Path(cache_from_source(source, optimization="probed"))
    with suppress(OSError, ValueError, EOFError, TypeError):
        was, *ready = marshal.loads(kept.read_bytes())
        if was == told:
            code, lines, branches = ready
            return code, lines, branches
    made = _make(source)
    if sys.dont_write_bytecode:
        return made
    draft = kept.with_name(f"{kept.name}.{os.getpid()}.{threading.get_ident()}")
    with suppress(OSError):  # without a writable cache, each process creates its own
        kept.parent.mkdir(exist_ok=True)
        draft.write_bytes(marshal.dumps((told, *made)))
        draft.replace(kept)
    return made


def _make(source: Path) -> _Made:
    code = compile(preinstrument(ast.parse(source.read_bytes())), str(source), "exec")
    maker = Slipcover(branch=True)
    marks = SimpleNamespace(signal=_SIGNAL, new=lambda _counting, _file, place, _threshold: (_SIGNAL, place))
    with _making:
        slipcover.slipcover.probe = marks
        try:
            marked = maker.instrument(code)
        finally:
            slipcover.slipcover.probe = _PROBE
    name = marked.co_filename
    return _with_offsets(maker, marked), sorted(maker.code_lines[name]), sorted(maker.code_branches[name])


def _with_offsets(maker: Slipcover, code: CodeType) -> CodeType:
    """Return the same code, with the offset of the call in each mark."""
    constants = [_with_offsets(maker, one) if isinstance(one, CodeType) else one for one in code.co_consts]
    editor = Editor(code)
    for offset, _place in maker.code2index[code]:
        _signal, mark = editor.get_inserted_function(offset)
        told, place, *others = constants[mark]  # the end of a `finally` occurs more than once
        constants[mark] = (told, place, *others, offset)
    return code.replace(co_consts=tuple(constants))
