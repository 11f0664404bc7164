"""The metadata that a replaced file keeps, and the privileges that new content does not get."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.apply.exchange import (
    Metadata,
    Place,
    for_new_content,
    read_metadata,
    write_metadata,
)
from cleveragents.core.change import EXECUTABLE, REGULAR, Difference, FileState

PLAIN, PROGRAM = FileState(REGULAR, "a"), FileState(EXECUTABLE, "b")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "file").write_bytes(b"content")
    directory = os.open(tmp_path, os.O_RDONLY)
    yield directory, "file"
    os.close(directory)


@pytest.mark.parametrize(
    ("mode", "change", "becomes"),
    [
        (0o644, Difference(PLAIN, PROGRAM), 0o755),
        (0o640, Difference(PLAIN, PROGRAM), 0o750),
        (0o744, Difference(PROGRAM, PLAIN), 0o644),
        (0o600, Difference(PROGRAM, PROGRAM), 0o600),
        (0o2664, Difference(PLAIN, PLAIN), 0o2664),
        (0o4755, Difference(PROGRAM, PROGRAM), 0o755),
    ],
)
def test_new_content_keeps_permissions_but_not_setuid(mode: int, change: Difference, becomes: int) -> None:
    attributes = (("security.capability", b"\1"), ("user.origin", b"here"))
    kept = for_new_content(Metadata(stat.S_IFREG | mode, 1, 2, attributes), change)
    assert kept == Metadata(stat.S_IFREG | becomes, 1, 2, (("user.origin", b"here"),))


def test_metadata_round_trips(place: Place) -> None:
    status = os.stat(place[1], dir_fd=place[0])
    attributes = (("user.a", b""), ("user.b", b"\0\xff"))
    metadata = Metadata(stat.S_IFREG | 0o2751, status.st_uid, status.st_gid, attributes)
    write_metadata(place, metadata)
    assert read_metadata(place) == metadata
    write_metadata(place, Metadata(stat.S_IFREG | 0o600, status.st_uid, status.st_gid, attributes[1:]))
    assert read_metadata(place) == Metadata(
        stat.S_IFREG | 0o600, status.st_uid, status.st_gid, attributes[1:]
    )


def test_a_missing_file_has_no_metadata(tmp_path: Path, place: Place) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_metadata((place[0], "pipe")) is None
    assert read_metadata((place[0], "missing")) is None


def test_a_file_whose_owner_cannot_be_kept_loses_setuid_and_setgid(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, uid: int, gid: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    status = os.stat(place[1], dir_fd=place[0])
    write_metadata(place, Metadata(stat.S_IFREG | 0o6755, status.st_uid + 1, status.st_gid))
    assert stat.S_IMODE(os.stat(place[1], dir_fd=place[0]).st_mode) == 0o2755
    write_metadata(place, Metadata(stat.S_IFREG | 0o6755, status.st_uid, status.st_gid + 1))
    assert stat.S_IMODE(os.stat(place[1], dir_fd=place[0]).st_mode) == 0o4755


def test_a_read_only_file_keeps_its_attributes_without_privileges(tmp_path: Path, place: Place) -> None:
    me = os.geteuid()
    user = 65534 if me == 0 else me  # permissions do not bind root
    os.chown(tmp_path / "file", user, -1)
    tmp_path.chmod(0o755)
    status = os.stat(place[1], dir_fd=place[0])
    metadata = Metadata(stat.S_IFREG | 0o444, user, status.st_gid, (("user.origin", b"here"),))
    os.seteuid(user)
    try:
        write_metadata(place, metadata)
        found = read_metadata(place)
    finally:
        os.seteuid(me)
    assert found == metadata
