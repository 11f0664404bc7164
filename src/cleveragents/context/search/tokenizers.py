"""Token counting for answers: an estimate, or tiktoken if its data is available.

tiktoken downloads missing or damaged data files. So its file is checked first, and the estimate is used if
the file is not intact. Nothing is ever downloaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from hashlib import sha1, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cleveragents.context.context_parts import CountTokens
from cleveragents.models.tokens import estimate_text

__all__ = ["tokenizer"]

_ADDRESS: Final = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
_DIGESTS: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""The digests that tiktoken expects of its files; it downloads a file with any other digest."""


def tokenizer(
    name: str, environment: Mapping[str, str], digests: Mapping[str, str] = _DIGESTS
) -> tuple[CountTokens, str | None]:
    """Return the named tokenizer and None; or the estimate and the reason why it is used.

    `digests` are those of intact files.
    """
    if name not in digests:
        return estimate_text, None
    if find_spec("tiktoken") is None:
        return estimate_text, f"tokens are estimated: tiktoken, which {name} needs, is not installed"
    if not _is_there(name, environment, digests[name]):
        return estimate_text, f"tokens are estimated: tiktoken has no data for {name} here"
    return _counting(name), None


def _is_there(name: str, environment: Mapping[str, str], digest: str) -> bool:
    fallback = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    directory = environment.get("TIKTOKEN_CACHE_DIR", environment.get("DATA_GYM_CACHE_DIR", fallback))
    key = sha1(_ADDRESS.format(name=name).encode(), usedforsecurity=False).hexdigest()
    try:
        data = (Path(directory) / key).read_bytes() if directory else b""
    except OSError:
        return False
    return sha256(data).hexdigest() == digest  # tiktoken would download any other file again


def _counting(name: str) -> CountTokens:
    import tiktoken

    encoding = tiktoken.get_encoding(name)

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    return count
