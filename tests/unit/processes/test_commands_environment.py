"""The variables of a command, and the kept part of its output."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import redact_text
from cleveragents.processes.environment import command_environment, is_inside, search_path
from cleveragents.processes.guard_process import OutputTail
from cleveragents.processes.passthrough import make_directory, remove_directory
from cleveragents.processes.ports import Command
from cleveragents.processes.program_lookup import find_program, look_up, shebang, tool_directories


def environment(inherited: dict[str, str], *allowed: str, **facts: object) -> dict[str, str]:
    root = Path("/state/sandbox")
    command = Command(("true",), root, root, **facts)
    return command_environment(
        command, inherited, home="/h", temporary="/t", hidden=(Path("/checkout"),), allowed_names=allowed
    )


def test_a_variable_passes_only_by_name() -> None:
    inherited = {
        "API_KEY": "1",
        "OTHER": "2",
        "LC_TIME": "de",
        "LD_PRELOAD": "x",
        "GIT_DIR": "/checkout/.git",
    }
    given_to_it = environment(inherited, "API_KEY")
    assert given_to_it["API_KEY"] == "1"
    assert given_to_it["LC_TIME"] == "de"
    assert not {"OTHER", "LD_PRELOAD", "GIT_DIR"} & given_to_it.keys()


def test_our_own_variables_never_pass() -> None:
    assert "CLEVERAGENTS_TOKEN" not in environment({"CLEVERAGENTS_TOKEN": "x"}, "CLEVERAGENTS_TOKEN")


def test_the_command_overrides_our_values_but_not_the_markers() -> None:
    own = environment({}, environment={"TERM": "xterm", "M": "forged"}, markers={"M": "true"})
    assert own["TERM"] == "xterm"
    assert own["M"] == "true"


def test_programs_in_the_checkout_and_in_relative_directories_are_not_found() -> None:
    path = "/checkout/.venv/bin:.:/usr/bin::bin:/state/sandbox/bin:/usr/bin"
    assert environment({"PATH": path})["PATH"] == "/usr/bin:/state/sandbox/bin"
    assert environment({"PATH": "."})["PATH"] == environment({})["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_only_absolute_entries_of_a_commands_path_count() -> None:
    own = environment({}, environment={"PATH": ".:/checkout/bin::/opt/bin:bin:/opt/bin:"})
    assert own["PATH"] == "/checkout/bin:/opt/bin"
    assert environment({}, environment={"PATH": ":."})["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_programs_in_the_current_directory_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PATH=$UNSET:$PATH` has an empty entry: it would run `./git` of a sandbox or a repository."""
    (tmp_path / "tool-of-no-name").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    assert look_up("tool-of-no-name", f":.:{tmp_path.name}::/usr/bin:") is None
    assert look_up("tool-of-no-name", f":{tmp_path}") == tmp_path / "tool-of-no-name"
    with pytest.raises(ToolRefused, match="program 'tool-of-no-name' not found"):
        find_program(Command(("tool-of-no-name",), tmp_path, tmp_path), ":.", ":.")


def test_directories_pipes_and_text_files_are_skipped(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "tool").mkdir()
    os.mkfifo(tmp_path / "b" / "tool", 0o777)
    (tmp_path / "c" / "tool").touch(mode=0o644)
    path = ":".join(str(tmp_path / name) for name in "abc")
    assert look_up("tool", path) is None
    (tmp_path / "d" / "tool").touch(mode=0o755)
    assert look_up("tool", f"{path}:{tmp_path / 'd'}") == tmp_path / "d" / "tool"


@pytest.mark.parametrize("looks_regular", [False, True])
def test_pipes_and_sockets_are_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_regular: bool
) -> None:
    """Neither an existing one, nor one that replaces a file between the check and the open."""
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    for pipe in (program, tmp_path / "pyvenv.cfg"):
        os.mkfifo(pipe, 0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        listener.bind("socket")
    opened: list[object] = []
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: opened.append(path) or really_open(path, *more))
    if looks_regular:
        monkeypatch.setattr(Path, "is_file", lambda self: True)
    assert shebang(program) is None
    assert bool(opened) == looks_regular, "to open a device can set it to work"
    assert shebang(tmp_path / "socket") is None
    shown = tool_directories([program.parent], program, root=tmp_path, forbidden=())
    assert shown == [] or looks_regular


