"""`python -m benchmarks.localize_history REPOSITORY... --clones FOLDER --language LANGUAGE`: make cases for
`benchmarks.localize` from the history of local clones.

A case is a commit that fixes something. Its message is the question, the commit before it is the code to
search, and the files that it changed are the answer. A commit is taken if

- its message says that something is fixed and describes a symptom (a crash, an error, a wrong result …), and
  is not about tests, documentation, dependencies, builds or style,
- it changed one to three files of the language that are no tests and existed before, in at most 200 lines.

Whatever gives the answer away is removed from the message: paths, links, references to issues, names of
authors, the prefix of the title (which often names a package or a module), the names of the changed files,
and every identifier that occurs in the lines of the fix or in the names of the definitions around them. A
message of which fewer than eight words are left is not taken. The commits of each repository are spread over
its whole history.

The output has one JSON object per line. It contains text of the repositories, so keep it out of version
control.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.localize import clone_of
from benchmarks.localize_report import SUFFIXES, is_candidate

_MOST_FILES = 3
_MOST_LINES = 200
_LEAST_WORDS = 8
_FIXES = re.compile(r"\b(?:fix\w*|resolv\w+|prevent\w*|avoid\w*|correct(?:s|ed|ly)?|clos(?:es|ed) #)", re.I)
_SYMPTOM = re.compile(
    r"\b(?:crash\w*|panic\w*|wrong\w*|incorrect\w*|fail\w*|errors?|exceptions?|throw\w*|broken|breaks?|leak\w*"
    r"|hang\w*|hung|deadlock\w*|regression|missing|not work\w*|doesn't|does not|didn't|isn't|is not|cannot"
    r"|can't|unexpected\w*|invalid|infinite|race|overflow\w*|ignor\w+|lost|duplicat\w+|undefined|null|nil"
    r"|should|truncat\w+|misses|stuck|slow)\b",
    re.I,
)
_OTHER = re.compile(
    r"\b(?:typos?|docs?|documentation|readme|lint\w*|ci|build|tests?|testing|deps?|bump|changelog|release|merge"
    r"|revert|style|refactor\w*|comments?|warnings?|flaky|format|fmt|clippy|javadoc|spelling|upgrade|benchmark"
    r"|workflow|examples?)\b",
    re.I,
)
_PREFIX = re.compile(r"^\s*(?:[\w./*-]+(?:\([^)]*\))?!?(?:,\s*[\w./*-]+)*:\s+|\[[^\]]*\]\s*)+")
_NOISE = re.compile(
    r"https?://\S+|(?:\b\w[\w-]*/[\w-]+)?#\d+|\bgh-\d+|\b[0-9a-f]{7,40}\b|\(\s*\)"
    r"|^\s*(?:co-authored-by|signed-off-by|reviewed-by|change-id|pr-url|cc|see)\b.*$",
    re.I | re.M,
)
_PATH = re.compile(r"\S*\w/\w\S*|\b[\w-]+\.(?:[cm]?[jt]sx?|vue|go|java|rs|py|md|json|toml|ya?ml)\b")
_EMPTY = re.compile(r"[(`'\"][\s.,]*[)`'\"]")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_CODE_LIKE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]|_|\$|\d")


@dataclass(frozen=True, slots=True)
class Fix:
    commit: str
    parent: str
    message: str
    files: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.localize_history", description=__doc__)
    parser.add_argument("repositories", nargs="+", help="owner/name")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--language", choices=sorted(SUFFIXES), required=True)
    parser.add_argument("--most", type=int, default=12, help="cases of each repository")
    options = parser.parse_args(arguments)
    for repository in options.repositories:
        clone = clone_of(options.clones, repository)
        if clone is None:
            print(f"no clone of {repository} in {options.clones}", file=sys.stderr)
            continue
        found = [*_cases(clone, repository, options.language, options.most)]
        print(f"{repository}: {len(found)} cases", file=sys.stderr)
        for case in found:
            print(json.dumps(case))
    return 0


def _cases(clone: Path, repository: str, language: str, most: int) -> Iterator[dict[str, object]]:
    fixes = [*_fixes(clone, language)]
    # Twice as many as wanted, spread over the history, because some messages say too little.
    step = max(1, len(fixes) // (2 * most))
    taken = 0
    for fix in [fix for start in range(step) for fix in fixes[start::step]]:
        question = _question(clone, fix)
        if taken < most and question is not None:
            taken += 1
            yield {
                "id": f"{repository.replace('/', '__')}-{fix.commit[:10]}",
                "repository": repository,
                "base_commit": fix.parent,
                "question": question,
                "files": list(fix.files),
            }


def _fixes(clone: Path, language: str) -> Iterator[Fix]:
    """Return the fixing commits, newest first."""
    log = _git(
        clone, "log", "--no-merges", "--no-renames", "--raw", "-z", "--format=%x01%H %P%n%B%x02", "HEAD"
    )
    for record in log.split("\x01")[1:]:
        head, _, changed = record.partition("\x02")
        ids, _, message = head.partition("\n")
        commit, *parents = ids.split()
        title = message.strip().partition("\n")[0]
        if len(parents) != 1 or _OTHER.search(title) or not _FIXES.search(message):
            continue
        if not _SYMPTOM.search(_PREFIX.sub("", message)):
            continue
        fields = [field for field in changed.replace("\n", "").split("\0") if field]
        changes = list(zip(fields[::2], fields[1::2], strict=False))
        code = [(kind.split()[-1], path) for kind, path in changes if is_candidate(path, language)]
        if 0 < len(code) <= _MOST_FILES and all(kind == "M" for kind, _ in code):
            yield Fix(commit, parents[0], message, tuple(path for _, path in code))


def _question(clone: Path, fix: Fix) -> str | None:
    """Return the message without what gives the answer away; None if it is too short or the fix too long."""
    diff = _git(clone, "diff", "--no-renames", "-U0", fix.parent, fix.commit, "--", *fix.files)
    lines = [line for line in diff.splitlines() if line[:1] in "+-@" and line[:3] not in ("+++", "---")]
    if sum(line[:1] in "+-" for line in lines) > _MOST_LINES:
        return None
    said = {name for line in lines for name in _NAME.findall(line)}
    stems = {re.sub(r"[_-]", "", Path(path).name.partition(".")[0].lower()) for path in fix.files}
    text = _PATH.sub(" ", _NOISE.sub(" ", _PREFIX.sub("", fix.message)))

    def kept(match: re.Match[str]) -> str:
        name = match[0]
        plain = name.lower().replace("_", "").removesuffix("s")
        looks_like_code = _CODE_LIKE.search(name)
        if plain in stems or (looks_like_code and any(plain in stem for stem in stems)):
            return ""
        # A name in the fix is an identifier if it does not look like a word, or is quoted as code.
        quoted = text[match.start() - 1 : match.start()] in "`." and match.start() > 0
        called = text[match.end() : match.end() + 1] in ("`", "(", ".") and name[:1].isupper()
        return "" if name in said and (looks_like_code or quoted or called) else name

    question = re.sub(r"[ \t]+", " ", _EMPTY.sub(" ", _NAME.sub(kept, text))).strip()
    words = [word for word in question.split() if re.search(r"[A-Za-z]{2}", word)]
    return question if len(words) >= _LEAST_WORDS and _SYMPTOM.search(question) else None


def _git(clone: Path, *arguments: str) -> str:
    ended = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=True)
    return ended.stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
