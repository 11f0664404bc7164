"""The driver of the terminal: as Textual's, but input that is not UTF-8 does not end the app, and a terminal
that is gone does.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

__all__ = ["TolerantDriver", "end_without_terminal"]

_NOTICE = "The terminal sent a key that is not UTF-8. Set its encoding to UTF-8 to type such characters."
_LONGEST_SECONDS, _LONGEST_ACTION_SECONDS = 10.0, 3600.0
_LOOK_MILLISECONDS = 500
_HUNG_UP = 128 + signal.SIGHUP


def end_without_terminal(app: App[None]) -> None:
    """End the app after its terminal is gone, at the latest after some seconds: threads of Textual may wait
    for the terminal forever. Plans run in processes of their own, and continue. A dialog's action, such as an
    apply with its checks, runs in a thread of the app and gets more time.
    """
    acting = any(getattr(screen, "is_busy", False) for screen in app.screen_stack)
    last = threading.Timer(_LONGEST_ACTION_SECONDS if acting else _LONGEST_SECONDS, os._exit, [_HUNG_UP])
    last.daemon = True
    last.start()
    app.exit(None, _HUNG_UP)


class TolerantDriver(LinuxDriver):
    """Drops input that is not UTF-8, such as an accented letter of a Latin-1 terminal, with the keys that
    arrive at the same time, and says so. Ends the app when the terminal is gone, also without a signal.
    """

    def run_input_thread(self) -> None:
        threading.Thread(target=self._watch, name="terminal-watch", daemon=True).start()
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                self._app.notify(_NOTICE, severity="warning", markup=False)

    def _watch(self) -> None:
        """Wait until the other side of the terminal is closed. Textual would read its end again and again."""
        poller = select.poll()
        poller.register(self.fileno, 0)  # only errors and the hang-up
        while not self.exit_event.is_set():
            if poller.poll(_LOOK_MILLISECONDS):
                self._app.call_later(end_without_terminal, self._app)
                return
