"""`agents init`: choose a provider and a model, store the key, and test them.

The settings file is changed only after the model has answered, or after the user has agreed to keep settings
that do not work. Keys go to the keyring, never to a file of CleverAgents or to a command line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.completion import complete_model
from cleveragents.cli.failure import report
from cleveragents.cli.output import counted, progress
from cleveragents.cli.prompts import confirmed, prompt_choice
from cleveragents.cli.session import Session, pass_session
from cleveragents.config.entry_points import built_in, install_command
from cleveragents.core.errors import CleverAgentsError, ConfigurationError
from cleveragents.models import providers as modules

if TYPE_CHECKING:
    from cleveragents.models.local_servers import LocalModelServer
    from cleveragents.models.provider import Provider

__all__ = ["init"]


def _built_in_providers() -> dict[str, Provider]:
    """Return the built-in providers with a key, by name."""
    found = (import_module(f"{modules.__name__}.{name}").PROVIDER for name in sorted(built_in(modules)))
    return {one.name: one for one in found if one.variables}


_PROVIDERS = _built_in_providers()
_SECONDS = 60
_NO_TERMINAL = "without a terminal, pass --model PROVIDER/NAME, and --base-url URL for a local server"
_KEYS_EXIST = "set {variable} in the environment, or run `agents init` on a terminal"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The chosen model, `provider/name`, and the address of its server, if it is not the provider's own."""

    model: str
    base_url: str = ""

    @property
    def provider(self) -> str:
        return self.model.partition("/")[0]


@click.command("init")
@click.option("--provider", type=click.Choice([*_PROVIDERS]), help="Provider of the model.")
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model,
    help="Model: PROVIDER/NAME, or NAME with --provider or --base-url.",
)
@click.option("--base-url", metavar="URL", help="URL of an OpenAI-compatible server, such as Ollama.")
@click.option("--yes", is_flag=True, help="Replace an existing default model without asking.")
@pass_session
def init(session: Session, provider: str | None, model: str | None, base_url: str | None, yes: bool) -> None:
    """Set up a provider, its key and a default model, and test them.

    Finds Ollama, LM Studio and llama.cpp on this machine. The key is read from the environment or the
    keyring; a key that you type is stored in the keyring. Other settings and comments in your settings file
    stay. Without a terminal, no question is asked.

    \b
    Example:
      agents init
      agents init --model anthropic/claude-sonnet-4-5
      agents init --base-url http://127.0.0.1:11434/v1 --model qwen3:8b --yes
    """
    from cleveragents.cli.plan.work import interactive

    asks = interactive()
    choice = _given(provider, model, base_url) or _chosen(session, provider, model, base_url, asks=asks)
    if not yes:
        _ensure_replaceable(session, choice, asks=asks)
    _find_key(session, choice, asks=asks)
    _test(session, choice, asks=asks)
    _write(session, choice)
    _check_isolation()
    if asks:
        _offer_completion()
    progress('ready; run `agents run "GOAL"` in a repository')


def _given(provider: str | None, model: str | None, base_url: str | None) -> _Choice | None:
    """Return the choice if the options determine it. Raises `click.UsageError` for a contradiction."""
    if model is None:
        return None
    named = model.partition("/")[0]
    if base_url is not None:
        if provider not in (None, "openai"):
            raise click.UsageError("--base-url is for OpenAI-compatible servers; omit --provider")
        return _Choice(model if named == "openai" else f"openai/{model}", base_url)
    if provider is not None:
        return _Choice(model if named == provider else f"{provider}/{model}")
    if named not in _PROVIDERS or "/" not in model:
        raise click.UsageError(f"--model {model} names no provider: pass PROVIDER/NAME, or --provider")
    return _Choice(model)


def _chosen(
    session: Session, provider: str | None, model: str | None, base_url: str | None, *, asks: bool
) -> _Choice:
    """Ask for the provider, unless it is given, and for the model."""
    from cleveragents.models.local_servers import LocalModelServer, find_local_servers, models_at

    if not asks:
        raise click.UsageError(_NO_TERMINAL)
    if base_url is not None:
        models = models_at(base_url.rstrip("/"))
        if not models:
            raise click.UsageError(f"no model server answers at {base_url}; pass --model as well")
        return _local_model(LocalModelServer("the server", base_url, tuple(models)))
    if provider is not None:
        return _remote_model(session, provider)
    servers = find_local_servers()
    # Installed providers first: Enter must not lead to a missing package.
    providers = sorted(_PROVIDERS, key=lambda name: (not _is_installed(name), not _key_source(name)))
    lines = [f"{_PROVIDERS[name].title}{_provider_state(name)}" for name in providers]
    lines += [f"{one.name} at {one.base_url} ({counted(len(one.models), 'model')})" for one in servers]
    if not servers:
        progress("no local model server answers; for one elsewhere, pass --base-url URL")
    number = _numbered("Provider", lines)
    if number < len(providers):
        return _remote_model(session, providers[number])
    return _local_model(servers[number - len(providers)])


def _numbered(question: str, lines: Sequence[str], usual: int = 0) -> int:
    """Ask for the number of a line and return its index. Enter selects the default."""
    for number, line in enumerate(lines, 1):
        progress(f"  {number}  {line}")
    numbers = [str(number) for number in range(1, len(lines) + 1)]
    return int(prompt_choice(question, numbers, default=numbers[usual])) - 1


def _local_model(server: LocalModelServer) -> _Choice:
    number = _numbered(f"Model of {server.name}", server.models)
    return _Choice(f"openai/{server.models[number]}", server.base_url)


