"""The stronger layer wins, a repository only tightens, every mistake is reported at its place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.config import document as editing
from cleveragents.config.document import parse_document, set_value, unset_value
from cleveragents.config.loader import Configuration, load_configuration
from cleveragents.config.settings import RepositoryPolicy, known_keys
from cleveragents.config.values import Layer
from cleveragents.core.errors import CleverAgentsError, ConfigurationError, StoreFull
from cleveragents.core.policy import Capability, profile
from cleveragents.testing.clock import RaiseAt, RecordFaultPoints

KEYS = known_keys()


class Place:
    """A home, a repository in it, and a directory inside the repository."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.repository = self.home / "project"
        self.inside = self.repository / "src" / "deep"
        self.inside.mkdir(parents=True)
        (self.repository / ".git").mkdir()
        self.user_file = self.home / ".config" / "cleveragents" / "config.toml"
        self.user_file.parent.mkdir(parents=True)
        self.repository_file = self.repository / ".cleveragents.toml"
        self.environment: dict[str, str] = {"HOME": str(self.home)}

    def load(self, *overrides: str, at: Path | None = None) -> Configuration:
        return load_configuration(self.environment, at or self.inside, overrides)

    def refusal(self, *overrides: str) -> str:
        with pytest.raises(ConfigurationError) as refused:
            self.load(*overrides)
        assert refused.value.exit_code == 2
        return str(refused.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def value_and_layer(configuration: Configuration, key: str) -> tuple[object, Layer]:
    return configuration.value(KEYS[key]), configuration.origins[key].layer


# ── Precedence ────────────────────────────────────────────────────────────────────────────────────


def test_each_layer_overrides_the_weaker_ones(place: Place) -> None:
    assert value_and_layer(place.load(), "worker.concurrency") == (4, Layer.DEFAULT)
    place.user_file.write_text("[worker]\nconcurrency = 9\n")
    assert value_and_layer(place.load(), "worker.concurrency") == (9, Layer.FILE)
    place.repository_file.write_text("[worker]\nconcurrency = 2\n")
    assert value_and_layer(place.load(), "worker.concurrency") == (2, Layer.REPOSITORY)
    place.environment["CLEVERAGENTS_WORKER_CONCURRENCY"] = "20"
    assert value_and_layer(place.load(), "worker.concurrency") == (20, Layer.ENVIRONMENT)
    assert value_and_layer(place.load("worker.concurrency=30"), "worker.concurrency") == (30, Layer.FLAG)


def test_the_origin_names_file_and_line(place: Place) -> None:
    place.user_file.write_text("# mine\n[log]\nlevel = 'info'\n[worker]\n\nconcurrency = 3\n")
    origins = place.load().origins
    assert str(origins["worker.concurrency"]) == f"{place.user_file}:6"
    assert str(origins["log.level"]) == f"{place.user_file}:3"


def test_state_and_database_follow_the_data_home(place: Place) -> None:
    settings = place.load().settings
    assert settings.state.directory == f"{place.home}/.local/share/cleveragents"
    assert settings.database.url == f"sqlite:///{place.home}/.local/share/cleveragents/state.db"
    place.environment["XDG_DATA_HOME"] = "/data"
    place.environment["XDG_CONFIG_HOME"] = "relative/is/ignored"
    configuration = place.load()
    assert configuration.settings.database.url == "sqlite:////data/cleveragents/state.db"
    assert configuration.user_file == place.user_file
    assert place.load("state.directory=/else").settings.database.url == "sqlite:////else/state.db"


# ── Repositories ──────────────────────────────────────────────────────────────────────────────────

TIGHTER = {
    "database.durability": "full",
    "worker.concurrency": 1,
    "plan.max_parallel": 1,
    "plan.max_depth": 1,
    "plan.max_fan_out": 1,
    "models.concurrency": 2,
    "worker.cancel_grace_seconds": 0.5,
    "sandbox.isolation": "required",
    "plan.project_rules": "deny",
}
JOINED = {"plan.profile"}
LOOSER = {
    "worker.concurrency": 200,
    "plan.max_parallel": 60,
    "plan.max_depth": 16,
    "plan.max_fan_out": 200,
    "models.concurrency": 200,
    "worker.cancel_grace_seconds": 500,
    "sandbox.isolation": "off",
}


def toml(key: str, value: object) -> str:
    section, _, name = key.partition(".")
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"[{section}]\n{name} = {written}\n"


def test_the_cases_cover_every_key_that_a_repository_may_touch() -> None:
    assert set(TIGHTER) | JOINED == {
        k for k, key in KEYS.items() if key.repository is not RepositoryPolicy.NEVER
    }


@pytest.mark.parametrize("key", TIGHTER)
def test_a_repository_may_tighten(place: Place, key: str) -> None:
    place.repository_file.write_text(toml(key, TIGHTER[key]))
    assert value_and_layer(place.load(), key) == (TIGHTER[key], Layer.REPOSITORY)


@pytest.mark.parametrize("key", LOOSER)
def test_a_repository_cannot_loosen(place: Place, key: str) -> None:
    place.repository_file.write_text(toml(key, LOOSER[key]))
    assert value_and_layer(place.load(), key)[1] is Layer.DEFAULT


@pytest.mark.parametrize("brought", ["manual", "full-auto", "ci"])
def test_a_repositorys_profile_is_joined_with_the_users_and_only_tightens(place: Place, brought: str) -> None:
    place.repository_file.write_text(toml("plan.profile", brought))
    joined = profile(place.load().settings.plan.profile)
    for capability in Capability:
        stricter = max(
            profile("supervised").verdict(capability).strictness,
            profile(brought).verdict(capability).strictness,
        )
        assert joined.verdict(capability).strictness >= stricter


def test_a_repository_cannot_lower_the_users_durability(place: Place) -> None:
    place.user_file.write_text("[database]\ndurability = 'full'\n")
    place.repository_file.write_text("[database]\ndurability = 'normal'\n")
    assert value_and_layer(place.load(), "database.durability") == ("full", Layer.FILE)


@pytest.mark.parametrize("layer", [Layer.FILE, Layer.REPOSITORY, Layer.ENVIRONMENT, Layer.FLAG])
def test_the_earlier_word_for_required_isolation_is_accepted_in_every_layer(
    place: Place, layer: Layer
) -> None:
    flags: list[str] = []
    if layer is Layer.FILE:
        place.user_file.write_text(toml("sandbox.isolation", "require"))
    elif layer is Layer.REPOSITORY:
        place.repository_file.write_text(toml("sandbox.isolation", "require"))
    elif layer is Layer.ENVIRONMENT:
        place.environment["CLEVERAGENTS_SANDBOX_ISOLATION"] = "require"
    else:
        flags.append("sandbox.isolation=require")
    assert value_and_layer(place.load(*flags), "sandbox.isolation") == ("required", layer)


def test_isolation_is_off_auto_or_required_in_errors_and_written_files(place: Place) -> None:
    assert KEYS["sandbox.isolation"].choices == ("off", "auto", "required")
    assert "should be 'off', 'auto' or 'required'" in place.refusal("sandbox.isolation=on")
    set_value(place.user_file, KEYS["sandbox.isolation"], "require")
    assert place.user_file.read_text() == toml("sandbox.isolation", "required").replace("'", '"')


def test_a_file_with_an_earlier_word_can_be_edited(place: Place) -> None:
    place.user_file.write_text(toml("sandbox.isolation", "require"))
    set_value(place.user_file, KEYS["sandbox.quota_bytes"], "2000000")
    assert place.load().settings.sandbox.isolation == "required"


@pytest.mark.parametrize("key", sorted(set(KEYS) - set(TIGHTER) - JOINED))
def test_refuses_other_settings_in_a_repositorys_file(place: Place, key: str) -> None:
    sample = place.load().value(KEYS[key])
    place.repository_file.write_text(toml(key, sample))
    assert f"{place.repository_file}:2: a repository may not set {key}" in place.refusal()


def test_the_nearest_repository_file_counts_and_none_outside_a_repository(place: Place) -> None:
    (place.home / ".cleveragents.toml").write_text("[worker]\nconcurrency = 1\n")
    assert place.load().repository_file is None
    assert place.load(at=place.home).repository_file is None
    nearer = place.inside / ".cleveragents.toml"
    nearer.write_text("[worker]\nconcurrency = 2\n")
    place.repository_file.write_text("[worker]\nconcurrency = 3\n")
    assert place.load().repository_file == nearer
    assert place.load(at=place.repository).repository_file == place.repository_file


# ── Mistakes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[worker]\nconcurency = 3\n", ":2: there is no setting 'worker.concurency'; did you mean 'worker.c"),
        ("worker.concurency = 3\n", ":1: there is no setting 'worker.concurency'"),
        ("url = 'x'\n", ":1: there is no setting 'url'; did you mean 'database.url'?"),
        ("[wroker]\n", ":1: there is no setting 'wroker'; did you mean the section [worker]?"),
        ("qqq = 1\n", ":1: there is no setting 'qqq'"),
        ("worker = 3\n", ":1: there is no setting 'worker'"),
        ("[worker]\nconcurrency = '3'\n", ":2: worker.concurrency is '3', but should be a whole number"),
        ("[worker]\nconcurrency = true\n", ":2: worker.concurrency is True, but should be a whole number"),
        ("[worker]\nconcurrency = 0\n", ":2: worker.concurrency is 0, but should be a whole number >= 1"),
        ("[worker.concurrency]\nx = 1\n", "worker.concurrency is {'x': 1}, but should be a whole number"),
        ("[worker]\nlease_seconds = nan\n", ":2: worker.lease_seconds is nan, but should be a number > 0.0"),
        ("[log]\nlevel = 'loud'\n", ":2: log.level is 'loud', but should be 'debug', 'info', 'warning'"),
        ("[database]\nurl = 'sqlite:///here.db'\n", "should name an absolute file: sqlite:////absolute/path.db"),
        ("[database]\nurl = 'mysql://h/x'\n", "should begin with sqlite:////, postgresql://"),
        ("[database]\nurl = ''\n", "database.url is '', but should be text of length >= 1"),
        ("[state]\ndirectory = 'here'\n", "state.directory is 'here', but should be an absolute path"),
        ("[worker]\nheartbeat_seconds = 20\n", "worker.heartbeat_seconds (20) should be at most 0.4 of"),
        ("'worker.concurrency' = 3\n", ":1: 'worker.concurrency' in quotes is not a setting; write worker"),
        ("['worker.concurrency']\n", ":1: 'worker.concurrency' in quotes is not a setting; write worker"),
        ("[worker\n", "not valid TOML: "),
        ("a = " + "[" * 50_000, "not valid TOML: "),
    ],
)  # fmt: skip
def test_reports_a_mistake_in_the_file(place: Place, text: str, problem: str) -> None:
    place.user_file.write_text(text)
    assert problem in place.refusal()


