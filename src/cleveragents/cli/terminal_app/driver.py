"""The driver of the terminal: as Textual's, but input that is not UTF-8 does not end the app."""

from __future__ import annotations

from textual.drivers.linux_driver import LinuxDriver

__all__ = ["TolerantDriver"]

_NOTICE = "The terminal sent a key that is not UTF-8. Set its encoding to UTF-8 to type such characters."


class TolerantDriver(LinuxDriver):
    """Drops input that is not UTF-8, such as an accented letter of a Latin-1 terminal, with the keys that
    arrive at the same time, and says so.
    """

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                self._app.notify(_NOTICE, severity="warning", markup=False)
