"""All that can be set, as frozen sections; a key is the path of its field, with `-` for `_`."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from amoxi_py.surfaces.a2a.push_allowed import parse_allowed


def _list_of_texts(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _model_names(value: Any) -> Any:
    names = _list_of_texts(value)
    if isinstance(names, (list, tuple)) and not names:
        raise ValueError("a name is needed, such as 'offline', or a list of names; leave it out for the default")
    return names[0] if isinstance(names, (list, tuple)) and len(names) == 1 else names


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


def _long_enough(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < 16:
        raise ValueError("use at least 16 characters")
    return secret


def _is_a_proxy(text: str) -> str:
    try:
        ip_network(text)  # an address is one too
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no address and no network: write each as 10.0.0.7 or 10.0.0.0/8"
            " ('*' would let everybody say who they are)"
        ) from error
    return text


def _is_an_origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(
            f"{text!r} is no origin: name each page's, scheme and host in small letters without a path,"
            " such as https://app.example.com"
        )
    return text


def _is_a_place(text: str) -> str:
    parse_allowed([text])
    return text


def _is_a_schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_") or text == "information_schema":
        raise ValueError(
            "use small letters, digits and '_', a letter or '_' first, at most 63 of them;"
            " what begins with pg_, and information_schema, are PostgreSQL's own"
        )
    return text


_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_ORIGIN = re.compile(r"https?://[^/\s*?#@A-Z]+")
_FIELDS = {"schema": "schema_"}  # pydantic has a method of that name

Proxies = Annotated[tuple[Annotated[str, AfterValidator(_is_a_proxy)], ...], BeforeValidator(_list_of_texts)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_is_an_origin)], ...], BeforeValidator(_list_of_texts)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(_is_a_place)], ...], BeforeValidator(_list_of_texts)]
Scopes = Annotated[tuple[Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")], ...], BeforeValidator(_list_of_texts)]
Models = Annotated[
    Annotated[str, Field(min_length=1)] | tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_model_names)
]
Whole = Annotated[int, BeforeValidator(_no_flag)]
Amount = Annotated[float, BeforeValidator(_no_flag), Field(allow_inf_nan=False)]
Seconds = Annotated[float, BeforeValidator(_no_flag), Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A group of settings; it is never changed, and knows no other key than its fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"), hide_input_in_errors=True
    )


class AppSection(Section):
    """The app: its package beside `application.json`, and its name (default: the folder's)."""

    package: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] = "app"
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class ServerSection(Section):
    """Where the server listens, and how it stops; `secret` signs the visitor cookie."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[Whole, Field(ge=0, le=65535)] = 8080
    public_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+(/\S*)?$")] | None = None
    secret: Annotated[SecretStr, AfterValidator(_long_enough)] | None = None
    stop_grace_s: Annotated[Seconds, Field(le=3600)] = 20.0
    trusted_proxies: Proxies = ()
    cors_origins: Origins = ()


class StoreSection(Section):
    """Where runs are kept; `connections` is the most that one process has open to PostgreSQL at once."""

    type: Literal["file", "postgres"] = "file"
    path: Annotated[str, Field(min_length=1)] = "data/ai"
    schema_: Annotated[str, Field(alias="schema"), AfterValidator(_is_a_schema)] = "amoxi"
    listen_url: SecretStr | None = None
    connections: Annotated[Whole, Field(ge=5, le=200)] = 10


class RunsSection(Section):
    """How runs are executed."""

    worker: bool = True
    concurrency: Annotated[Whole, Field(ge=1)] = 2000
    parallel_calls: Annotated[Whole, Field(ge=1)] = 8
    lease_ms: Annotated[Whole, Field(ge=500)] = 30_000
    max_attempts: Annotated[Whole, Field(ge=1)] = 5
    max_in_flight: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    on_busy: Literal["replace", "queue", "reject"] = "replace"


class LimitsSection(Section):
    """What one principal may have at once, in a minute and in a day (of UTC); 0 is no limit."""

    runs_at_once: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    requests_per_minute: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    runs_per_day: Annotated[Whole, Field(ge=0, le=1_000_000_000)] = 0
    tokens_per_day: Annotated[Whole, Field(ge=0, le=1_000_000_000_000)] = 0
    usd_per_day: Annotated[Amount, Field(ge=0, le=1_000_000)] = 0.0


class ToolsSection(Section):
    """Threads for sync tools, and the largest result that a model gets."""

    threads: Annotated[Whole, Field(ge=1)] = 64
    max_result_kb: Annotated[Whole, Field(ge=1)] = 64


class ModelsSection(Section):
    """Requests to the provider at once in one process, 0 for no limit; how long a run waits for one that is away."""

    concurrency: Annotated[Whole, Field(ge=0)] = 0
    max_wait_s: Annotated[Seconds, Field(le=86_400)] = 300.0


class FilesSection(Section):
    """The largest file."""

    max_mb: Annotated[Whole, Field(ge=1)] = 25


class ConversationsSection(Section):
    """How long an idle conversation stays in memory."""

    ttl_s: Seconds = 300.0


class RetentionSection(Section):
    """Days after which what has ended is deleted; None for never."""

    days: Annotated[Whole, Field(ge=1, le=36_500)] | None = None


class MemorySection(Section):
    """The embedder of memories and documents; of each principal's memories: how many, how long, how many at a start."""

    embedder: Annotated[str, Field(min_length=1, max_length=200)] = "offline"
    most: Annotated[Whole, Field(ge=1, le=1_000_000)] = 1000
    days: Annotated[Whole, Field(ge=0, le=36_500)] = 0
    at_start: Annotated[Whole, Field(ge=0, le=50)] = 5


