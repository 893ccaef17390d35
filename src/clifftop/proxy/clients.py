"""What a client must be told so that it comes to our proxy, and whom it would have gone to.

Each client has its own rules of which setting beats which; they stand here as they were seen. Reads
the client's settings files, writes nothing. Their values may be secrets: only base URLs leave this
module for people's eyes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from clifftop.errors import SettingsError
from clifftop.proxy.settings import ProxySettings

BASE_URL = "ANTHROPIC_BASE_URL"
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
RUN_HEADER = "x-clifftop-run"
NO_PROXY = ("NO_PROXY", "no_proxy")
PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", *NO_PROXY)
OTHER_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
"""With one of these on, Claude Code has no use for a base URL."""

VENDOR = "https://api.anthropic.com"
ENVIRONMENT = "environment"


class Setting(NamedTuple):
    """A value, and who names it: `environment`, `--settings`, or a file.

    `beats_ours`: whatever `run` passes to the client, this wins.
    """

    value: str
    source: str
    beats_ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a client runs. `managed`: the folder of the settings that an administrator makes."""

    environ: Mapping[str, str]
    home: Path
    cwd: Path
    managed: Path = field(default_factory=lambda: managed_folder(sys.platform))

    @property
    def config(self) -> Path:
        """Claude Code's own folder."""
        named = self.environ.get("CLAUDE_CONFIG_DIR")
        return self.cwd / named if named else self.home / ".claude"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a client.

    `private_settings`: what to write to `settings_file` of `launch_of`, for its owner only, before
    the start; None where no file is needed.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    private_settings: str | None = None


def client_of(command: str) -> str | None:
    """Recognise a client by its command's name; None for one that we know nothing about."""
    return "claude" if PurePath(command).name == "claude" else None


def managed_folder(platform: str) -> Path:
    """Give the folder of Claude Code's managed settings."""
    if platform == "darwin":
        return Path("/Library/Application Support/ClaudeCode")
    return Path("/etc/claude-code")


def upstream_of(argv: Sequence[str], place: Place) -> Setting | None:
    """Find the base URL that a client would use by itself; None for its vendor's.

    Raises:
        SettingsError: it is no URL that we could relay to; says where it stands.
    """
    found = setting_of(BASE_URL, argv, place)
    # Seen: an empty value in one file covers those below it, and means the vendor.
    if found is None or not found.value:
        return None
    try:
        ProxySettings(anthropic_upstream=found.value)
    except SettingsError as error:
        said = str(error).removeprefix("anthropic-upstream").lstrip(": ")
        raise SettingsError(f"{BASE_URL} from {found.source}: {said}") from error
    return found


def setting_of(name: str, argv: Sequence[str], place: Place) -> Setting | None:
    """Find an environment variable as the client will see it: its settings files beat ours."""
    if client_of(argv[0]) == "claude":
        for source in _claude_sources(argv[1:], place):
            if name in source.values:
                return Setting(source.values[name], source.name, source.beats_ours)
    value = place.environ.get(name)
    return None if value is None else Setting(value, ENVIRONMENT)


def obstacles(argv: Sequence[str], place: Place) -> list[str]:
    """Say what will keep a client from coming through, each in one sentence."""
    found: list[str] = []
    if client_of(argv[0]) is None:
        return found
    managed = setting_of(BASE_URL, argv, place)
    if managed is not None and managed.beats_ours:
        found.append(
            f"{managed.source} sets {BASE_URL}, and managed settings beat ours: "
            f"claude will not come through clifftop"
        )
    for name in OTHER_PROVIDERS:
        other = setting_of(name, argv, place)
        if other is not None and other.value.lower() in ("1", "true", "yes", "on"):
            found.append(f"{name} is on ({other.source}): claude ignores {BASE_URL} then")
    return found


def launch_of(
    argv: Sequence[str], place: Place, *, base_url: str, run: str, settings_file: Path
) -> Launch:
    """Prepare a client's command and environment so that it comes to `base_url`.

    `run`: a tag that the client sends as `x-clifftop-run`. `settings_file`: where the launch may
    put settings that belong on no command line.
    """
    environ = dict(place.environ)
    environ[BASE_URL] = base_url
    # settings.json beats the environment, --settings beats both.
    settings_env = {BASE_URL: base_url}
    for name, value in _without_proxy(argv, place).items():
        found = setting_of(name, argv, place)
        (environ if found is None or found.source == ENVIRONMENT else settings_env)[name] = value
    headers = setting_of(HEADERS, argv, place)
    if headers is None or headers.source == ENVIRONMENT:
        tag = f"{RUN_HEADER}: {run}"
        environ[HEADERS] = f"{headers.value.rstrip()}\n{tag}" if headers else tag
    # Else they stand in a settings file. To win over it they would go on a command line that every
    # user of this computer can read, and such headers may be credentials: the tag is not worth it.
    if client_of(argv[0]) is None:
        return Launch(argv=tuple(argv), environ=environ)
    return _claude_launch(argv, place, environ, settings_env, settings_file)