def test_reports_all_mistakes_at_once_one_per_line(place: Place) -> None:
    place.user_file.write_text("[worker]\nconcurency = 3\nlease_seconds = 'x'\n[lgo]\n")
    place.repository_file.write_text(
        "[plan]\nmax_dept = 3\nmax_depth = 'deep'\n[log]\nlevel = 1\n[database]\nurl = 'x'\n"
    )
    place.environment["CLEVERAGENTS_LOG_LEVL"] = "info"
    place.environment["CLEVERAGENTS_WORKER_CONCURRENCY"] = "x"
    own, theirs = place.user_file, place.repository_file
    assert place.refusal("log.levl=info", "log.level", "worker.concurrency=3").splitlines() == [
        f"{own}:2: there is no setting 'worker.concurency'; did you mean 'worker.concurrency'?",
        f"{own}:3: worker.lease_seconds is 'x', but should be a number",
        f"{own}:4: there is no setting 'lgo'; did you mean the section [log]?",
        f"{theirs}:2: there is no setting 'plan.max_dept'; did you mean 'plan.max_depth'?",
        f"{theirs}:3: plan.max_depth is 'deep', but should be a whole number",
        f"{theirs}:5: a repository may not set log.level",
        f"{theirs}:7: a repository may not set database.url",
        "environment: CLEVERAGENTS_LOG_LEVL is not a setting; did you mean CLEVERAGENTS_LOG_LEVEL?",
        "CLEVERAGENTS_WORKER_CONCURRENCY: worker.concurrency is 'x', but should be a whole number",
        "--set: there is no setting 'log.levl'; did you mean 'log.level'?",
        "--set: 'log.level' is not key=value",
    ]


