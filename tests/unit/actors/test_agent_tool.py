"""The tool that runs external agents, and the passthrough of their commands, without a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from cleveragents.actors.external.agent_tool import AgentArguments, AgentTools
from cleveragents.actors.model.actor import Actor, CommandNode
from cleveragents.api.trust import preview
from cleveragents.core.errors import InvalidToolCall, ToolRefused
from cleveragents.core.policy import PROFILES, Capability, Policy, Verdict
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.calls.call_log import CallCommands
from cleveragents.plans.model.plan import PlanState
from cleveragents.processes import passthrough
from cleveragents.processes.passthrough import copy_home
from cleveragents.processes.ports import (
    Command,
    CommandHome,
    CommandOptions,
    CommandResult,
    StopSignal,
)
from cleveragents.tools.files.confined_files import ConfinedFiles
from tests.agent_bench import SCRIPTED
from tests.cli_bench import Agents, command_line, use_home
from tests.plan_bench import new_repository, plan_bench, step


class Recording:
    """A runner that runs nothing and records its commands."""

    isolates = False

    def __init__(self, **facts: object) -> None:
        self.commands: list[Command] = []
        self._facts = facts

    def run(
        self, command: Command, stop: StopSignal, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        self.commands.append(command)
        return CommandResult(
            **{"exit_code": 0, "output": "", "truncated_bytes": 0, "seconds": 0.0, **self._facts}
        )


def commands(runner: Recording, root: Path, **facts: object) -> CallCommands:
    usual = {"network": False, "network_denied": False, "is_approved": lambda: False, "limit_seconds": 5.0}
    usual["stop"] = CancellationToken()
    return CallCommands(
        tool="agent",
        runner=runner,
        sandbox=SimpleNamespace(root=root, readable=(root / "borrowed",)),
        directory="below",
        environment={"A": "ours", "B": "ours"},
        markers={"M": "1"},
        **{**usual, **facts},
    )


def test_a_command_gets_its_own_terms_and_those_of_the_call(tmp_path: Path) -> None:
    runner = Recording()
    terms = CommandOptions(
        input=b"told",
        environment={"B": "theirs"},
        passed=("KEY",),
        home=CommandHome((".a",)),
        readable=(tmp_path / "more",),
        processes=3,
        output_limit_bytes=7,
    )
    commands(runner, tmp_path)(("x",), directory="er", timeout_seconds=99.0, terms=terms)
    assert runner.commands == [
        Command(
            argv=("x",),
            root=tmp_path,
            directory=tmp_path / "below" / "er",
            timeout_seconds=5.0,
            readable=(tmp_path / "borrowed", tmp_path / "more"),
            environment={"A": "ours", "B": "theirs"},
            markers={"M": "1"},
            input=b"told",
            output_limit_bytes=7,
            passed=("KEY",),
            home=CommandHome((".a",)),
            processes=3,
        )
    ]


@pytest.mark.parametrize(("allowed", "leave", "has_it"), [(1, 0, True), (0, 1, True), (0, 0, False)])
def test_the_network_needs_approval(tmp_path: Path, allowed: int, leave: int, has_it: bool) -> None:
    runner = Recording()
    run = commands(runner, tmp_path, network=bool(allowed), is_approved=lambda: bool(leave))
    if has_it:
        run(("x",), directory="", timeout_seconds=1.0, terms=CommandOptions(network=True))
    else:
        with pytest.raises(ToolRefused, match="network access is not allowed"):
            run(("x",), directory="", timeout_seconds=1.0, terms=CommandOptions(network=True))
    assert [command.network for command in runner.commands] == ([True] if has_it else [])


def test_a_command_killed_from_outside_is_not_cancelled(tmp_path: Path) -> None:
    ended, stop = CancellationToken(), CancellationToken()
    runner = Recording(cancelled=True, exit_code=None)
    run = commands(runner, tmp_path, stop=stop, ended=ended)
    assert not run(("x",), directory="", timeout_seconds=1.0).cancelled
    stop.cancel("now it is")
    assert run(("x",), directory="", timeout_seconds=1.0).cancelled


def test_the_prompt_takes_its_place() -> None:
    by = {"prompt": "do it", "argv": ["a", "--p={prompt}"], "prompt_by": "argument"}
    assert AgentArguments(**by).words == ("a", "--p=do it")
    assert AgentArguments(**{**by, "argv": ["a"]}).words == ("a", "do it")
    assert AgentArguments(**{**by, "prompt_by": "stdin"}).words == ("a", "--p={prompt}")
    filed = AgentArguments(prompt="do it", argv=["a", "-f{prompt_file}"], prompt_by="file")
    assert filed.words[1].startswith("-f{home}/")
    assert list(filed.terms.home.files.values()) == [b"do it"]
    assert filed.terms.input == b""


def test_an_argument_with_a_nul_is_reported(tmp_path: Path) -> None:
    tool = AgentTools().get("agent")
    arguments = {"argv": ["sh"], "prompt": "a\0b", "prompt_by": "argument"}
    with pytest.raises(InvalidToolCall, match="NUL"):
        tool.capability_of(arguments, ConfinedFiles(tmp_path))


def test_approval_for_the_network_does_not_cover_commands(tmp_path: Path) -> None:
    verdicts = {**PROFILES["trusted"].verdicts, Capability.COMMAND: Verdict.ASK}
    policy = Policy("odd", MappingProxyType(verdicts))
    asked = step("agent", argv=["true"], prompt="", network=True)
    with plan_bench(tmp_path, isolation="off") as bench:
        opened = bench.handler().open_execution

        def strict(*given: object) -> object:
            return replace(opened(*given), policy=policy, tools=AgentTools())

        bench.adapt = lambda run: replace(run, open_execution=strict)
        assert bench.done(asked).state is PlanState.WAITING


# --- passthrough --------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "kept").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def test_links_become_files_and_pipes_are_left_out(home: Path, tmp_path: Path) -> None:
    (home / "kept" / "file").write_text("x")
    (home / "kept" / "link").symlink_to("file")
    (home / "kept" / "round").symlink_to(home)
    (home / "kept" / "lost").symlink_to("nowhere")
    os.mkfifo(home / "kept" / "pipe")
    target = tmp_path / "copy"
    target.mkdir()
    copy_home(target, CommandHome(("kept", "kept/file")), "agent")
    assert sorted(path.name for path in (target / "kept").iterdir()) == ["file", "link"]
    assert not (target / "kept" / "link").is_symlink()
    (target / "kept" / "file").write_text("changed")
    assert (home / "kept" / "file").read_text() == "x"


@pytest.mark.parametrize("bound", ["MOST_FILES", "MOST_BYTES"])
def test_a_whole_home_directory_is_refused(
    home: Path, tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passthrough, bound, 2)
    for name in "abc":
        (home / "kept" / name).write_text("xx")
    (tmp_path / "copy").mkdir()
    with pytest.raises(ToolRefused, match="only the files that the program needs"):
        copy_home(tmp_path / "copy", CommandHome(("kept",)), "agent")


def test_programs_named_by_path_are_visible_but_never_a_home(home: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "agent"
    program.parent.mkdir()
    for path in (program, tmp_path / "script.py", home / "agent"):
        path.write_text("")
        path.chmod(0o700)
    shown = AgentArguments(argv=[str(program), str(tmp_path / "script.py"), "x"], prompt="").terms.readable
    assert shown == (program.parent, tmp_path / "script.py")
    assert AgentArguments(argv=[str(home / "agent")], prompt="").terms.readable == (home / "agent",)


# --- on the command line ------------------------------------------------------------------------------------


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    mine = tmp_path / ".config" / "cleveragents" / "actors"
    mine.mkdir(parents=True)
    text = f"name: me/agent\ntype: command\nargv: [python3, {SCRIPTED}, edits]\nprompt: 'Do ${{goal}}'\n"
    (mine / "agent.yaml").write_text(text)
    monkeypatch.chdir(new_repository(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_a_goal_is_given_to_another_agent_without_any_model(agents: Agents) -> None:
    ran = agents("run", "this", "--actor", "me/agent")
    assert ran.code == 3, ran.err
    assert "I did it" in ran.err
    assert "ready" in ran.out
    for flag in ("--max-usd", "--max-tokens"):
        refused = agents("run", "this", "--actor", "me/agent", flag, "1000")
        assert refused.code == 2
        assert "the spending of python3 is not measured" in refused.err
    assert agents("run", "this").code == 2, "our own actors need a model"


def test_a_trust_request_lists_the_users_variables_and_files() -> None:
    text = (
        "name: x/y\ntype: command\nargv: [agent, -p]\nprompt: x\n"
        "environment: [A_KEY]\nhome: [.agent]\nnetwork: true\n"
    )
    file = SimpleNamespace(path=".cleveragents/actors/y.yaml", content=text.encode())
    assert preview(file) == (
        "runs: agent -p with the network",
        "with your variables: A_KEY",
        "with copies from your home: .agent",
    )


def test_an_actor_with_a_context_key_gets_context_without_a_model() -> None:
    from cleveragents.plans.actors.actor_stage import context_for

    node = CommandNode(name="work", argv=("a",), prompt="${context}")
    actor = Actor(name="t/a", entry="work", nodes=(node,))
    asked: list[int] = []
    stage = SimpleNamespace(actors=None, context=lambda question, tokens: asked.append(tokens) or "found")
    assert context_for(actor, stage, SimpleNamespace(), "?").endswith("found")
    assert asked == [4096]
    assert context_for(Actor(name="t/b", entry="work", nodes=()), stage, SimpleNamespace(), "?") == ""