def _remote_model(session: Session, provider: str) -> _Choice:
    from cleveragents.models.catalogue import ModelCatalogue

    _ensure_installed(provider)
    catalogue = ModelCatalogue(session.configuration().settings.models)
    names = [facts.name for facts in catalogue.known() if facts.name.startswith(f"{provider}/")]
    suggested = _PROVIDERS[provider].usual_model
    usual = names.index(suggested) if suggested in names else 0
    return _Choice(names[_numbered("Model", names, usual)])


def _is_installed(provider: str) -> bool:
    module = _PROVIDERS[provider].module
    return module is None or find_spec(module) is not None


def _ensure_installed(provider: str) -> None:
    """Raise `ConfigurationError` if the library of the provider is missing, before a key is asked for."""
    if not _is_installed(provider):
        remedy = install_command(_PROVIDERS[provider].extra or provider)
        raise ConfigurationError("models.default", f"{_PROVIDERS[provider].title} is not installed: {remedy}")


def _provider_state(provider: str) -> str:
    if not _is_installed(provider):
        return " (not installed)"
    return " (key found)" if _key_source(provider) else ""


def _key_source(provider: str) -> str | None:
    """Return the source of the provider's key: a variable of the environment, or the keyring."""
    from cleveragents.models.provider import ask_keyring

    variables = _PROVIDERS[provider].variables
    named = next((name for name in variables if os.environ.get(name, "").strip()), None)
    if named is not None:
        return named
    return "the keyring" if any(ask_keyring(name) for name in variables) else None


def _ensure_replaceable(session: Session, choice: _Choice, *, asks: bool) -> None:
    """Ask before the existing default model, or the address of its server, is replaced. Raises
    `click.UsageError` without a terminal.
    """
    models = session.configuration().settings.models
    current = "" if models.default == choice.model else models.default
    place = models.base_url if choice.base_url != models.base_url and choice.provider == "openai" else ""
    for what, value in (("default model", current), ("address of the model server", place)):
        if not value:
            continue
        if not asks:
            raise click.UsageError(f"the {what} is {value}; pass --yes to replace it")
        if not confirmed(f"The {what} is {value}. Replace it?"):
            raise click.Abort


def _find_key(session: Session, choice: _Choice, *, asks: bool) -> None:
    """Find the key of the provider, or ask for it and store it in the keyring."""
    from cleveragents.models.provider import keep_in_keyring

    if choice.base_url:
        return  # a local server needs none
    source = _key_source(choice.provider)
    variable = _PROVIDERS[choice.provider].variables[0]
    if source is not None:
        progress(f"key: found in {source}")
        return
    if not asks:
        raise click.UsageError(f"no key for {choice.provider}: {_KEYS_EXIST.format(variable=variable)}")
    name = _PROVIDERS[choice.provider].title
    key = str(click.prompt(f"API key of {name} (not shown)", hide_input=True, err=True)).strip()
    session.secrets.add(key)
    os.environ[variable] = key  # for the test below
    if keep_in_keyring(variable, key):
        progress(f"key: stored in the keyring as {variable}")
        return
    progress("key: not stored, because there is no keyring; it is used for this test only")
    progress(f"add `export {variable}=…` to the file that your shell reads at its start")


def _test(session: Session, choice: _Choice, *, asks: bool) -> None:
    """Send a prompt to the model. If the test fails, ask whether to keep the settings, or exit."""
    from cleveragents.api.client import LocalClient

    # Without retries: a user waits for the outcome.
    overrides = (
        f"models.base_url={choice.base_url}",
        f"models.default={choice.model}",
        "models.retries=0",
        f"models.timeout_seconds={_SECONDS}",
    )
    tried = Session(overrides)
    tried.secrets = session.secrets  # a key is masked until the command has ended
    progress(f"testing {choice.model} …")
    try:
        trial = LocalClient(tried.container(), in_front=True).models.test(choice.model)
    except CleverAgentsError as error:
        if not asks:
            raise
        report(error)
        if not confirmed("The test failed. Save these settings anyway?"):
            raise click.exceptions.Exit(error.exit_code) from None
        return
    progress(f"{choice.model} answered in {trial.seconds:.1f} s, cost: {trial.cost}")
    if trial.tool_calls in ("text", "none"):
        progress(
            "the model has no native tool calls, so goals use the actor builtin/solo; pass --check "
            "to verify its work"
        )


def _write(session: Session, choice: _Choice) -> None:
    from cleveragents.api.models import store_model_settings

    place = {"base_url": choice.base_url} if choice.provider == "openai" else {}
    if choice.provider == "openai" and choice.base_url != session.configuration().settings.models.base_url:
        place["key_variable"] = ""  # guard: another server does not get the key of this one
    path = store_model_settings({**place, "default": choice.model})
    progress(f"set models.default to {choice.model} in {path}")


def _check_isolation() -> None:
    from cleveragents.cli.doctor.checks import DoctorVerdict, bubblewrap

    found = bubblewrap()
    progress(f"isolation: {found.finding}")
    if found.verdict is not DoctorVerdict.OK and found.remedy:
        progress(found.remedy)


def _offer_completion() -> None:
    """Ask whether to install the completion of the user's shell, unless it is installed."""
    from cleveragents.cli.completion import completion_file, install_completion, is_installed_in

    shell = Path(os.environ.get("SHELL", "")).name
    file = completion_file(shell, Path.home())
    if file is None or is_installed_in(file):
        return
    if not confirmed(f"Install completion for {shell} in {file}?"):
        return
    try:
        install_completion(shell, file)
    except OSError as error:
        progress(f"completion: not installed: {error.strerror}")
    else:
        progress(f"completion: installed in {file}; start a new shell to use it")