def test_reports_the_first_of_very_many_mistakes(place: Place) -> None:
    place.repository_file.write_text("".join(f"wrong{number} = 1\n" for number in range(50_000)))
    lines = place.refusal().splitlines()
    assert lines[19].startswith(f"{place.repository_file}:20: there is no setting 'wrong19'")
    assert lines[20:] == [f"{place.repository_file}: there may be more; these are the first 20"]


def test_a_long_line_that_is_not_a_section_takes_linear_time(place: Place) -> None:
    place.repository_file.write_text('wrong = """\n[' + " " * 100_000 + '\n"""\nalso = 1\n')
    assert f"{place.repository_file}:4: there is no setting 'also'" in place.refusal()


def test_reports_a_mistake_that_a_stronger_layer_hides(place: Place) -> None:
    place.user_file.write_text("[worker]\nconcurrency = 'x'\n")
    assert f"{place.user_file}:2" in place.refusal("worker.concurrency=3")


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("CLEVERAGENTS_DATABSE_URL", "x", "is not a setting; did you mean CLEVERAGENTS_DATABASE_URL?"),
        ("CLEVERAGENTS_QQQ", "x", "CLEVERAGENTS_QQQ is not a setting"),
        ("CLEVERAGENTS_WORKER_CONCURRENCY", "", "worker.concurrency is '', but should be a whole number"),
        ("CLEVERAGENTS_WORKER_CONCURRENCY", "ℵ₀", "worker.concurrency is 'ℵ₀'"),
    ],
)  # fmt: skip
def test_reports_a_mistake_in_the_environment(place: Place, variable: str, value: str, problem: str) -> None:
    place.environment[variable] = value
    assert problem in place.refusal()


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("log.level", "--set: 'log.level' is not key=value"),
        ("log.levl=info", "--set: there is no setting 'log.levl'; did you mean 'log.level'?"),
        ("log.level=loud", "--set: log.level is 'loud'"),
        ("models.base_url=nonsense", "--set: models.base_url is 'nonsense', but should be a URL"),
        ("models.base_url=http://", "models.base_url is 'http://', but should be a URL"),
        ("models.base_url=http://localhost:99999/v1", "but should be a URL"),
        ("models.default=gpt-4", "models.default is 'gpt-4', but should be provider/name"),
        ("models.fallback=openai/", "models.fallback is 'openai/', but should be provider/name"),
        ("x" * 1_000_000 + "=1", "there is no setting 'xxx"),
    ],
)
def test_reports_a_mistake_in_a_flag_in_one_line(place: Place, override: str, problem: str) -> None:
    message = place.refusal(override)
    assert problem in message
    assert len(message) < 300


