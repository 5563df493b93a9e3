"""The settings: what is wrong with them, what each is and where it came from, with no secret in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amoxi_py.app.redaction import passwords_in
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.config.callers import is_caller_variable
from amoxi_py.config.found import Found
from amoxi_py.config.load import PROFILE_VARIABLE, PROVIDER_VARIABLES, SECRET_KEYS, SETTINGS_FILE, examine_settings
from amoxi_py.config.own_sections import OwnSections, examine_own_sections
from amoxi_py.config.sections import Sections, known_keys, value_of, variable_of
from amoxi_py.config.settings import DATABASE_URL, DEV, PRODUCTION
from amoxi_py.config.sources import FILE, process_environment, read_variables
from amoxi_py.declare.scan import Declarations
from amoxi_py.declare.settings import section_of
from amoxi_py.errors import ConfigError
from amoxi_py.models.lookup import default_model

HIDDEN = "***"
_SHORTEST = 4
_SHORTEST_OF_OTHERS = (
    8  # a variable of another program may only look like a secret, such as TOKENIZERS_PARALLELISM=false
)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|_CALLERS_|_URL$|_URI$|DSN|_PAT$|WEBHOOK")
_URL = re.compile(r"(?<=://)(?P<user>[^/\s]*@)?(?P<place>[^?#\s]*)(?P<more>\S*)")
_PART = re.compile(r"(?P<name>[^?&;=]*=)?[^?&;]+")
_SHOWN_PROVIDERS = {"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A setting as it may be shown: its key or variable, its value as text, and where that came from."""

    key: str
    variable: str
    value: str
    source: str


