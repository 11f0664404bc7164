"""The assembly of the context pipeline: settings, strategies, replaced parts, the tokenizer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.config.settings import ContextSettings, Settings, known_keys
from cleveragents.context import strategy_threads
from cleveragents.context.code_index import CodePlace
from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.context import ContextRequest, StrategyStatus
from cleveragents.context.part_registry import replaced_parts
from cleveragents.context.pipeline.checks import PARTS
from cleveragents.context.query import ContextQuery
from cleveragents.context.search.tokenizers import tokenizer
from cleveragents.context.strategy_registry import StrategyRegistry
from cleveragents.core.errors import ConfigurationError, SourceMissing, UnknownModel
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import FakeCommitHistory, MemorySnapshot
from tests.ready_database import ready_database

GROUP = "cleveragents.context"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a directory that is not a repository."""
    source = tmp_path / "shop"
    source.mkdir()
    (source / "basket.py").write_text(
        "class Basket:\n    def add_thing(self, thing):\n        return thing\n"
    )
    (source / "pay.py").write_text("def pay_by_card(card):\n    return card\n")
    return source


def settings(tmp_path: Path, **context: Any) -> Settings:
    return msgspec.convert(
        {
            "state": {"directory": str(tmp_path / "state")},
            "database": {"url": ready_database(tmp_path / "state/state.db")},
            "context": context,
        },
        Settings,
    )


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create a foreign module with parts and a strategy."""
    (tmp_path / "foreign_context.py").write_text(
        "from cleveragents.context.pipeline.packer import GreedyPacker\n"
        "from cleveragents.context.model.context import ContextFragment\n"
        "class Packer(GreedyPacker):\n    def pack(self, choices, tokens):\n        return []\n"
        "packer = Packer()\n"
        "class Strategy:\n    name = 'foreign'\n"
        "    def retrieve(self, request, cancelled):\n"
        "        return [ContextFragment('pay.py', '', 1.0, 'foreign')]\n"
        "def make(ground):\n    return Strategy()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("foreign_context", None)


# ── strategies ────────────────────────────────────────────────────────────────────────────────────────


def ground() -> StrategyGround:
    return StrategyGround(MemorySnapshot({}, CodePlace(Path("/nowhere"))), FakeCommitHistory())


def test_every_module_of_strategies_is_one_of_its_name() -> None:
    offers = StrategyRegistry([]).offers()
    assert {"keyword", "symbols", "history", "decisions"} <= set(offers)
    for name, make in offers.items():
        assert make(ground()).name == name


@pytest.mark.usefixtures("offering")
def test_an_installed_strategy_is_offered_and_loaded_when_it_is_made() -> None:
    entries = [EntryPoint("foreign", "foreign_context:make", "g"), EntryPoint("gone", "not_there:make", "g")]
    offers = StrategyRegistry(entries).offers()
    assert "foreign_context" not in sys.modules
    assert offers["foreign"](ground()).name == "foreign"
    with pytest.raises(ImportError):
        offers["gone"](ground())


def test_a_strategy_that_cannot_be_imported_is_offered_and_reports_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "cleveragents.context.strategies.keyword"
    monkeypatch.setitem(sys.modules, name, None)
    offers = StrategyRegistry([]).offers()
    with pytest.raises(ImportError):
        offers["keyword"](ground())


def test_a_package_cannot_replace_a_built_in_strategy() -> None:
    registry = StrategyRegistry([EntryPoint("keyword", "foreign_context:make", "g")])
    assert registry.offers()["keyword"](ground()).name == "keyword"
    assert "strategy keyword is ignored" in registry.notes()[0]


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_part_has_a_setting_that_no_repository_may_set() -> None:
    for part in PARTS:
        assert known_keys()[f"context.{part}"].repository.value == "never"


def test_nothing_is_replaced_unless_a_setting_says_so() -> None:
    assert replaced_parts(ContextSettings(), [EntryPoint("packer", "foreign_context:packer", GROUP)]) == {}


@pytest.mark.usefixtures("offering")
@pytest.mark.parametrize("name", ["foreign_context:packer", "foreign_context:Packer", "other"])
def test_a_part_is_named_by_where_it_is_or_by_its_entry_point(name: str) -> None:
    entries = [EntryPoint("other", "foreign_context:packer", GROUP)]
    loads = replaced_parts(ContextSettings(packer=name), entries)
    assert "foreign_context" not in sys.modules
    assert loads["packer"]().pack([], 5) == []


@pytest.mark.parametrize("entries", [[], [EntryPoint("other", "foreign_context:packer", GROUP)]])
def test_a_part_that_is_not_installed_is_a_mistake_in_the_settings(entries: list[EntryPoint]) -> None:
    with pytest.raises(ConfigurationError, match="no part named 'mine'"):
        replaced_parts(ContextSettings(packer="mine"), entries)


@pytest.mark.parametrize("name", ["module:", "module:not valid", " module:part"])
def test_an_invalid_part_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="module:attribute"):
        load_configuration({"HOME": str(tmp_path)}, tmp_path, [f"context.packer={name}x y"])


# ── the tokenizer ─────────────────────────────────────────────────────────────────────────────────────


def test_tokens_are_estimated_unless_tiktoken_has_its_file(tmp_path: Path) -> None:
    assert tokenizer("estimate", {}) == (estimate_text, None)
    for environment in ({"TIKTOKEN_CACHE_DIR": str(tmp_path)}, {"TIKTOKEN_CACHE_DIR": ""}):
        count, problem = tokenizer("o200k_base", environment)
        assert count is estimate_text
        assert problem == "tokens are estimated: tiktoken has no data for o200k_base here"


def test_a_damaged_tiktoken_file_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"damaged")
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(b"damaged")
    for name in ("cl100k_base", "o200k_base"):
        assert tokenizer(name, {"DATA_GYM_CACHE_DIR": str(tmp_path)})[0] is estimate_text


def test_tiktoken_counts_where_it_has_its_file_and_is_not_asked_for_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(b"good")
    digests = {"o200k_base": sha256(b"good").hexdigest()}
    environment = {"TIKTOKEN_CACHE_DIR": str(tmp_path)}
    installed = ModuleType("tiktoken")
    installed.__spec__ = ModuleSpec("tiktoken", None)
    words = SimpleNamespace(encode_ordinary=str.split)
    monkeypatch.setattr(installed, "get_encoding", {"o200k_base": words}.get, raising=False)
    monkeypatch.setitem(sys.modules, "tiktoken", installed)
    count, problem = tokenizer("o200k_base", environment, digests)
    assert (count("three small words"), problem) == (3, None)
    monkeypatch.delitem(sys.modules, "tiktoken")
    monkeypatch.setattr(sys, "path", [])
    count, problem = tokenizer("o200k_base", environment, digests)
    assert count is estimate_text
    assert "tiktoken, which o200k_base needs, is not installed" in str(problem)


# ── all together ──────────────────────────────────────────────────────────────────────────────────────


def asked(tree: Path, **options: Any) -> ContextQuery:
    return ContextQuery(
        question="where do pay_by_card and add_thing of Basket differ?",
        place=CodePlace(tree),
        deadline_seconds=60.0,
        index_seconds=60.0,
        **options,
    )


def test_a_process_that_asks_once_needs_no_database(tmp_path: Path, tree: Path) -> None:
    with Container(settings(tmp_path)) as container:
        answer = container.context_parts.lone_pipeline.ask(asked(tree))
        assert "_database" not in vars(container)
    assert {place.path for place in answer.files} == {"pay.py", "basket.py"}
    assert "def pay_by_card(card):" in answer.text
    assert not (tree / ".cleveragents").exists()
    assert sorted(path.name for path in tree.iterdir()) == ["basket.py", "pay.py"]


@pytest.mark.parametrize("part", ["quiet_strategies", "context_steps"])
def test_an_exiting_process_does_not_wait_for_a_hung_search(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()

    class Hung:
        name = "hung"

        def retrieve(self, request: Any, cancelled: Any) -> Any:
            begun.set()
            gate.wait(60)
            return []

    container = Container(settings(tmp_path))
    executor = getattr(container, part)
    asking = threading.Thread(
        target=lambda: executor.execute([Hung()], ContextRequest("why?"), deadline_seconds=60), daemon=True
    )
    asking.start()
    assert begun.wait(60)
    # No time passes, so a caller that waits would wait for ever.
    monkeypatch.setattr(strategy_threads, "time", SimpleNamespace(monotonic=lambda: 0.0))
    closing = threading.Thread(target=container.close, daemon=True)
    closing.start()
    closing.join(30)
    waits = closing.is_alive()
    gate.set()
    for thread in (closing, asking):
        thread.join(60)
    assert not waits
    assert executor.close(60) == ()


def test_a_process_that_asks_often_shares_the_breaker_whose_openings_are_events(
    tmp_path: Path, tree: Path
) -> None:
    with Container(settings(tmp_path, strategies_off="keyword, nonsense")) as container:
        for _ in range(3):
            container.strategies.circuit_breaker.record_failure("symbols")
        answer = container.context_parts.pipeline.ask(asked(tree))
    told = {one.name: one.status for one in answer.strategies}
    assert told["symbols"] is StrategyStatus.BREAKER_OPEN
    assert "keyword" not in told
    assert answer.notes == ("context.strategies_off names an unknown strategy: nonsense",)


@pytest.mark.usefixtures("offering")
def test_a_part_that_the_settings_name_is_used(tmp_path: Path, tree: Path) -> None:
    with Container(settings(tmp_path, packer="foreign_context:packer", tokenizer="o200k_base")) as container:
        answer = container.context_parts.lone_pipeline.ask(asked(tree))
    assert answer.fragments == ()
    assert answer.files


def test_a_missing_directory_and_an_unknown_model_are_reported_at_once(tmp_path: Path) -> None:
    with Container(settings(tmp_path)) as container, pytest.raises(SourceMissing):
        container.context_parts.lone_pipeline.ask(asked(tmp_path / "gone"))
    with Container(settings(tmp_path, rerank_model="nobody/x")) as container, pytest.raises(UnknownModel):
        _ = container.context_parts.lone_pipeline


def test_the_model_that_the_settings_name_ranks_the_best_files_and_is_not_for_plans(
    tmp_path: Path, tree: Path
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules:\n- reply:\n    text: '[2, 1]'\n")
    with Container(settings(tmp_path, rerank_model=f"scripted/{script}")) as container:
        parts = container.context_parts
        by_model = parts.lone_pipeline.ask(asked(tree))
        without = parts.pipeline.ask(asked(tree))
    assert by_model.strategies[-1].name == "rerank"
    assert by_model.strategies[-1].status is StrategyStatus.USED, by_model.strategies[-1]
    assert [place.path for place in by_model.files][:2] == [place.path for place in without.files][1::-1]
    assert "rerank" not in {one.name for one in without.strategies}
