"""A stream for a log file that cannot fill the disk."""

from __future__ import annotations

import faulthandler
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from cleveragents.config.error_log import LogStream

LINE = "x" * 1023 + "\n"


def test_a_log_takes_bounded_space(tmp_path: Path) -> None:
    log = tmp_path / "state/terminal-app.log"
    stream = LogStream(log)
    for _ in range(5_000):
        print(LINE, file=stream, end="", flush=True)
    kept = sorted(log.parent.iterdir())
    assert kept == [log, log.with_suffix(".log.1")]
    assert all(one.stat().st_size <= (1 << 20) + 2 * len(LINE) for one in kept)
    assert set(log.read_text()) == {"x", "\n"}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    stream = LogStream(tmp_path / "a.log")
    threads = [
        threading.Thread(target=lambda name=name: [stream.write(f"{name * 80}\n") for _ in range(200)])
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((tmp_path / "a.log").read_text().splitlines()) == sorted(name * 80 for name in "abcd" * 200)


def test_child_processes_and_fault_handlers_write_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "state/a.log"
    with LogStream(log) as stream:
        stream.write("before\n")
        subprocess.run(["sh", "-c", "echo child >&2"], stderr=stream, check=True)
        faulthandler.dump_traceback(stream, all_threads=False)
        assert (stream.encoding, stream.isatty(), stream.fileno()) == ("utf-8", False, stream.fileno())
        descriptor = stream.fileno()
    assert log.read_text().startswith("before\nchild\n")
    assert "test_child_processes" in log.read_text()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_log_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    lost = LogStream(tmp_path / "state/a.log")
    assert lost.write("lost\udc80") == 5
    subprocess.run(["sh", "-c", "echo lost >&2"], stderr=lost, check=True)
    (tmp_path / "link.log").symlink_to(tmp_path / "elsewhere")
    LogStream(tmp_path / "link.log").write("not there")
    assert not (tmp_path / "elsewhere").exists()
