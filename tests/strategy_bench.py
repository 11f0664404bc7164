"""A small made-up repository in several languages, and queries of strategies on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cleveragents.context.code_index import CodePlace
from cleveragents.context.context_parts import CommitHistory, MakeStrategy, StrategyGround
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.decision import Decision
from cleveragents.testing.code_index import FakeCommitHistory, MemorySnapshot

__all__ = ["FILES", "Always", "Never", "ask", "ground_of", "paths_by", "retrieved"]

FILES: Mapping[str, str] = {
    "README.md": "# Kite\n\nKite flies requests over a wire.\n",
    "AGENTS.md": "Run the tests with `make test`.\n",
    "docs/usage.md": "# Retries\n\nA retry waits for the backoff of the policy before it flies again.\n",
    "src/kite/__init__.py": "from .session import Session\nfrom .policy import *\n",
    "src/kite/session.py": (
        "from kite.policy import RetryPolicy\nfrom . import wire\n\n\n"
        "class Session:\n"
        '    """Keeps cookies between requests."""\n\n'
        "    def send_request(self, url):\n"
        "        return wire.open_socket(url)\n\n"
        "    def close(self):\n        pass\n"
    ),
    "src/kite/policy.py": (
        '"""When a request is tried again."""\n\nDEFAULT_BACKOFF = 3\n\n\n'
        "class RetryPolicy:\n"
        "    def next_backoff(self, attempt):\n"
        "        if attempt > 9:\n"
        '            raise ValueError("too many attempts for one request")\n'
        "        return DEFAULT_BACKOFF * attempt\n"
    ),
    "src/kite/wire.py": (
        "import socket\n\n\ndef open_socket(url):\n"
        '    """Opens the socket that frames are written to."""\n'
        "    return socket.create_connection(url)\n"
    ),
    "src/kite/utils.py": "def flatten(items):\n    return [one for item in items for one in item]\n",
    "web/src/cookieJar.ts": (
        "import { parse } from './parse';\n\nexport class CookieJar {\n"
        "  store(header: string) {\n    return parse(header, '--cookie-limit');\n  }\n}\n"
    ),
    "web/src/parse.ts": "export function parse(header: string) {\n  return header.split(';');\n}\n",
    "tests/test_policy.py": (
        "from kite import RetryPolicy\n\n\n"
        "def test_patience_grows_with_every_failure():\n"
        "    assert RetryPolicy().next_backoff(2) == 6\n"
    ),
    "tests/test_wire.py": (
        "from kite.wire import open_socket\n\n\ndef test_socket_opens():\n    open_socket('x')\n"
    ),
}


class Never:
    """A signal that is never set."""

    is_cancelled = False


class Always:
    """A signal that is set from the beginning."""

    is_cancelled = True


def ground_of(
    files: Mapping[str, str] = FILES,
    history: CommitHistory | None = None,
    decisions: Sequence[Decision] = (),
) -> StrategyGround:
    code = MemorySnapshot(files, CodePlace(Path("/nowhere")))
    return StrategyGround(code, history or FakeCommitHistory(), decisions)


def ask(make: MakeStrategy, question: str, ground: StrategyGround | None = None) -> list[ContextFragment]:
    return retrieved(make, question, ground or ground_of(), Never())


def retrieved(
    make: MakeStrategy, question: str, ground: StrategyGround, cancelled: CancelSignal
) -> list[ContextFragment]:
    return list(make(ground).retrieve(ContextRequest(question), cancelled))


def paths_by(fragments: Sequence[ContextFragment], signal: str) -> list[str]:
    """Return the results of one signal, in its order."""
    return [fragment.path for fragment in fragments if fragment.signal == signal]
