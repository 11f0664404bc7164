"""Code of modules with SlipCover's probes in it, kept beside what the interpreter compiled of them.

To parse a module, mark its branches and put a probe before every line took as long as all that is imported
besides, in every process that counts. Only the probes themselves belong to a process. So the code is kept
with a mark in the place of each, and who imports the module puts probes there.

A probe that was reached has nothing more to tell: the code jumps over it from then on. SlipCover would make
new code for that, and look for every function that has the old one; here a byte of the code changes.

What is kept says which source it was made of, and by which SlipCover; where that is not so any more, it is
made anew. From Python 3.12 on there are no probes in the code, and nothing is kept.
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
_FORM = 2  # of what is kept
_SIGNAL = "\0probe"
_PROBE: Any = getattr(slipcover.slipcover, "probe", None)
_NOTHING, _JUMP = dis.opmap["NOP"], dis.opmap["JUMP_FORWARD"]
_making = threading.Lock()  # to make code replaces what all of SlipCover has for a probe
_Probe = tuple[str, object, list[int]]
_Made = tuple[CodeType, list[int], list[tuple[int, int]]]


def take_what_is_ready() -> None:
    """From now on, modules that SlipCover counts are imported from what is kept."""
    if _NEEDED:
        SlipcoverLoader.exec_module = _exec_module


def make_ready(sources: Sequence[Path]) -> None:
    """Makes what is not kept yet of these: several processes that share them out do so once."""
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
    """The same code with probes of this process where the marks are."""
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
        begin = id(made) + CodeType.__basicsize__  # where its instructions are
        for addresses, offsets in own:
            addresses += [begin + offset for offset in offsets]
        return made

    return with_probes(code)


def _reached(counting: Slipcover) -> Callable[[_Probe], None]:
    """What a probe calls the first time."""

    def signal(probe: _Probe) -> None:
        name, place, addresses = probe
        counting.newly_seen[name].add(place)
        for address in addresses:
            instruction = ctypes.c_ubyte.from_address(address)
            if instruction.value == _NOTHING:  # the length of the jump is beside it already
                instruction.value = _JUMP

    return signal


def _made(source: Path) -> _Made:
    """Read, or made and kept."""
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
    with suppress(OSError):  # where nothing can be kept, each makes its own
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
    """The same code; each mark says where in it the call is."""
    constants = [_with_offsets(maker, one) if isinstance(one, CodeType) else one for one in code.co_consts]
    editor = Editor(code)
    for offset, _place in maker.code2index[code]:
        _signal, mark = editor.get_inserted_function(offset)
        told, place, *others = constants[mark]  # the end of a `finally` is there more than once
        constants[mark] = (told, place, *others, offset)
    return code.replace(co_consts=tuple(constants))