def test_refuses_files_that_are_not_settings_files(place: Place) -> None:
    place.user_file.write_bytes(b"\xff\xfe\x00binary")
    assert "is not UTF-8 text" in place.refusal()
    place.user_file.write_text("#" * (1 << 20) + "\n")
    assert "is larger than 1024 KiB" in place.refusal()
    place.user_file.unlink()
    place.user_file.mkdir()
    assert "is not a regular file" in place.refusal()
    place.user_file.rmdir()
    os.mkfifo(place.repository_file)
    assert f"{place.repository_file}: is not a regular file" in place.refusal()


def test_an_empty_file_and_one_with_a_byte_order_mark_are_fine(place: Place) -> None:
    place.user_file.write_text("")
    assert value_and_layer(place.load(), "log.level") == ("warning", Layer.DEFAULT)
    place.user_file.write_bytes(b"\xef\xbb\xbf[log]\nlevel = 'info'\n")
    assert value_and_layer(place.load(), "log.level") == ("info", Layer.FILE)


@given(st.text(max_size=200))
def test_any_text_is_settings_or_a_clear_error(text: str) -> None:
    refused = None
    try:
        parse_document(text, Path("/x.toml"), Layer.FILE)
    except ConfigurationError as error:
        refused = str(error)
    assert refused is None or refused.startswith("/x.toml")


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────────


def test_the_path_of_a_webhook_is_never_shown(place: Place) -> None:
    key = known_keys()["notifications.webhook"]
    assert place.load().shown(key) == ""
    place.environment[key.variable] = "https://me:pw@chat.example:8443/hooks/T0/s3cret?key=s3cret"
    assert place.load().shown(key) == "https://chat.example:8443/***"


@pytest.mark.parametrize("password", ["s3cret", "p@ss/w:rd", "%70%40"])
def test_a_password_is_never_shown(place: Place, password: str) -> None:
    place.environment["CLEVERAGENTS_DATABASE_URL"] = f"postgresql://me:{password}@host/db"
    configuration = place.load()
    assert configuration.shown(KEYS["database.url"]) == "postgresql://me:***@host/db"
    place.environment["CLEVERAGENTS_DATABASE_URL"] = f"mysql://me:{password}@host/db"
    assert password not in place.refusal()