class Configuration:
    """The settings of the app in a folder, as far as they can be read."""

    def __init__(self, folder: Path, profile: str | None) -> None:
        self.folder = folder.resolve()
        environ = process_environment()
        problems: tuple[str, ...] = ()
        try:
            self.settings, problems = examine_settings(self.folder, profile=profile)
        except ConfigError as error:  # the profile has no usable name
            self.settings, problems = examine_settings(self.folder, profile=PRODUCTION)
            problems = (*error.problems, *problems)
        self.problems = problems
        self._own = OwnSections(models={})
        self.variables = read_variables(self.folder, self.settings.profile, environ)

    def findings(self) -> Iterator[Finding]:
        """Look at the settings as a whole."""
        settings = self.settings
        if not (self.folder / SETTINGS_FILE).is_file():
            text = f"there is no {SETTINGS_FILE} in {self.folder}"
            fix = "change into the app's folder, or make an app with amoxi new"
            yield Finding(check="settings", level="note", text=text, fix=fix)
        for problem in self.problems:
            yield Finding(check="settings", level="error", text=problem, fix="correct it; docs/settings.md lists all")
        for warning in settings.warnings:
            yield Finding(check="settings", level="warning", text=warning, fix="do what it says, or take it out")
        if not self.problems:
            text = f"profile {settings.profile!r}, {len(settings.sources)} of {len(known_keys())} are set"
            yield Finding(check="settings", level="ok", text=text)
        yield from self._look_at_dotenv()
        if not settings.anonymous and not any(caller.door == "api" for caller in settings.callers):
            yield Finding(
                check="settings",
                level="warning",
                text="no caller has a token and visitors are not let in, so nobody but the app's own sign-in can call",
                fix="amoxi token NAME makes a token; or set 'ai.http.anonymous' to true",
            )

    def look_at_own_sections(self, declarations: Declarations | None) -> Iterator[Finding]:
        """Look at the sections that the app's package claims, which is known when it could be searched."""
        if declarations is None:
            return
        self._own = own = examine_own_sections(self.settings, declarations.settings)
        for problem in own.problems:
            fix = "correct it, or the class that is marked with @settings"
            yield Finding(check="settings", level="error", text=problem, fix=fix)
        for warning in own.warnings:
            yield Finding(check="settings", level="warning", text=warning, fix="do what it says, or take it out")
        if declarations.settings and not own.problems:
            sections = ", ".join(sorted(map(section_of, declarations.settings)))
            text = f"the app's own sections fit: {sections}"
            yield Finding(check="settings", level="ok", text=text)

    def shown(self) -> list[Shown]:
        """Return all settings, those of the app's own sections, then providers and callers."""
        sections = Sections.model_construct(
            app=self.settings.app, server=self.settings.server, ai=self.settings.ai, log=self.settings.log
        )
        rows = []
        for key in known_keys():
            value = _as_text(value_of(key, sections), secret=key in SECRET_KEYS)
            source = self.settings.sources.get(key, "default")
            if source == "default":
                value = self._effective(key, value)
                if key == "ai.model":
                    value, source = self._model()
            rows.append(Shown(key=key, variable=variable_of(key), value=value, source=source))
        return rows + self._own_values() + self._providers() + self._callers()

    def hide(self, text: str) -> str:
        """Return a text without any secret that the settings or the environment hold."""
        for secret in self._secrets():
            for form in (secret, repr(secret)[1:-1]):
                text = text.replace(form, HIDDEN)
        return _URL.sub(_without_secrets, text)

    def _effective(self, key: str, value: str) -> str:
        derived = {
            "app.name": self.settings.app_name,
            "ai.http.anonymous": _as_text(self.settings.anonymous),
            "log.format": self.settings.log_format,
        }
        return derived.get(key, value)

    def _model(self) -> tuple[str, str]:
        """Return the model that nobody has named, and the key that decides for it."""
        name = default_model(self.settings.model_variables)
        variable = f"{name.partition(':')[0].upper()}_API_KEY"
        return name, self._source(variable)

    def _own_values(self) -> list[Shown]:
        return [
            Shown(
                key=one.key,
                variable=variable_of(one.key),
                value=_as_text(one.value, secret=one.secret),
                source=one.source or "default",
            )
            for one in self._own.values
        ]

    def _providers(self) -> list[Shown]:
        rows = []
        for name in PROVIDER_VARIABLES:
            given = self.settings.provider.get(name)
            text = given if given and name in _SHOWN_PROVIDERS else _as_text(given, secret=True)
            rows.append(Shown(key=name, variable=name, value=text, source=self._source(name)))
        return rows

    def _callers(self) -> list[Shown]:
        rows = []
        for caller in self.settings.callers:
            variable = variable_of(f"ai.{caller.door}.callers.{caller.name}")
            tokens = f"{len(caller.digests)} tokens set" if len(caller.digests) > 1 else "set"
            rows.append(
                Shown(
                    key=f"{caller.door}:{caller.name}", variable=variable, value=tokens, source=self._source(variable)
                )
            )
        return rows

    def _source(self, variable: str) -> str:
        found: Found | None = self.variables.get(variable) or self.variables.get(variable + FILE)
        return "default" if found is None else found.source

    def _look_at_dotenv(self) -> Iterator[Finding]:
        dotenv = self.folder / ".env"
        if not dotenv.is_file():
            return
        if self.settings.profile != DEV:
            yield Finding(
                check="settings",
                level="note",
                text=f".env is there, but in the profile {self.settings.profile!r} it is not read",
                fix=f"amoxi doctor --profile {DEV} looks at what amoxi dev uses; {PROFILE_VARIABLE} sets the profile",
            )
        if sys.platform != "win32" and dotenv.stat().st_mode & 0o077:
            text = ".env can be read by other users of this machine"
            yield Finding(check="settings", level="warning", text=text, fix="chmod 600 .env")

    def _secrets(self) -> list[str]:
        """Return all secrets, longer ones first."""
        held = {str(found.value) for name, found in self.variables.items() if _holds_secret(name)}
        held |= {part for name in _SHOWN_PROVIDERS for part in _hidden_parts(self.settings.provider.get(name, ""))}
        held = {text for text in held if len(text) >= _SHORTEST_OF_OTHERS}
        held |= set(_of_files(self.variables))
        held |= {str(found.value) for name, found in self.variables.items() if is_caller_variable(name)}
        held |= {part.strip() for text in list(held) for part in text.split(",")}
        held |= {text for name, text in self.settings.provider.items() if name not in _SHOWN_PROVIDERS}
        held |= set(self._own.secrets)
        for secret in (self.settings.server.secret, self.settings.ai.store.listen_url, self.settings.ai.a2a.card_key):
            if secret is not None:
                held.add(secret.get_secret_value())
        for address in (self.settings.provider.get(DATABASE_URL), self.settings.listen_url):
            held |= passwords_in(address or "")
        return sorted((text for text in held if len(text) >= _SHORTEST), key=len, reverse=True)


def _without_secrets(url: re.Match[str]) -> str:
    """Return a URL's part behind its scheme without who asks, the values of its query, and its fragment."""
    user = f"{HIDDEN}@" if url["user"] else ""
    query, _, fragment = url["more"].partition("#")
    query = _PART.sub(lambda part: f"{part['name'] or ''}{HIDDEN}", query)
    return f"{user}{url['place']}{query}{f'#{HIDDEN}' if fragment else ''}"


def _hidden_parts(url: str) -> Iterator[str]:
    """Return what of a URL is not shown, also where it stands without the URL."""
    for found in _URL.finditer(url):
        yield from (found["user"] or "").removesuffix("@").split(":")
        yield from (part.partition("=")[2] or part for part in re.split(r"[?&;#]", found["more"]))


def _holds_secret(name: str) -> bool:
    if name in _SHOWN_PROVIDERS or name.endswith(FILE) or name == variable_of("server.public-url"):
        return False
    return _SECRET_NAME.search(name) is not None


def _of_files(variables: Mapping[str, Found]) -> Iterator[str]:
    for name, found in variables.items():
        plain = name.removesuffix(FILE)
        if name.endswith(FILE) and (_holds_secret(plain) or is_caller_variable(plain)):
            try:
                yield Path(str(found.value)).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError):
                continue  # that it cannot be read is said elsewhere


def _as_text(value: Any, *, secret: bool = False) -> str:
    if value is None or value == () or value == []:
        return "not set"
    if secret:
        return "set"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list, set, frozenset)) else str(value)
