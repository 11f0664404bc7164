"""Concurrent applies to one resource: one at a time, none lost, and the files match the journal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import func, select

from cleveragents.apply.lock import resource_lock, try_resource_lock
from cleveragents.core.errors import ApplyBusy, ApplyConflict
from cleveragents.storage.tables import applies
from tests.apply_bench import World, world_at
from tests.races.naive_apply import WritesFilesOneByOne

PLANS = 6
GAP = 4
LINES = b"".join(b"line %d\n" % n for n in range(PLANS * GAP))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_at(tmp_path, {"shared": LINES, "other": b"x\n"}) as made:
        yield made


def with_line(number: int, text: bytes) -> bytes:
    lines = LINES.split(b"\n")
    lines[number * GAP] = text
    return b"\n".join(lines)


def at_once(work: list[threading.Thread]) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def all_lines(content: bytes) -> list[bytes]:
    return content.split(b"\n")[::GAP][:PLANS]


def test_plans_that_change_different_lines_of_one_file_all_apply_at_once(world: World) -> None:
    """All were made from the same base; the file contains all of them at the end."""
    for number in range(PLANS):
        world.plan(f"p{number}", {"shared": with_line(number, b"plan %d" % number), f"own{number}": b"x\n"})
    at_once([threading.Thread(target=world.apply, args=(f"p{number}",)) for number in range(PLANS)])
    content = (world.resource / "shared").read_bytes()
    assert all_lines(content) == [b"plan %d" % number for number in range(PLANS)]
    assert all((world.resource / f"own{number}").exists() for number in range(PLANS))


def test_files_written_without_merging_lose_all_but_one_change(world: World) -> None:
    for number in range(PLANS):
        world.plan(f"p{number}", {"shared": with_line(number, b"plan %d" % number)})
    for number in range(PLANS):
        WritesFilesOneByOne().apply(world.sandboxes[f"p{number}"], world.trees[f"p{number}"])
    content = (world.resource / "shared").read_bytes()
    assert all_lines(content) != [b"plan %d" % number for number in range(PLANS)]


def test_of_concurrent_plans_on_the_same_line_exactly_one_applies(world: World) -> None:
    for number in range(PLANS):
        world.plan(f"p{number}", {"shared": with_line(0, b"plan %d" % number)})
    outcomes: dict[str, str] = {}

    def work(plan: str) -> None:
        try:
            world.apply(plan)
            outcomes[plan] = "applied"
        except ApplyConflict:
            outcomes[plan] = "refused"

    at_once([threading.Thread(target=work, args=(f"p{number}",)) for number in range(PLANS)])
    (winner,) = [plan for plan, outcome in outcomes.items() if outcome == "applied"]
    assert (world.resource / "shared").read_bytes() == with_line(0, b"plan %d" % int(winner[1:]))
    assert len(outcomes) == PLANS
    with world.database.read() as connection:
        assert connection.execute(select(func.count()).select_from(applies)).scalar() == 1


def test_concurrent_applies_of_one_plan_apply_it_once(world: World) -> None:
    world.plan("p", {"shared": LINES + b"added\n", "new": b"n\n"})
    changed: list[int] = []
    work = [threading.Thread(target=lambda: changed.append(len(world.apply("p").changes))) for _ in range(4)]
    at_once(work)
    assert sorted(changed) == [0, 0, 0, 2]
    assert (world.resource / "shared").read_bytes() == LINES + b"added\n"


def test_concurrent_apply_and_undo_leave_one_of_the_two_states(world: World) -> None:
    world.plan("first", {"shared": with_line(0, b"first")})
    world.plan("second", {"shared": with_line(3, b"second")})
    world.apply("first")
    at_once(
        [
            threading.Thread(target=world.undo, args=("first",)),
            threading.Thread(target=world.apply, args=("second",)),
        ]
    )
    assert (world.resource / "shared").read_bytes() == with_line(3, b"second")


def test_constant_saves_of_the_user_are_not_lost(world: World) -> None:
    """Each save is that of an editor: the whole content, by a rename."""
    world.plan("p", {"shared": with_line(0, b"plan")})
    saved: list[bytes] = []
    stop = threading.Event()

    def save() -> None:
        buffer = LINES
        while not stop.is_set():
            saved.append(b"save %d" % len(saved))
            buffer += saved[-1] + b"\n"
            draft = world.home / "draft"
            draft.write_bytes(buffer)
            draft.replace(world.resource / "shared")

    user = threading.Thread(target=save)
    user.start()
    for _ in range(5):
        with suppress(ApplyConflict):
            world.apply("p")
    stop.set()
    user.join()
    # A save after the apply undoes the line of the plan, as it would any other; no save may be missing.
    lines = (world.resource / "shared").read_bytes().split(b"\n")
    assert [line for line in lines if line.startswith(b"save")] == saved
    assert not list((world.resource / ".git").glob("cleveragents"))


PROGRAM = """
import sys
from pathlib import Path
from cleveragents.apply.lock import resource_lock
def told(words): print("waiting", flush=True)
with resource_lock(Path(sys.argv[1]), waiting=told, timeout_seconds=60):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start_holder(resource: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(resource)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )


def test_a_resource_lock_is_exclusive_and_released_on_kill(tmp_path: Path) -> None:
    first = start_holder(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    with try_resource_lock(tmp_path) as held:
        assert not held
    second = start_holder(tmp_path)
    assert second.stdout is not None
    assert second.stdout.readline() == "waiting\n"
    first.kill()
    assert second.stdout.readline() == "held\n"
    second.communicate("go\n", timeout=60)
    first.communicate(timeout=60)
    with try_resource_lock(tmp_path) as held:
        assert held
    assert list(tmp_path.iterdir()) == [], "the lock leaves no file behind"


def test_a_directory_that_replaced_a_locked_one_has_its_own_lock(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    resource.mkdir()
    with resource_lock(resource, timeout_seconds=0):
        resource.rename(tmp_path / "moved")
        resource.mkdir()
        with resource_lock(resource, timeout_seconds=0):
            pass
        with pytest.raises(ApplyBusy), resource_lock(tmp_path / "moved", timeout_seconds=0):
            pass
