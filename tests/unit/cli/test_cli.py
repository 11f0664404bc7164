"""The command line as a whole: every mistake ends in a sentence and an exit code, never in a trace-back."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from sqlalchemy import Connection

from cleveragents import __version__
from cleveragents.app.container import Container
from cleveragents.cli import main
from cleveragents.cli.commands import cli
from cleveragents.cli.doctor import checks
from cleveragents.cli.failure import report_usage
from cleveragents.cli.output import ago, counted
from cleveragents.cli.session import _forget, _is_news
from cleveragents.config.loader import load_configuration
from cleveragents.core.faults import NoFaults
from cleveragents.events.chain import Tip
from cleveragents.events.head import HeadFile
from cleveragents.events.sequencer import rows_after
from cleveragents.jobs.model.job import AttemptOutcome, Job, JobState, NewJob, marker_of
from cleveragents.processes.bubblewrap import BubblewrapProbe
from cleveragents.storage.database import HEAD
from tests.contracts.databases import start_child
from tests.races.hammer import hammer
from tests.ready_database import ready_database
from tests.sandbox_resources import make_repository

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


Agents = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home to run in; nothing of the real one is seen or touched."""
    for name in [*os.environ]:
        if name.startswith(("CLEVERAGENTS_", "XDG_", "_AGENTS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def agents(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    """Runs a command line from end to end in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str, stdin: str = "") -> Ended:
        monkeypatch.setattr(sys, "argv", ["agents", *arguments])
        monkeypatch.setattr(sys, "stdin", StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main.run()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Ended(
            ended.value.code if isinstance(ended.value.code, int) else -1, captured.out, captured.err
        )

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def container(home: Path) -> Iterator[Container]:
    with Container(load_configuration(os.environ, home).settings) as built:
        yield built


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


# ── Help ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_every_command_explains_itself_with_an_example(agents: Agents, path: tuple[str, ...]) -> None:
    shown = agents(*path, "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"Usage: {' '.join(('agents', *path))}")
    assert "Example:" in shown.out
    assert shown.err == ""


def test_the_static_help_matches_click() -> None:
    names = cli.context_settings["help_option_names"]
    context = click.Context(cli, info_name="agents", terminal_width=80, help_option_names=names)
    assert f"{cli.get_help(context)}\n" == main.HELP


def test_the_one_line_of_each_command_is_its_own(agents: Agents) -> None:
    listed = agents("--help").out
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=200) in " ".join(listed.split())


def test_help_imports_no_heavy_library() -> None:
    probe = (
        "import sys; before = set(sys.modules); from cleveragents.cli import {}; "
        "print(*set(sys.modules) - before)"
    )
    heavy = {"rich", "pydantic", "sqlalchemy", "structlog", "langgraph", "reactivex", "psutil", "tomlkit"}
    for module, unwanted in (("commands", heavy), ("main", heavy | {"click", "typing", "dataclasses"})):
        command = [sys.executable, "-c", probe.format(module)]
        loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert not unwanted & set(loaded.split())


# Tells which modules a command loaded, which programs it started, and how many dataclasses it defined.
PROBE = """
import atexit, json, sys
started = []
sys.addaudithook(lambda event, facts: event == "subprocess.Popen" and started.append(str(facts[0])))
def tell():
    ours = [vars(module) for name, module in sys.modules.items() if name.startswith("cleveragents")]
    kinds = {id(one): one for names in ours for one in names.values() if isinstance(one, type)}
    made = sum("__dataclass_fields__" in vars(one) for one in kinds.values())
    print(json.dumps([sorted(sys.modules), started, made]), file=sys.stderr)
atexit.register(tell)
from cleveragents.cli.main import run
run()
"""
UNUSED = {
    "alembic",
    "attr",
    "cleveragents.api.plans.detail_views",
    "httpx",
    "jsonschema",
    "langgraph",
    "pydantic",
    "rich",
    "ruamel.yaml",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "structlog",
}
WORK = {
    "cleveragents.jobs.worker.async_worker",
    "cleveragents.plans.actors.actor_stage",
    "cleveragents.plans.run",
    "psutil",
}
"""What runs a job: the other commands need none of it."""
RESULTS = {
    "cleveragents.api.plans.views",
    "cleveragents.api.rules",
    "cleveragents.plans.calls.tool_execution",
    "cleveragents.plans.conflicts.rebase",
    "cleveragents.sandboxes.git_sandbox",
    "cleveragents.sandboxes.registry",
}
"""What reads or changes the files of a plan: a list needs none of it."""


def probed(home: Path, *words: str) -> tuple[str, set[str], Counter[str], int]:
    """What the command printed, the modules that it loaded, the programs that it started, and the number of
    dataclasses that it defined.
    """
    own = ("CLEVERAGENTS_", "XDG_", "GIT_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    command = [sys.executable, "-c", PROBE, *words]
    environment = {**inherited, "HOME": str(home)}
    ended = subprocess.run(
        command, cwd=home / "shop", capture_output=True, text=True, check=True, env=environment
    )
    loaded, started, made = json.loads(ended.stderr.splitlines()[-1])
    return ended.stdout, set(loaded), Counter(Path(program).name for program in started), made


def test_commands_load_no_library_and_start_no_process_that_they_do_not_need(tmp_path: Path) -> None:
    """Start-up is most of what a short command takes: 80 ms of CPU for pydantic, 4 for each process, and half
    a millisecond for each dataclass.
    """
    make_repository(tmp_path / "shop", {"README.md": "colour\n"})
    probed(tmp_path, "plan", "list")  # makes the database

    command = ("run", "--action", "builtin/command", "--review", "--format", "json", "--")
    told, loaded, started, made = probed(tmp_path, *command, "sed", "-i", "s/colour/color/", "README.md")
    plan = json.loads(told)["id"]
    assert not UNUSED - {"pydantic", "ruamel.yaml"} & loaded, "an action is read from YAML"
    assert started["git"] <= 14
    assert started["bwrap"] <= 4
    assert started.total() - started["git"] - started["bwrap"] == 1, "the guard of the command"
    assert made <= 75

    _, loaded, started, made = probed(tmp_path, "plan", "apply", plan)
    assert not (UNUSED | WORK) & loaded
    assert started.keys() <= {"git"}
    assert started["git"] <= 12
    assert made <= 60

    _, loaded, started, made = probed(tmp_path, "plan", "undo", plan)
    assert not (UNUSED | WORK) & loaded
    assert started.keys() <= {"git"}
    assert started["git"] <= 10
    assert made <= 60

    _, loaded, started, made = probed(tmp_path, "plan", "list")
    assert "sqlalchemy" in loaded
    assert not (UNUSED | WORK | RESULTS) & loaded
    assert sum(name.startswith("cleveragents.") for name in loaded) <= 165
    assert made <= 30
    assert not started


def test_the_version_is_the_packages(agents: Agents) -> None:
    assert agents("--version").out == f"cleveragents {__version__}\n"


def test_no_command_shows_the_help_and_is_a_usage_error(agents: Agents) -> None:
    ended = agents()
    assert (ended.code, "Commands:" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (["confg"], "no such command 'confg'; did you mean 'config'?\nusage: agents [OPTIONS] COMMAND"),
        (["config", "lst"], "'list'"),
        (["jobs", "list", "--stat", "queued"], "--state"),
        (["jobs", "list", "--state", "qeued"], "'queued'"),
        (["--sett", "x"], "--set"),
        (
            ["plan", "explain"],
            "missing argument 'PLAN'\nusage: agents plan explain [OPTIONS] PLAN DECISION; see --help",
        ),
        (
            ["run", "--paralel", "3"],
            "no such option '--paralel'; did you mean one of: '--parallel', '--profile'?\n",
        ),
        (
            ["run", "x", "--max-usd", "abc"],
            "'--max-usd': 'abc' must be a number greater than 0 and at most 1,000,000\n",
        ),
        (
            ["run", "x", "--max-usd", "-1"],
            "'--max-usd': -1.0 must be a number greater than 0 and at most 1,000,000\n",
        ),
        (["run", "x", "--max-tokens", "1.5"], "'--max-tokens': '1.5' must be a whole number of at least 1\n"),
        (["plan", "list", "--limit", "0"], "'--limit': 0 must be a whole number from 1 to 10,000\n"),
        (["serve", "--port", "x"], "'--port': 'x' must be a whole number from 0 to 65,535\n"),
        (
            ["config", "set", "worker.concurrency", "-1"],
            "no such option '-1'; write -- before a value that begins with -\nusage: agents config set",
        ),
        (["config", "set", "worker.concurrency", "--", "-1"], "should be a whole number >= 1"),
        (
            ["config", "set", "worker.concurrency=8"],
            "separate KEY and VALUE by a space: agents config set worker.concurrency VALUE\nusage: agents ",
        ),
        (["config", "set", "worker.concurrency"], "missing argument 'VALUE'\nusage: agents config set "),
        (["events", "tail", "--after", "x"], "'--after': 'x' must be a whole number of at least 0\n"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(agents: Agents, wrong: list[str], hint: str) -> None:
    ended = agents(*wrong)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert hint in ended.err
    assert ended.out == ""


def test_hidden_options_are_not_suggested(agents: Agents) -> None:
    for near in ("--plam", "--plans", "--pat"):
        ended = agents("run", "x", near, "y")
        assert ended.code == 2
        assert f"no such option '{near}'" in ended.err
        assert "'--plan'" not in ended.err


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (click.INT, "'x' must be a whole number"),
        (click.FLOAT, "'x' must be a number"),
        (click.FloatRange(max=2.5), "'x' must be a number of at most 2.5"),
        (click.FloatRange(), "'x' must be a number"),
        (click.FloatRange(min=0, min_open=True), "'x' must be a number greater than 0"),
    ],
)
def test_an_invalid_number_is_reported_with_its_range(
    kind: click.ParamType[object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = click.Option(["--much"], type=kind)
    command = click.Command("agents", params=[option])
    with pytest.raises(click.BadParameter) as wrong:
        command.make_context("agents", ["--much", "x"])
    assert report_usage(wrong.value) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: invalid value for '--much': {words}"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            ["--format", "json", "jobs", "list"],
            "--format goes after the command: agents jobs list --format json",
        ),
        (["--format=json", "doctor"], "--format goes after the command: agents doctor --format json"),
        (["events", "-f", "tail"], "-f goes after the command: agents events tail -f"),
        (["jobs", "--limit", "3", "list"], "--limit goes after the command: agents jobs list --limit 3"),
        (
            ["plan", "list", "--server", "http://one"],
            "--server goes before the command: agents --server http://one plan list",
        ),
        (["doctor", "--set=a.b=c"], "--set goes before the command: agents --set a.b=c doctor"),
    ],
)
def test_an_option_on_the_wrong_side_of_its_command_is_shown_its_place(
    agents: Agents, wrong: list[str], right: str
) -> None:
    ended = agents(*wrong)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == right
    assert "did you mean" not in ended.err


@pytest.mark.parametrize(
    "wrong", [["--format", "json"], ["--formt", "json", "jobs", "list"], ["jobs", "list", "--formt", "json"]]
)
def test_an_option_without_a_place_is_shown_none(agents: Agents, wrong: list[str]) -> None:
    ended = agents(*wrong)
    assert (ended.code, "goes after" in ended.err) == (2, False)


def test_completion_is_offered_to_shells(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AGENTS_COMPLETE", "bash_source")
    assert "_agents_completion" in agents().out


@pytest.mark.parametrize("command", ["get", "set", "unset"])
def test_names_of_settings_are_completed(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("_AGENTS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"agents config {command} log.")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert agents().out == "plain,log.level\nplain,log.format\n"


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    command = click.Command("doctor", callback=fail)
    monkeypatch.setattr(cli, "get_command", lambda context, name: command)


def test_an_unexpected_error_is_kept_without_its_secrets(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, RuntimeError("no route to postgresql://me:s3cret@host/db"))
    ended = agents("doctor")
    log = home / ".local/share/cleveragents/errors.log"
    assert ended.code == 1
    assert ended.err == (f"error: internal error (RuntimeError); the details are in {log}\n")
    kept = log.read_text()
    assert "RuntimeError: no route to postgresql://me:***@host/db" in kept
    assert "s3cret" not in kept
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_error_log_is_bounded(agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = home / ".local/share/cleveragents/errors.log"
    log.parent.mkdir(parents=True)
    log.write_text("x" * (2 << 20))
    fail_with(monkeypatch, RuntimeError("again"))
    agents("doctor")
    assert log.stat().st_size < 10_000
    assert log.with_suffix(".log.1").stat().st_size == 2 << 20


def test_details_go_elsewhere_if_the_state_directory_is_no_directory(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".local").write_text("in the way")
    fail_with(monkeypatch, RuntimeError("oops"))
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert agents("doctor").code == 1
    kept = next(home.glob("cleveragents-error-*.log"))
    assert "RuntimeError: oops" in kept.read_text()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (MemoryError(), 75, "error: out of memory\n"),
        (SystemExit(143), 143, ""),
    ],
)
def test_an_ending_has_its_exit_code(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    fail_with(monkeypatch, error)
    ended = agents("doctor")
    assert (ended.code, ended.err) == (code, said)


class _Impatient(StringIO):
    """Somebody presses Ctrl-C when the first words come."""

    def write(self, text: str) -> int:
        if not self.tell():
            super().write("…\n")
            raise KeyboardInterrupt
        return super().write(text)


def test_an_interrupt_during_an_error_message_shows_no_trace_back(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, RuntimeError("oops"))
    screen = _Impatient()
    monkeypatch.setattr(sys, "stderr", screen)
    assert agents("doctor").code == 130
    assert screen.getvalue() == "…\ninterrupted\n"


def test_a_directory_that_is_gone_is_a_sentence(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ended = agents("config", "list")
    assert (ended.code, "no longer exists" in ended.err) == (2, True)


# ── Config ────────────────────────────────────────────────────────────────────────────────────────


def test_config_set_then_get(agents: Agents, home: Path) -> None:
    ended = agents("config", "set", "worker.concurrency", "8")
    assert (ended.code, ended.out) == (0, "")
    assert agents("config", "get", "worker.concurrency").out == "8\n"
    rows = agents("config", "list", "--format", "json").json
    assert isinstance(rows, list)
    [row] = [row for row in rows if row["key"] == "worker.concurrency"]
    assert (row["value"], row["layer"]) == (8, "file")
    assert row["from"] == f"{home}/.config/cleveragents/config.toml:2"


def test_config_set_says_when_something_stronger_decides(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEVERAGENTS_LOG_LEVEL", "error")
    assert "CLEVERAGENTS_LOG_LEVEL takes precedence here" in agents("config", "set", "log.level", "info").err


def test_config_unset_brings_the_default_back(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / ".config/cleveragents/config.toml"
    assert agents("config", "set", "worker.concurrency", "8").code == 0
    ended = agents("config", "unset", "worker.concurrency")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"removed worker.concurrency from {file}\n"
    assert agents("config", "get", "worker.concurrency").out == "4\n"
    again = agents("config", "unset", "worker.concurrency")
    assert (again.code, again.err) == (0, f"worker.concurrency is not set in {file}; nothing changed\n")
    unknown = agents("config", "unset", "worker.concurency")
    assert (unknown.code, "did you mean 'worker.concurrency'?" in unknown.err) == (2, True)
    monkeypatch.setenv("CLEVERAGENTS_LOG_LEVEL", "error")
    assert "CLEVERAGENTS_LOG_LEVEL takes precedence here" in agents("config", "unset", "log.level").err


@pytest.mark.parametrize(
    ("command", "done"), [("set", "set log.level in"), ("unset", "log.level is not set in")]
)
def test_an_edit_succeeds_despite_other_invalid_settings(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch, command: str, done: str
) -> None:
    monkeypatch.setenv("CLEVERAGENTS_WORKER_CONCURRENCY", "postgresql://me:s3cret@h/db")
    ended = agents("config", command, "log.level", *(["info"] if command == "set" else []))
    said, broken = ended.err.splitlines()
    assert (ended.code, said.startswith(f"{done} {home}/.config/")) == (0, True)
    problem = "worker.concurrency is 'postgresql://me:***@h/db', but should be a whole number"
    assert broken == f"invalid: CLEVERAGENTS_WORKER_CONCURRENCY: {problem}"


def test_a_password_comes_from_stdin_and_is_never_shown(agents: Agents) -> None:
    assert agents("config", "set", "database.url", "-", stdin="postgresql://me:s3cret@h/db\n").code == 0
    for shown in (
        agents("config", "get", "database.url"),
        agents("config", "get", "database.url", "--format", "json"),
        agents("config", "list"),
        agents("config", "list", "--format", "stream-json"),
        agents("doctor"),
    ):
        assert "s3cret" not in shown.out + shown.err
        assert shown.code in (0, 1)
    assert agents("config", "get", "database.url").out == "postgresql://me:***@h/db\n"


def test_a_broken_file_stops_every_command_but_can_be_diagnosed(agents: Agents, home: Path) -> None:
    file = home / ".config/cleveragents/config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff\xfe")
    for command in (["config", "list"], ["jobs", "list"], ["config", "set", "log.level", "info"]):
        ended = agents(*command)
        assert (ended.code, ended.err) == (
            2,
            f"error: {file}: is not UTF-8 text (byte 0); save it as UTF-8\n",
        )
    assert agents("doctor").code == 1


def test_config_path_names_the_files(agents: Agents, home: Path) -> None:
    (home / ".git").mkdir()
    (home / ".cleveragents.toml").write_text("")
    assert agents("config", "path", "--format", "json").json == {
        "user": f"{home}/.config/cleveragents/config.toml",
        "repository": f"{home}/.cleveragents.toml",
        "state": f"{home}/.local/share/cleveragents",
        "broken": [],
    }
    assert agents("config", "path").err == ""


def test_config_path_says_which_file_is_broken(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, repository = home / ".config/cleveragents/config.toml", home / ".cleveragents.toml"
    (home / ".git").mkdir()
    own.parent.mkdir(parents=True)
    own.write_text("")
    repository.write_text("[log]\nlevel = 'info'\n")
    in_repository = f"{repository}:2: a repository may not set log.level"
    ended = agents("config", "path")
    assert ended.code == 0
    assert ended.out.splitlines() == [f"user        {own}", f"repository  {repository}", "state"]
    assert ended.err.startswith(f"invalid: {in_repository}")
    own.write_text("[database]\nurl = 'mysql://me:s3cret@h/db'\n")
    shown = agents("config", "path", "--format", "json")
    assert isinstance(shown.json, dict)
    first, second = shown.json["broken"]
    assert (shown.code, shown.json["user"], shown.json["state"]) == (0, str(own), None)
    assert first.startswith(f"{own}:2: database.url")
    assert second.startswith(in_repository)
    assert "s3cret" not in shown.out + shown.err
    own.write_text("[log]\nlevle = 'info'\nformat = 1\n")
    lines = agents("config", "path").err.splitlines()
    places = [f"invalid: {own}:2: ", f"invalid: {own}:3: ", f"invalid: {repository}:2: "]
    assert [line.startswith(place) for line, place in zip(lines, places, strict=True)] == [True] * 3, lines
    assert agents("config", "list").err.count("\n") == 4
    (row,) = [row for row in agents("doctor", "--format", "json").json if row["check"] == "configuration"]
    assert (row["verdict"], "\n" in row["finding"], f"; {own}:3: " in row["finding"]) == ("fail", False, True)
    own.unlink()
    repository.unlink()
    monkeypatch.setenv("CLEVERAGENTS_LOG_LEVL", "info")
    assert agents("config", "path").err == (
        "invalid: environment: CLEVERAGENTS_LOG_LEVL is not a setting; did you mean CLEVERAGENTS_LOG_LEVEL?\n"
    )


def test_config_path_works_in_a_directory_that_is_gone(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ended = agents("config", "path")
    assert (ended.code, "no longer exists" in ended.err) == (0, True)
    assert f"{home}/.config/cleveragents/config.toml" in ended.out


def test_a_flag_reaches_the_command(agents: Agents) -> None:
    assert agents("--set", "log.level=debug", "config", "get", "log.level").out == "debug\n"
    assert agents("--set", "log.levl=debug", "config", "get", "log.level").code == 2


# ── Jobs ──────────────────────────────────────────────────────────────────────────────────────────


def submitted(container: Container, kind: str = "demo") -> Job:
    return container.jobs.submit(NewJob(kind, {"n": 1}), now=NOW)


def claimed(container: Container) -> Job:
    job = container.jobs.claim(container.processes.identity("worker-1"), ["demo"], now=NOW)
    assert job is not None
    return job


def test_jobs_are_listed_by_state(agents: Agents, container: Container) -> None:
    first, second = submitted(container), submitted(container)
    claimed(container)
    rows = agents("jobs", "list", "--format", "json").json
    assert isinstance(rows, list)
    assert [(row["id"], row["state"], row["worker"]) for row in rows] == [
        (first.id, "running", "worker-1"),
        (second.id, "queued", None),
    ]
    queued = agents("jobs", "list", "--state", "queued", "--format", "stream-json")
    assert json.loads(queued.out)["id"] == second.id
    page = agents("jobs", "list", "--limit", "1")
    assert first.id in page.out
    assert page.err == f"there are more jobs: pass --after {first.id}\n"
    assert second.id in agents("jobs", "list", "--after", first.id).out


def test_an_empty_list_is_a_message_on_stderr_and_an_empty_json_list(agents: Agents) -> None:
    assert agents("jobs", "list") == Ended(0, "", "no jobs match\n")
    assert agents("jobs", "list", "--format", "json").json == []
    assert agents("jobs", "list", "--format", "stream-json").out == ""


def test_job_output_is_escaped_and_masked(agents: Agents, container: Container) -> None:
    hostile = NewJob("demo", {"password": "hunter2", "text": "\x1b]0;owned\x07\u202e", "n": [1, None, True]})
    job = container.jobs.submit(hostile, now=NOW)
    for format_name in ("plain", "rich", "json"):
        shown = agents("jobs", "show", job.id, "--format", format_name)
        assert shown.code == 0
        assert "hunter2" not in shown.out
        assert "\x07" not in shown.out
        assert "\u202e" not in shown.out or format_name == "json"
    listed = agents("jobs", "list", "--format", "rich").out
    assert job.id in listed.replace("\n", "")


def test_a_list_on_a_terminal_keeps_each_job_to_a_line(
    agents: Agents, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "demo" + "-of-a-long-name" * 3
    job = container.jobs.submit(NewJob(kind), now=NOW)
    worker = container.processes.identity("the-worker-on-the-big-machine")
    assert container.jobs.claim(worker, [kind], now=NOW) is not None
    failed = AttemptOutcome(JobState.FAILED, error=f"the {kind} handler failed: OSError: {'no ' * 40}")
    container.jobs.finish(job.id, 1, failed, now=NOW)
    submitted(container)
    always = ["id", "kind", "state"]
    for width, shown in {
        55: always,
        80: [*always, "updated", "error"],
        120: [*always, "attempt", "worker", "updated", "error"],
    }.items():
        monkeypatch.setenv("COLUMNS", str(width))
        lines = agents("jobs", "list", "--format", "rich").out.splitlines()
        assert lines[0].split() == shown
        assert len(lines) == 4, "a heading, a rule, two jobs"
        assert max(map(len, lines)) <= width
        assert lines[2].startswith(job.id)
        assert ("OSError: no" in lines[2]) == ("error" in shown), "the error begins with what is telling"
        assert (" d ago" in lines[2]) == ("updated" in shown)
    wide = agents("jobs", "list", "--format", "plain").out
    assert kind in wide
    assert "2026-01-01T00:00:00Z" in wide


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-9, "now"),
        (0.5, "now"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (7_199, "1 h ago"),
        (200_000, "2 d ago"),
    ],
)
def test_ages_are_shown_in_one_unit(seconds: float, said: str) -> None:
    assert ago(NOW, NOW + timedelta(seconds=seconds)) == said


def test_one_item_is_counted_in_the_singular() -> None:
    assert [counted(n, "event") for n in (0, 1, 2)] == ["0 events", "1 event", "2 events"]
    assert [counted(n, "process", "processes") for n in (1, 2)] == ["1 process", "2 processes"]


def test_a_queued_job_is_cancelled_once(agents: Agents, container: Container) -> None:
    job = submitted(container)
    first = agents("jobs", "cancel", job.id, "--reason", "wrong branch")
    assert (first.code, first.err) == (0, f"cancelled job {job.id}\n")
    second = agents("jobs", "cancel", job.id)
    assert (second.code, second.err) == (
        0,
        f"job {job.id} is already cancelled (wrong branch); nothing changed\n",
    )
    assert container.jobs.get(job.id).cancel_reason == "wrong branch"


def test_a_running_job_is_cancelled_once(agents: Agents, container: Container) -> None:
    job = submitted(container)
    claimed(container)
    assert "cancelling job" in agents("jobs", "cancel", job.id).err
    assert "is already being cancelled" in agents("jobs", "cancel", job.id).err
    assert container.jobs.get(job.id).state is JobState.RUNNING


def test_a_job_that_has_ended_cannot_be_cancelled(agents: Agents, container: Container) -> None:
    job = submitted(container)
    fence = claimed(container).fence
    container.jobs.finish(job.id, fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    ended = agents("jobs", "cancel", job.id)
    assert (ended.code, ended.err) == (1, f"error: job {job.id} already succeeded; nothing was changed\n")


@pytest.mark.parametrize("job_id", ["", "nope", "ü" * 1000, "'; DROP TABLE jobs; --"])
def test_an_unknown_job_is_a_sentence(agents: Agents, job_id: str) -> None:
    for command in ("show", "cancel"):
        ended = agents("jobs", command, job_id)
        assert (ended.code, "there is no job" in ended.err) == (2, True)


@pytest.mark.parametrize(
    "content", [b"not a database, but longer than a header of one" * 10, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_a_sentence(agents: Agents, home: Path, content: bytes) -> None:
    file = home / "state.db"
    file.write_bytes(content)
    ended = agents("--set", f"database.url=sqlite:///{file}", "jobs", "list")
    assert ended.code == 2
    assert ended.err.startswith(f"error: cannot use {file} as the database: ")
    assert file.read_bytes() == content
    assert agents("--set", f"database.url=sqlite:///{file}", "doctor").code == 1


def test_a_directory_in_place_of_the_database_is_a_sentence(agents: Agents, home: Path) -> None:
    ended = agents("--set", f"database.url=sqlite:///{home}", "jobs", "list")
    assert (ended.code, "this is a directory" in ended.err) == (2, True)


# ── Events ────────────────────────────────────────────────────────────────────────────────────────


def positions(ended: Ended) -> list[int]:
    return [json.loads(line)["position"] for line in ended.out.splitlines()]


def test_tail_shows_the_latest_and_continues_from_a_cursor(agents: Agents, container: Container) -> None:
    for _ in range(5):
        submitted(container)
    claimed(container)
    stream = ["events", "tail", "--format", "stream-json"]
    assert positions(agents(*stream)) == [1, 2, 3, 4, 5, 6]
    assert positions(agents(*stream, "--limit", "2")) == [5, 6]
    assert positions(agents(*stream, "--after", "2", "--limit", "3")) == [3, 4, 5]
    assert positions(agents(*stream, "--after", "6")) == []
    assert positions(agents(*stream, "--type", "job.claimed")) == [6]
    assert positions(agents(*stream, "--type", "job.submitted", "--limit", "2")) == [4, 5]
    assert "job.claimed" in agents("events", "tail").out


def test_an_unknown_event_type_is_answered_with_the_nearest(agents: Agents) -> None:
    ended = agents("events", "tail", "--type", "job.sucseeded")
    assert (ended.code, "did you mean 'job.succeeded'?" in ended.err) == (2, True)


def test_follow_continues_until_interrupted(container: Container) -> None:
    submitted(container)
    command = [sys.executable, "-m", "cleveragents", "events", "tail", "--follow", "--format", "stream-json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["position"] == 1
            submitted(container)
            assert json.loads(following.stdout.readline())["position"] == 2
            claimed(container)
            assert json.loads(following.stdout.readline())["type"] == "job.claimed"
            following.send_signal(signal.SIGINT)
            out, err = following.communicate(timeout=100)
        finally:
            following.kill()
    assert (following.returncode, out, err) == (130, "", "interrupted\n")


def test_a_reader_that_has_enough_ends_the_command_quietly(container: Container) -> None:
    submitted(container)
    command = [sys.executable, "-m", "cleveragents", "events", "tail", "--follow"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stdout is not None
    following.stdout.readline()
    following.stdout.readline()
    following.stdout.close()
    submitted(container)
    assert following.wait(100) == 141
    assert following.stderr is not None
    assert following.stderr.read() == ""
    following.stderr.close()


def test_a_log_that_was_tampered_with_is_named_row_by_row(agents: Agents, container: Container) -> None:
    for _ in range(4):
        submitted(container)
    assert agents("events", "verify") == Ended(0, "4 events, verified\n", "")
    container.database.write(
        lambda connection: connection.exec_driver_sql(
            "UPDATE events SET subject = 'x' WHERE position = 2"
        ).close()
    )
    container.database.write(
        lambda connection: connection.exec_driver_sql("DELETE FROM events WHERE position = 4").close()
    )
    ended = agents("events", "verify", "--format", "json")
    assert isinstance(ended.json, dict)
    assert (ended.code, ended.json["ok"], [f["position"] for f in ended.json["findings"]]) == (
        1,
        False,
        [2, 4],
    )
    said = agents("events", "verify")
    assert (said.code, "was changed" in said.out, "2 findings in 3 events" in said.err) == (1, True, True)
    tail = agents("events", "tail")
    assert (tail.code, tail.err.startswith("warning: audit log, row 4")) == (0, True)
    assert verdicts(agents("doctor", "--format", "json"))["audit log"] == "fail"


def test_an_unknown_event_type_is_shown_without_an_error(agents: Agents, container: Container) -> None:
    submitted(container)
    assert agents("events", "verify").code == 0
    container.database.write(
        lambda connection: connection.exec_driver_sql("UPDATE events SET event_type = 'x.y'").close()
    )
    ended = agents("events", "tail")
    assert (ended.code, "x.y" in ended.out) == (0, True)


@pytest.mark.parametrize(
    "words", [("jobs", "show", "\udcff"), ("jobs", "list", "--after", "\udcff"), ("jobs", "cancel", "a\n")]
)
def test_an_invalid_id_is_a_usage_error(agents: Agents, words: tuple[str, ...]) -> None:
    ended = agents(*words)
    assert (ended.code, "there is no job" in ended.err) == (2, True)


@pytest.mark.parametrize("command", ["plan", "session", "jobs"])
def test_an_error_quotes_only_the_ends_of_a_huge_argument(agents: Agents, command: str) -> None:
    ended = agents(command, "show", "x" * 100_000)
    assert ended.code == 2
    assert len(ended.err) < 1_000
    assert " characters … xxx" in ended.err


def test_a_position_beyond_all_positions_is_a_mistake_of_the_users(agents: Agents) -> None:
    assert agents("events", "tail", "--after", str(2**63)).code == 2


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("config", "list")], ids=" ".join)
def test_unwritable_output_is_reported_in_a_sentence(words: tuple[str, ...], home: Path) -> None:
    command = [sys.executable, "-m", "cleveragents", *words]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write the output: No space left on device\n"


def test_another_database_has_an_audit_log_of_its_own(
    agents: Agents, container: Container, tmp_path: Path
) -> None:
    submitted(container)
    other = ("--set", f"database.url=sqlite:///{tmp_path}/other.db")
    assert agents("events", "verify").out == "1 event, verified\n"
    assert agents(*other, "events", "verify").out == "0 events, verified\n"
    assert agents("events", "verify").out == "1 event, verified\n"


def test_unencodable_characters_are_escaped(home: Path) -> None:
    command = [sys.executable, "-m", "cleveragents", "--set", "models.default=openai/☃", "config", "get"]
    told = subprocess.run(
        [*command, "models.default"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert told.stdout == b"openai/\\u2603\n"


def test_a_command_whose_output_is_closed_runs_all_the_same(home: Path) -> None:
    command = f"{sys.executable} -m cleveragents config list >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_log_with_a_lost_head_is_adopted_only_after_confirmation(
    agents: Agents, container: Container
) -> None:
    submitted(container)
    assert agents("events", "verify").code == 0
    (container.state_directory / "audit.head").unlink()
    refused = agents("events", "adopt")
    assert (refused.code, refused.out, "audit.head is missing" in refused.err) == (3, "", True)
    assert agents("events", "verify").code == 1
    assert agents("events", "adopt", "--yes").out == "1 event, attested in the present state\n"
    assert agents("events", "verify") == Ended(0, "1 event, verified\n", "")


def test_events_cannot_be_erased_by_way_of_the_outbox(agents: Agents, container: Container) -> None:
    submitted(container)
    assert agents("events", "verify").code == 0

    def erase(connection: Connection) -> None:
        columns = "event_id, event_type, subject, occurred_at, payload"
        query = f"INSERT INTO outbox ({columns}) SELECT {columns} FROM events"
        connection.exec_driver_sql(query).close()
        connection.exec_driver_sql("DELETE FROM events").close()

    container.database.write(erase)
    for name in ("audit.head", "audit.key"):
        (container.state_directory / name).unlink()
    for _ in range(2):
        assert agents("events", "verify").code == 1
    assert not (container.state_directory / "audit.head").exists()
    assert agents("events", "adopt", "--yes").code == 0
    assert agents("events", "verify").out == "1 event, verified\n"


def test_a_new_database_is_attested_before_anything_is_committed(container: Container) -> None:
    ready_database(container.state_directory / "state.db")

    def submit(_: int) -> None:
        with Container(container.settings) as fresh:
            submitted(fresh)

    hammer(submit)
    assert (container.state_directory / "audit.head").exists()
    assert container.audit.verify().rows == 8
    assert container.audit.verify().ok


def erase_and_reseal(container: Container, kept: int) -> None:
    """Remove all events after the first `kept`, and seal that with the key beside the log."""
    with container.database.read() as connection:
        rows = list(rows_after(connection, 0))[:kept]
    query = f"DELETE FROM events WHERE position > {kept}"
    container.database.write(lambda connection: connection.exec_driver_sql(query).close())
    head = HeadFile(container.state_directory, fsync=False, faults=NoFaults())
    head.store(Tip(kept, rows[-1].hash))


def test_events_that_were_erased_are_named_by_an_anchor(
    agents: Agents, container: Container, tmp_path: Path
) -> None:
    target = str(tmp_path / "outside.jsonl")
    assert agents("events", "anchor", target) == Ended(0, "", "no events to anchor\n")
    for _ in range(4):
        submitted(container)
    assert agents("events", "anchor", target) == Ended(0, f"4 events anchored at {target}\n", "")
    assert agents("events", "anchor", target).out == f"4 events anchored already at {target}\n"
    submitted(container)
    told = agents("events", "verify", "--anchor", target)
    first, second = told.out.splitlines()
    assert (told.code, first) == (0, "5 events, verified")
    assert re.fullmatch(f"anchored: events 1 to 4 as of [0-9TZ:-]+, at {target}; 1 event after that", second)
    erase_and_reseal(container, 3)
    assert agents("events", "verify").code == 0
    told = agents("events", "verify", "--anchor", target)
    assert (told.code, "the anchor of" in told.out, "1 finding in 3 events" in told.err) == (1, True, True)
    assert f"anchored: no event matches an anchor at {target}" in told.out
    report = agents("--set", f"audit.anchor={target}", "events", "verify", "--format", "json").json
    assert isinstance(report, dict)
    assert report["anchors"] == [{"target": target, "anchors": 1, "events": 0, "time": None}]
    refused = agents("events", "anchor", target)
    assert (refused.code, "audit log, row 4: the row was removed" in refused.err) == (1, True)


def test_anchors_are_verified_with_the_public_key_alone(
    agents: Agents, container: Container, tmp_path: Path
) -> None:
    submitted(container)
    target, public = str(tmp_path / "outside.jsonl"), tmp_path / "public.pem"
    assert agents("events", "anchor", target, "--format", "json").json
    public.write_text(agents("events", "anchor", "--print-public-key").out)
    for name in ("audit.key", "anchor.key"):
        (container.state_directory / name).unlink()
    verify = ("events", "verify", "--anchor", target)
    unknown = agents(*verify)
    assert (unknown.code, "pass --public-key FILE" in unknown.err) == (2, True)
    assert agents(*verify, "--public-key", str(public)).code == 1, "the key of the head is gone"
    told = agents(*verify, "--public-key", str(public), "--without-head")
    assert (told.code, told.out.splitlines()[0]) == (0, "1 event, verified")
    assert agents("events", "verify", "--without-head").code == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "no target for anchors"),
        (("{state}/anchors.jsonl",), "is beside the log"),
        (("http://anchors.example/",), "use https://"),
        (("{home}/out.jsonl", "--key", "{home}/none"), "none cannot be read: No such file"),
    ],
)
def test_an_anchor_that_would_not_help_is_refused(
    agents: Agents, container: Container, home: Path, words: tuple[str, ...], problem: str
) -> None:
    submitted(container)
    given = [word.format(state=container.state_directory, home=home) for word in words]
    refused = agents("events", "anchor", *given)
    assert (refused.code, problem in refused.err) == (2, True), refused.err


# ── Doctor ────────────────────────────────────────────────────────────────────────────────────────


def verdicts(ended: Ended) -> dict[str, str]:
    assert isinstance(ended.json, list)
    return {row["check"]: row["verdict"] for row in ended.json}


def test_doctor_passes_and_changes_nothing_in_a_fresh_home(agents: Agents, home: Path) -> None:
    ended = agents("doctor", "--format", "json")
    assert ended.code == 0
    assert {"python", "git", "sqlite", "configuration", "state directory", "database"} <= set(verdicts(ended))
    assert "fail" not in verdicts(ended).values()
    assert list(home.iterdir()) == []


def test_doctor_looks_into_the_state(agents: Agents, container: Container) -> None:
    submitted(container)
    submitted(container)
    claimed(container)
    dead = container.processes.identity("worker-2")
    dead = type(dead)(dead.id, dead.host, dead.pid, dead.started_ticks + 1)
    assert container.jobs.claim(dead, ["demo"], now=NOW) is not None
    ended = agents("doctor", "--format", "json")
    assert (ended.code, verdicts(ended)["jobs"]) == (0, "warn")
    assert "the worker died: " in ended.out
    assert f"schema {HEAD}, writable, journal mode wal" in ended.out


def test_doctor_finds_processes_that_outlived_their_job(agents: Agents, container: Container) -> None:
    job = submitted(container)
    fence = claimed(container).fence
    process = process_of(container, marker_of(job.id, fence))
    foreign = process_of(container, "of-another-database:1")
    try:
        assert verdicts(agents("doctor", "--format", "json"))["processes"] == "ok"
        container.jobs.finish(job.id, fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
        ended = agents("doctor", "--format", "json")
        assert (verdicts(ended)["processes"], f"{process.pid} of job {job.id}" in ended.out) == ("warn", True)
    finally:
        process.communicate(b"\n")
        foreign.communicate(b"\n")


def process_of(container: Container, marker: str) -> subprocess.Popen[bytes]:
    """A process that carries the marker and lives until it is told something."""
    marked = {**os.environ, **container.processes.environment(marker)}
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=marked)


def test_doctor_finds_a_damaged_database(agents: Agents, home: Path) -> None:
    file = home / ".local/share/cleveragents/state.db"
    with Container(load_configuration(os.environ, home).settings) as container:
        for _ in range(200):
            submitted(container)
    content = bytearray(file.read_bytes())
    assert len(content) > 100_000
    # Behind the schema, in the middle of the rows.
    content[-40_000:-20_000] = b"\x55" * 20_000
    file.write_bytes(bytes(content))
    ended = agents("doctor", "--format", "json")
    assert (ended.code, verdicts(ended)["database"]) == (1, "fail")


@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells who holds a lock")
def test_doctor_names_a_process_stopped_during_a_write(agents: Agents, container: Container) -> None:
    submitted(container)
    child = start_child("stop_in_a_write", container.settings.database.url, "theirs")
    child.wait_ready()
    child.go()
    os.waitpid(child.process.pid, os.WUNTRACED)
    try:
        ended = agents("doctor", "--format", "json")
    finally:
        os.kill(child.process.pid, signal.SIGCONT)
        child.wait_end()
    found = next(row for row in ended.json if row["check"] == "database")
    assert found["verdict"] == "fail"
    assert f"process {child.process.pid} " in found["finding"]
    assert found["finding"].endswith("is in the middle of a write and is stopped")
    assert f"`kill -CONT {child.process.pid}` resumes it" in found["remedy"]


def test_doctor_minds_versions_and_space(tmp_path: Path) -> None:
    found = [
        checks.python((3, 10, 4)),
        checks.sqlite((3, 34, 1)),
        checks.disk_space(tmp_path, free=10 << 20),
        checks.disk_space(tmp_path, free=500 << 20),
    ]
    assert [check.verdict.value for check in found] == ["fail", "fail", "fail", "warn"]
    assert all(check.remedy for check in found)


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_doctor_names_missing_programs_and_remedies(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = home / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    ended = agents("doctor", "--format", "json")
    assert (ended.code, verdicts(ended)["git"], verdicts(ended)["bubblewrap"]) == (1, "fail", "warn")
    assert "install git 2.38 or later" in ended.out
    assert ended.err.endswith("checks failed: git\n")
    executable(tools / "git", "echo git version 2.20.1")
    executable(tools / "bwrap", "echo no permissions >&2; exit 1")
    ended = agents("doctor", "--format", "json")
    assert (verdicts(ended)["git"], verdicts(ended)["bubblewrap"]) == ("fail", "warn")
    assert "git version 2.20.1 is too old" in ended.out
    assert "no permissions" in ended.out
    executable(tools / "git", "echo what")
    assert "prints no version" in agents("doctor").out


def test_doctor_minds_the_state_directory(agents: Agents, home: Path) -> None:
    state = home / ".local/share/cleveragents"
    state.mkdir(parents=True, mode=0o755)
    assert verdicts(agents("doctor", "--format", "json"))["state directory"] == "warn"
    state.rmdir()
    state.write_text("")
    assert verdicts(agents("doctor", "--format", "json"))["state directory"] == "fail"


def test_a_read_only_file_system_has_its_own_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    found = checks.state_directory(tmp_path)
    assert found.finding == f"{tmp_path} is on a read-only file system"
    assert found.remedy is not None
    assert found.remedy.startswith("remount it writable, or set state.directory")


def findings(ended: Ended) -> dict[str, str]:
    assert isinstance(ended.json, list)
    return {row["check"]: row["finding"] for row in ended.json}


def test_doctor_minds_a_place_where_no_database_can_ever_be_made(agents: Agents, home: Path) -> None:
    (home / "file").write_text("in the way")
    (home / "file").chmod(0o755)
    (home / "link").symlink_to(home / "nowhere")
    before = sorted(home.rglob("*"))
    for place, why in {
        "/proc/nowhere/state.db": "/proc is on proc, which allows no new files",
        f"{home}/file/below/state.db": f"{home}/file is not a directory",
        f"{home}/link/state.db": f"{home}/link is a broken link",
    }.items():
        ended = agents("--set", f"database.url=sqlite:///{place}", "doctor", "--format", "json")
        assert (ended.code, verdicts(ended)["database"]) == (1, "fail")
        assert findings(ended)["database"] == f"{place} does not exist and cannot be created: {why}"
        assert "set database.url" in ended.out
        ended = agents("--set", f"state.directory={Path(place).parent}", "doctor", "--format", "json")
        assert (verdicts(ended)["state directory"], verdicts(ended)["database"]) == ("fail", "fail")
    assert sorted(home.rglob("*")) == before


def test_a_place_that_is_not_ours_to_write_is_an_obstacle(tmp_path: Path) -> None:
    guarded = tmp_path / "guarded"
    guarded.mkdir(mode=0o555)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)  # permissions do not bind root
    try:
        why = checks.obstacle(guarded / "below" / "state.db")
    finally:
        os.seteuid(me)
    assert why is not None
    assert why.endswith(" is not writable")
    guarded.chmod(0o755)
    assert checks.obstacle(guarded / "below" / "state.db") is None
    assert list(guarded.iterdir()) == []


def test_doctor_runs_no_program_of_the_current_directory(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry of PATH is the current directory, and a repository may hold a `git` of its own."""
    for name in ("git", "bwrap"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.pathsep}{os.environ['PATH']}")
    agents("doctor")
    assert not (tmp_path / "ran").exists()


def test_tools_are_listed_and_described(agents: Agents) -> None:
    listed = json.loads(agents("tool", "list", "--format", "json").out)
    assert {"command", "edit", "read", "write"} <= {tool["name"] for tool in listed}
    assert {tool["name"]: tool["writes"] for tool in listed}["read"] is False
    shown = json.loads(agents("tool", "show", "edit", "--format", "json").out)
    assert {"path", "old", "new"} <= set(shown["input"]["properties"])
    unknown = agents("tool", "show", "edti")
    assert (unknown.code, "edit" in unknown.err) == (2, True)


def test_a_notice_is_repeated_only_if_it_cannot_be_recorded(tmp_path: Path) -> None:
    kept = tmp_path / "told"
    assert [_is_news(kept, words) for words in ("one", "one", "two", "one", "two")] == [
        *(True, False),
        *(True, False, False),
    ]
    assert [_is_news(tmp_path / "nowhere" / "told", "one") for _ in range(2)] == [True, True]


def test_a_notice_is_reset_when_commands_are_isolated_again(tmp_path: Path) -> None:
    kept, works, does_not = tmp_path / "told", BubblewrapProbe("true"), BubblewrapProbe("false")
    assert _is_news(kept, "one")
    does_not.result()
    for probe in (works, does_not):  # the one does not know it yet
        _forget(kept, probe)
    assert not _is_news(kept, "one")
    works.result()
    for _ in range(2):
        _forget(kept, works)
    assert _is_news(kept, "one")


def test_a_list_of_plans_that_is_empty_says_whether_others_were_left_out(agents: Agents) -> None:
    assert "no plans yet; start one with `agents run`" in agents("plan", "list").err
    assert "no plans match" in agents("plan", "list", "--state", "waiting").err