class ApprovalsSection(Section):
    """Seconds after which an undecided approval expires; None for never."""

    expire_after_s: Annotated[Seconds, Field(gt=0)] | None = None


class HttpSection(Section):
    """The HTTP surface; `anonymous` None means: in dev only."""

    anonymous: bool | None = None
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)+$")] | None = None


class McpOauthSection(Section):
    """How people connect to MCP; an `issuer` is an authorization server of somebody else, whose tokens are taken."""

    enabled: bool = False
    sign_in_url: Annotated[str, Field(pattern=r"^(/([^/\s#][^\s#]*)?|https?://[^/\s][^\s#]*)$")] | None = None
    issuer: Annotated[str, Field(pattern=r"^https?://[^/\s]+(/\S*)?$")] | None = None
    audience: Annotated[str, Field(min_length=1)] | None = None
    name_claim: Annotated[str, Field(min_length=1)] = "name"
    roles_claim: Annotated[str, Field(min_length=1)] = "roles"
    tenant_claim: Annotated[str, Field(min_length=1)] | None = None
    scopes: Scopes = ()


class McpSection(Section):
    """The MCP surface; after `answer_within_s` an agent that is asked answers with its run's id."""

    enabled: bool = False
    approvals: Literal["decline", "wait"] = "decline"
    answer_within_s: Annotated[Seconds, Field(gt=0, le=3600)] = 45.0
    oauth: McpOauthSection = McpOauthSection()


class A2aSection(Section):
    """The A2A surface; webhooks may go to what `push_allow` names even if it is not public, `card_key` signs cards."""

    enabled: bool = False
    default_agent: Annotated[str, Field(min_length=1)] | None = None
    deduplicate: bool = True
    push_allow: Hosts = ()
    card_key: SecretStr | None = None


class AiSection(Section):
    """Agents, their models and their runs."""

    model: Models | None = None
    store: StoreSection = StoreSection()
    runs: RunsSection = RunsSection()
    limits: LimitsSection = LimitsSection()
    tools: ToolsSection = ToolsSection()
    models: ModelsSection = ModelsSection()
    files: FilesSection = FilesSection()
    conversations: ConversationsSection = ConversationsSection()
    retention: RetentionSection = RetentionSection()
    memory: MemorySection = MemorySection()
    approvals: ApprovalsSection = ApprovalsSection()
    http: HttpSection = HttpSection()
    mcp: McpSection = McpSection()
    a2a: A2aSection = A2aSection()


class LogSection(Section):
    """What is logged, and how; `format` None means: text in dev, else json."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] | None = None


class Sections(Section):
    """All sections."""

    app: AppSection = AppSection()
    server: ServerSection = ServerSection()
    ai: AiSection = AiSection()
    log: LogSection = LogSection()


def known_keys(section: type[Section] = Sections, prefix: str = "") -> tuple[str, ...]:
    """Return every key that can be set, such as `ai.runs.lease-ms`."""
    keys: list[str] = []
    for field in section.model_fields.values():
        key = prefix + str(field.alias)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += known_keys(field.annotation, key + ".")
        else:
            keys.append(key)
    return tuple(keys)


def variable_of(key: str) -> str:
    """Return the environment variable of a key: `ai.runs.lease-ms` is `AI_RUNS_LEASE_MS`."""
    return key.upper().replace(".", "_").replace("-", "_")


def value_of(key: str, sections: Sections) -> Any:
    """Return what a key is set to."""
    value: Any = sections
    for name in key.split("."):
        value = getattr(value, _FIELDS.get(name) or name.replace("-", "_"))
    return value