# ── Editing ───────────────────────────────────────────────────────────────────────────────────────


def test_setting_a_value_keeps_comments_and_everything_else(place: Place) -> None:
    place.user_file.write_text("# top\n[worker]\nconcurrency = 3  # enough\n\n[log]\nlevel = 'info'\n")
    assert set_value(place.user_file, KEYS["worker.concurrency"], "5") == 5
    assert (
        place.user_file.read_text() == "# top\n[worker]\nconcurrency = 5  # enough\n\n[log]\nlevel = 'info'\n"
    )
    assert stat.S_IMODE(place.user_file.stat().st_mode) == 0o600


def test_setting_a_value_makes_the_file_and_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "fresh" / "config.toml"
    set_value(path, KEYS["database.url"], "sqlite:////x.db")
    assert tomllib.loads(path.read_text()) == {"database": {"url": "sqlite:////x.db"}}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_linked_file_stays_a_link(place: Place, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    place.user_file.symlink_to(real)
    set_value(place.user_file, KEYS["log.level"], "info")
    assert place.user_file.is_symlink()
    assert tomllib.loads(real.read_text()) == {"log": {"level": "info"}}
    real.unlink()
    real.symlink_to(place.user_file)
    with pytest.raises(ConfigurationError, match="cannot be read: "):
        set_value(place.user_file, KEYS["log.level"], "info")


@pytest.mark.parametrize(
    ("content", "key", "text"),
    [
        ("", "worker.concurrency", "many"),
        ("", "worker.heartbeat_seconds", "29"),
        ("[worker]\nlease_seconds = 4\nheartbeat_seconds = 1\n", "worker.heartbeat_seconds", "2"),
        ("worker = 4\n", "worker.concurrency", "3"),
        ("[[worker]]\nconcurrency = 4\n", "worker.concurrency", "3"),
        ("[worker\n", "worker.concurrency", "3"),
    ],
)
def test_refuses_a_wrong_value_before_writing(place: Place, content: str, key: str, text: str) -> None:
    place.user_file.write_text(content)
    with pytest.raises(ConfigurationError):
        set_value(place.user_file, KEYS[key], text)
    assert place.user_file.read_text() == content


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written: "):
        set_value(tmp_path / "file" / "config.toml", KEYS["log.level"], "info")


@pytest.mark.parametrize(("number", "expected"), [(28, StoreFull), (30, ConfigurationError)])
def test_a_full_or_read_only_disk_leaves_the_old_file(
    place: Place, number: int, expected: type[CleverAgentsError]
) -> None:
    place.user_file.write_text("[log]\nlevel = 'info'\n")
    faults = RaiseAt("config.write.before", lambda: OSError(number, os.strerror(number)))
    with pytest.raises(expected):
        set_value(place.user_file, KEYS["log.level"], "debug", faults=faults)
    assert tomllib.loads(place.user_file.read_text()) == {"log": {"level": "info"}}


UNSET = [
    ("[worker]\nconcurrency = 3  # few\n# y\nlease_seconds = 40\n", "[worker]\n# y\nlease_seconds = 40\n"),
    ("# top\n[worker]\n# many\nconcurrency = 3\n", "# top\n[worker]\n# many\n"),
    ("[log]\nlevel = 'info'\n\n[worker]\nconcurrency = 3\n", "[log]\nlevel = 'info'\n\n"),
    ("[worker]\nconcurrency = 3\n", ""),
    ("worker.concurrency = 3\n[log]\nlevel = 'info'\n", "[log]\nlevel = 'info'\n"),
    ("worker.concurrency = 3\nlog.level = 'info'\nworker.lease_seconds = 40\n",
     "log.level = 'info'\nworker.lease_seconds = 40\n"),
    ("worker = {concurrency = 3, lease_seconds = 40}\n", "worker = { lease_seconds = 40}\n"),
    ("worker = {concurrency = 3}\n", ""),
    ("[worker]\r\nconcurrency = 3\r\nlease_seconds = 40\r\n", "[worker]\r\nlease_seconds = 40\r\n"),
    ("[worker]\nconcurrency = 'wrong'\nlease_seconds = 40\n", "[worker]\nlease_seconds = 40\n"),
    ("[worker.concurrency]\nx = 1\n[log]\nlevel = 'info'\n", "[log]\nlevel = 'info'\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), UNSET)
def test_unsetting_a_value_keeps_comments_and_everything_else(place: Place, before: str, after: str) -> None:
    place.user_file.write_bytes(before.encode())
    assert unset_value(place.user_file, KEYS["worker.concurrency"])
    assert place.user_file.read_bytes().decode() == after
    assert stat.S_IMODE(place.user_file.stat().st_mode) == 0o600
    assert value_and_layer(place.load(), "worker.concurrency") == (4, Layer.DEFAULT)


@pytest.mark.parametrize(
    "content", ["", "[worker]\n", "[worker]\nlease_seconds = 40\n", "[log]\nlevel = 'info'\n"]
)
def test_unsetting_an_unset_value_writes_nothing(place: Place, content: str) -> None:
    place.user_file.write_text(content)
    steps = RecordFaultPoints()
    assert not unset_value(place.user_file, KEYS["worker.concurrency"], faults=steps)
    assert (place.user_file.read_text(), steps.reached) == (content, [])


def test_unsetting_makes_no_file_and_no_directory(tmp_path: Path) -> None:
    assert not unset_value(tmp_path / "fresh" / "config.toml", KEYS["log.level"])
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "[worker]\nheartbeat_seconds = 1\nlease_seconds = 4\n",
            "config unset: worker.heartbeat_seconds (5)",
        ),
        ("worker = 4\n", "config.toml: 'worker' is not a section; remove it, or write [worker]"),
        ("[worker\n", "not valid TOML"),
    ],
)
def test_refuses_an_unset_that_leaves_invalid_settings(place: Place, content: str, problem: str) -> None:
    place.user_file.write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        unset_value(place.user_file, KEYS["worker.heartbeat_seconds"])
    assert problem in str(refused.value)
    assert place.user_file.read_text() == content


