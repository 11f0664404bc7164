"""The presets for common agents: they load, cite their documentation, and are listed."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from cleveragents.actors import library as builtins
from cleveragents.actors.library import ActorLibrary, builtin_actors, external_actors
from cleveragents.actors.loader import load_actor
from cleveragents.actors.model.actor import AcpNode, Actor, AgentNode, CommandNode
from cleveragents.core.errors import UnknownActor
from cleveragents.plans.actors.role_models import models_of_roles, programs_of_roles

PRESETS = {actor.name: actor for actor in external_actors()}
FOLDER = Path(str(files("cleveragents.actors"))) / "external"


def node_of(actor: Actor) -> AgentNode:
    (node,) = actor.nodes
    assert isinstance(node, (CommandNode, AcpNode))
    return node


def test_the_well_known_ones_are_there() -> None:
    known = (
        "claude-code",
        "codex",
        "gemini",
        "opencode",
        "aider",
        "goose",
        "cursor-agent",
        "qwen-code",
        "copilot",
    )
    assert {f"external/{name}" for name in known} <= set(PRESETS)
    assert {name for name, actor in PRESETS.items() if isinstance(node_of(actor), AcpNode)} >= {
        "external/gemini-acp"
    }


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_small_file_that_cites_its_documentation(name: str) -> None:
    actor = PRESETS[name]
    text = (FOLDER / f"{name.removeprefix('external/')}.yaml").read_text()
    assert re.match(r"(#.*\n)*# ?https://|# https://", text), "where its flags are documented"
    assert len(text.splitlines()) < 40
    node = node_of(actor)
    assert actor.description
    assert node.install
    assert node.network, "its model is somewhere else"
    assert node.environment or node.home, "an agent needs credentials"
    assert "${task}" in node.prompt
    assert node.output in {key.name for key in actor.state}


def test_external_agents_in_all_roles_need_no_model() -> None:
    class Known:
        def get(self, name: str) -> Actor:
            return PRESETS[name]

    assert models_of_roles(Known(), PRESETS, "") == ()
    assert "claude" in programs_of_roles(Known(), PRESETS)


def test_presets_are_found_by_name_and_read_only_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = builtins._actors_in
    monkeypatch.setattr(builtins, "_actors_in", lambda name: (read.append(name), real(name))[1])
    library = ActorLibrary(None, object(), user_directory=tmp_path)
    assert library.get("builtin/executor") in builtin_actors()
    assert "external" not in read
    assert library.get("external/codex") is PRESETS["external/codex"]
    with pytest.raises(UnknownActor, match="did you mean external/goose"):
        library.get("external/goos")
    assert {listing.name for listing in library.list()} >= set(PRESETS)


def test_the_page_has_every_preset_with_its_program_and_an_example_that_is_valid() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "use-another-agent.md").read_text()
    rows = [f"| `{name}` | `{node_of(actor).argv[0]}` |" for name, actor in PRESETS.items()]
    assert [row for row in rows if row not in page] == []
    examples = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [load_actor(example, "example").name for example in examples] == ["mine/agent", "mine/talker"]