def test_unreadable_directories_are_skipped(tmp_path: Path) -> None:
    """Such as root's directories, for a user with root's variables. For root: paths that cannot exist."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    for place in (closed / "bin", tmp_path / ("x" * 300)):
        (tmp_path / "tool").write_text(f"#!{place}/python\n")
        (tmp_path / "tool").chmod(0o755)
        (tmp_path / "pyvenv.cfg").write_text(f"home = {place}\n")
        for program in (place / "tool", tmp_path / "bin" / "tool", tmp_path / "tool"):
            assert tool_directories([place], program, root=tmp_path, forbidden=()) == []
        assert look_up("tool", str(place)) is None
        assert "RUSTUP_HOME" not in environment({"RUSTUP_HOME": str(place)})
    closed.chmod(0o700)


def test_git_finds_no_repository_above_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "really").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "really")
    root = tmp_path / "link" / "sandbox" / "tree"
    root.mkdir(parents=True)
    given_to_it = command_environment(Command(("true",), root, root), {}, home="/h", temporary="/t")
    ceilings = given_to_it["GIT_CEILING_DIRECTORIES"].split(":")
    for name in ("link", "really"):
        assert {str(tmp_path / name / "sandbox"), str(tmp_path / name), str(tmp_path)} <= {*ceilings}
    assert len(ceilings) == len({*ceilings})


def test_a_sandbox_inside_a_hidden_place_keeps_its_own_programs() -> None:
    kept = search_path("/state/sandbox/bin:/state/bin", hidden=[Path("/state")], root=Path("/state/sandbox"))
    assert kept == (Path("/state/sandbox/bin"),)


def test_a_link_into_a_place_counts_as_inside(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")
    assert is_inside(tmp_path / "link", [tmp_path / "place"])
    assert is_inside(tmp_path / "place", [tmp_path / "link"])
    assert not is_inside(tmp_path / "placement", [tmp_path / "place"])


def test_a_program_only_on_the_users_path_is_named_in_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(mode=0o755)
    command = Command(("tool",), tmp_path, tmp_path)
    with pytest.raises(ToolRefused, match=f"only at {tmp_path}/tool, which is not visible in a sandbox"):
        find_program(command, "/usr/bin:/no/such/directory", str(tmp_path))
    with pytest.raises(ToolRefused, match="program 'tool-of-no-name' not found"):
        find_program(Command(("tool-of-no-name",), tmp_path, tmp_path), "/no/such/directory", "")


def test_a_private_directory_is_removed_with_any_content(tmp_path: Path) -> None:
    directory = make_directory()
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (directory / "home" / "cache" / "deep").mkdir(parents=True)
    (directory / "home" / "cache" / "deep" / "file").touch()
    (directory / "home" / "link").symlink_to(outside)
    (directory / "home" / "cache").chmod(0o500)
    remove_directory(str(directory))
    remove_directory(str(directory))
    assert not directory.exists()
    assert outside.stat().st_mode & 0o777 == 0o500, "a link was followed"


def test_a_private_directory_is_removed_while_a_dying_process_writes_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = make_directory()
    walk = os.walk

    def walk_and_tidy(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
        for place, below, names in walk(top):
            (directory / "tmp").rmdir()  # it was just listed
            yield place, below, names
            return

    monkeypatch.setattr(os, "walk", walk_and_tidy)
    remove_directory(str(directory))
    assert not directory.exists()


@given(st.lists(st.binary(max_size=300)), st.integers(0, 500))
def test_the_tail_is_the_end_of_the_output(chunks: list[bytes], limit: int) -> None:
    told: list[bytes] = []
    tail = OutputTail(limit, told.append)
    for chunk in chunks:
        tail.append(chunk)
    text, missing = tail.finish()
    whole = b"".join(chunks)
    assert b"".join(told) == whole
    if len(whole) <= limit:
        assert (text, missing) == (whole.decode("utf-8", "backslashreplace"), 0)
    else:
        # At most three bytes of a cut character are dropped, too.
        assert len(whole) - limit <= missing <= len(whole) - limit + 3
        first, _, rest = text.partition("\n")
        assert first == f"[the first {missing} bytes of output are missing]"
        assert rest == whole[missing:].decode("utf-8", "backslashreplace")


def test_a_cut_character_is_dropped() -> None:
    tail = OutputTail(7)
    tail.append("ääää".encode())
    assert tail.finish() == ("[the first 2 bytes of output are missing]\näää", 2)
    tail = OutputTail(5)
    tail.append(b"x" + b"\x80" * 8)
    assert tail.finish() == ("[the first 4 bytes of output are missing]\n" + "\\x80" * 5, 4)


_KEY = "\n".join(f"MIIE{line:02}" + "QUJDRA" * 10 for line in range(20))


@pytest.mark.parametrize("before", [1, 100_000])
@pytest.mark.parametrize(
    ("begin", "value", "end"),
    [
        ("", "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5", ""),
        ("password=", "Tr0ub4dor", ""),
        ('password: "', "several terms in quotes", '"'),
        ("https://me:", "s3cretäöü", "@host/"),
        ("-----BEGIN RSA PRIVATE KEY-----\n", _KEY, "\n-----END RSA PRIVATE KEY-----"),
    ],
)
def test_the_tail_does_not_begin_inside_a_secret(begin: str, value: str, end: str, before: int) -> None:
    """A later mask could not recognize the rest of a cut secret."""
    printed = f"{'x ' * before}{begin}{value}{end} the end".encode()
    secret = len(f"{begin}{value}".encode())
    for cut in range(0, secret, max(secret // 20, 1)):
        tail = OutputTail(len(f"{begin}{value}{end} the end".encode()) - cut)
        tail.append(printed)
        text = tail.finish()[0]
        assert text.endswith(f"{end} the end")
        shown = redact_text(text)
        assert [piece for piece in range(len(value) - 3) if value[piece : piece + 4] in shown] == []


def test_memory_is_bounded_while_it_runs() -> None:
    tail = OutputTail(10)
    for _ in range(1000):
        tail.append(b"x" * 10_000)
    assert len(tail._kept) <= 10 + 65536
    assert tail.finish()[1] == 1000 * 10_000 - 10


def test_an_installation_below_the_users_home_is_passed_by_variable(tmp_path: Path) -> None:
    assert "RUSTUP_HOME" not in environment({"HOME": str(tmp_path)})
    (tmp_path / ".rustup").mkdir()
    assert environment({"HOME": str(tmp_path)})["RUSTUP_HOME"] == str(tmp_path / ".rustup")
    (tmp_path / "elsewhere").mkdir()
    named = environment({"HOME": str(tmp_path), "RUSTUP_HOME": str(tmp_path / "elsewhere")})
    assert named["RUSTUP_HOME"] == str(tmp_path / "elsewhere")