def test_each_of_several_wrong_values_can_be_corrected(place: Place) -> None:
    place.user_file.write_text("[worker]\nconcurrency = 'x'\nunknown = 4\n[log]\nlevel = 'x'\nformat = 'x'\n")
    set_value(place.user_file, KEYS["worker.concurrency"], "3")
    set_value(place.user_file, KEYS["log.level"], "info")
    assert unset_value(place.user_file, KEYS["log.format"])
    assert place.user_file.read_text() == '[worker]\nconcurrency = 3\nunknown = 4\n[log]\nlevel = "info"\n'


KILLED = """
import sys
from pathlib import Path
from cleveragents.config.document import parse_document
from cleveragents.config.document import set_value
from cleveragents.config.settings import known_keys
from cleveragents.testing.clock import CrashAt
set_value(Path(sys.argv[1]), known_keys()["log.level"], "debug", faults=CrashAt(sys.argv[2]))
"""


def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(place: Place) -> None:
    steps = RecordFaultPoints()
    set_value(place.user_file, KEYS["log.level"], "info", faults=steps)
    assert steps.reached[-1] == "config.rename.after"
    for step in steps.reached:
        place.user_file.write_text("[log]\nlevel = 'info'\n")
        ended = subprocess.run([sys.executable, "-c", KILLED, place.user_file, step], check=False)
        assert ended.returncode == -9
        expected = "debug" if step == "config.rename.after" else "info"
        assert tomllib.loads(place.user_file.read_text()) == {"log": {"level": expected}}
        set_value(place.user_file, KEYS["log.format"], "json")
        assert [f.name for f in place.user_file.parent.iterdir() if f.name.endswith(".new")] == []


def test_two_editors_at_once_lose_nothing(place: Place) -> None:
    wanted = {
        "worker.concurrency": ["7"] * 10,
        "events.queue_bound": ["77"] * 10,
        "log.level": ["debug"] * 10,
        "log.format": ["json"] * 10,
    }
    edits = [
        (key, text)
        for row in zip(*([(k, t) for t in ts] for k, ts in wanted.items()), strict=True)
        for key, text in row
    ]
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(set_value, place.user_file, KEYS[key], text) for key, text in edits]
        assert [future.exception() for future in done] == [None] * len(edits)
    settings = place.load().settings
    assert (settings.worker.concurrency, settings.events.queue_bound) == (7, 77)
    assert (settings.log.level, settings.log.format) == ("debug", "json")


def test_gives_up_if_another_editor_holds_the_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "_LOCK_SECONDS", 0.0)
    with editing._turn(place.user_file.parent / ".config.lock"), pytest.raises(CleverAgentsError) as refused:
        set_value(place.user_file, KEYS["log.level"], "debug")
    assert refused.value.exit_code == 75