def proxy_environ(argv: Sequence[str], place: Place) -> dict[str, str]:
    """Give the environment of our proxy: its way out is the one that the client would have taken.

    Claude Code's users are told to put HTTPS_PROXY into settings.json.
    """
    environ = dict(place.environ)
    for name in PROXY_VARIABLES:
        found = setting_of(name, argv, place)
        if found is not None:
            environ[name] = found.value
    return environ


def _without_proxy(argv: Sequence[str], place: Place) -> dict[str, str]:
    """Add our address to what the client reaches without a proxy."""
    named = {name: setting_of(name, argv, place) for name in NO_PROXY}
    values = {name: found.value for name, found in named.items() if found and found.value}
    either = next(iter(values.values()), "")
    return {
        name: ",".join(filter(None, [values.get(name, either).strip(" ,"), "127.0.0.1"]))
        for name in NO_PROXY
    }


# Claude Code: seen with 2.1.332


class _Source(NamedTuple):
    """The `env` of one settings file."""

    name: str
    values: Mapping[str, str]
    beats_ours: bool = False


def _claude_sources(arguments: Sequence[str], place: Place) -> Iterator[_Source]:
    """Yield who sets variables, the strongest first; the environment comes behind all of them."""
    drop_ins = sorted(place.managed.glob("managed-settings.d/*.json"), reverse=True)
    for path in (*drop_ins, place.managed / "managed-settings.json"):
        yield _Source(f"managed settings {path}", _env_of(_read(path)), beats_ours=True)
    given = _option(arguments, "--settings")
    if given is not None:
        settings, is_file = _given_settings(given, place)
        name = f"--settings {place.cwd / given}" if is_file else "--settings"
        yield _Source(name, _env_of(settings))
    allowed = _option(arguments, "--setting-sources")
    kinds = {"user", "project", "local"} if allowed is None else set(allowed.split(","))
    local = Path(".claude", "settings.local.json")
    # Of the local files the repository's beats the folder's; a project's settings are looked for in
    # the working folder only.
    for kind, path in (
        ("local", (_repository(place.cwd) or place.cwd) / local),
        ("local", place.cwd / local),
        ("project", place.cwd / ".claude" / "settings.json"),
        ("user", place.config / "settings.json"),
    ):
        if kind in kinds:
            yield _Source(str(path), _env_of(_read(path)))


def _claude_launch(
    argv: Sequence[str],
    place: Place,
    environ: Mapping[str, str],
    settings_env: Mapping[str, str],
    settings_file: Path,
) -> Launch:
    """Put our settings in front of the arguments, merged into the user's own.

    A file's merged copy is a file too: it may hold tokens, and a command line is no place for them.
    """
    given = _option(argv[1:], "--settings")
    theirs, is_file = _given_settings(given, place) if given is not None else ({}, False)
    arguments, private = list(argv[1:]), None
    if theirs is None:
        # It cannot be read. Of two --settings the last one counts: the client says what is wrong.
        merged = json.dumps({"env": settings_env})
    else:
        env = theirs.get("env")
        merged = json.dumps(
            {**theirs, "env": {**(env if isinstance(env, dict) else {}), **settings_env}}
        )
        arguments = _without_option(arguments, "--settings")
        if is_file:
            merged, private = str(settings_file), merged
    return Launch(
        argv=(argv[0], "--settings", merged, *arguments), environ=environ, private_settings=private
    )


def _given_settings(given: str, place: Place) -> tuple[dict[str, object] | None, bool]:
    """Read the value of --settings: JSON or the name of a file; was it a file?"""
    text = given.strip()
    if text.startswith("{") and text.endswith("}"):
        return _parse(text), False
    return _read(place.cwd / given), True


def _option(arguments: Sequence[str], name: str) -> str | None:
    """Give an option's value; of several the last one's, as the client reads them."""
    found = None
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == name and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(f"{name}="):
            found = argument.removeprefix(f"{name}=")
    return found


def _without_option(arguments: Sequence[str], name: str) -> list[str]:
    kept: list[str] = []
    index = 0
    while index < len(arguments):
        if arguments[index] == "--":
            return [*kept, *arguments[index:]]
        if arguments[index] == name:
            index += 2
            continue
        if not arguments[index].startswith(f"{name}="):
            kept.append(arguments[index])
        index += 1
    return kept


def _repository(folder: Path) -> Path | None:
    return next((at for at in (folder, *folder.parents) if (at / ".git").exists()), None)


def _read(path: Path) -> dict[str, object] | None:
    """Read a settings file; None for one that the client cannot read either."""
    try:
        return _parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return None


def _parse(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _env_of(settings: Mapping[str, object] | None) -> dict[str, str]:
    env = (settings or {}).get("env")
    if not isinstance(env, dict):
        return {}
    return {name: str(value) for name, value in env.items() if isinstance(value, str | int | float)}
