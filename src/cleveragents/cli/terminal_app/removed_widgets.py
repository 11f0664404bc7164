"""Memory of widgets that left the screen: Textual 8 keeps some of them."""

from __future__ import annotations

from contextlib import suppress

from textual.widgets import Footer

__all__ = ["KeyFooter", "free_removed_widgets"]


def free_removed_widgets() -> None:
    """Let the garbage collector free the painted lines of widgets that were removed.

    Textual 8 caches two styles for each widget, and its cache keeps the painted lines of up to 1,024 widgets,
    removed ones included: 60 MiB after 145 answers of 1,000 words
    (https://github.com/Textualize/textual/issues/6665). The styles are computed again when they are needed.
    """
    with suppress(ImportError, AttributeError):  # private to Textual: a later version may have another cache
        from textual._styles_cache import StylesCache

        StylesCache.get_inner_outer.cache_clear()


class KeyFooter(Footer):
    """The keys of the screen. Keys that are no longer shown are freed.

    The keys are created again whenever the focus or the screen changes, and Textual keeps all former ones
    until `compact` changes (https://github.com/Textualize/textual/issues/6666).
    """

    async def recompose(self) -> None:
        await super().recompose()
        self.mutate_reactive(Footer.compact)  # Textual now forgets the keys that were removed
