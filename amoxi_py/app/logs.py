"""How a process of ours writes its log: one line an entry, on stderr, as text or as JSON, and no secret in any.

A line of JSON also says what it is about: `request_id`, `run_id`, `call_id`, `conversation_id`, `principal`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from amoxi_py.app.redaction import Redaction
from amoxi_py.config.settings import Settings
from amoxi_py.engine.log_facts import log_facts

_CHATTY = (
    *("uvicorn", "uvicorn.error", "watchfiles", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"),
    *("openai", "anthropic"),  # they would write whole conversations
    *("mcp", "a2a", "sse_starlette"),  # and these all results, and a line for each call
)
_ENCODER = msgspec.json.Encoder(enc_hook=str)
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|_CALLERS_|URL$|DSN$")


def configure_logging(settings: Settings) -> None:
    """Make the root logger write as the settings say; chatty libraries are heard only when there is trouble."""
    handler = logging.StreamHandler(sys.stderr)
    redact = redaction_of(settings)
    handler.setFormatter(_JsonLines(redact) if settings.log_format == "json" else _TextLines(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log.level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def redaction_of(settings: Settings) -> Redaction:
    """Return what hides this process's secrets in text."""
    return Redaction(_secrets_of(settings))


@contextmanager
def hiding_in_logs(function: Callable[[str], str]) -> Iterator[None]:
    """Have the log lines of this process go through a function too, where it writes them itself."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    redactions = [one.redact for one in formatters if isinstance(one, (_TextLines, _JsonLines))]
    for redaction in redactions:
        redaction.add(function)
    try:
        yield
    finally:
        for redaction in redactions:
            redaction.remove(function)


def _secrets_of(settings: Settings) -> Iterator[str]:
    """Give what an operator has set that is secret, or by its name looks so."""
    yield from settings.provider.values()
    for secret in (settings.server.secret, settings.ai.store.listen_url, settings.ai.a2a.card_key):
        if secret is not None:
            yield secret.get_secret_value()
    for name, found in settings.others.variables.items():
        if _SECRET_VARIABLE.search(name):
            yield from str(found.value).split(",")


class _TextLines(logging.Formatter):
    def __init__(self, redact: Redaction) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self.redact(super().format(record))


class _JsonLines(logging.Formatter):
    def __init__(self, redact: Redaction) -> None:
        super().__init__()
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.redact(record.getMessage()),
            **self._facts(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = self.redact("".join(traceback.format_exception(*record.exc_info)))
        try:
            return _ENCODER.encode(entry).decode()
        except UnicodeEncodeError:  # half of a character, such as file names may have
            return json.dumps(entry)

    def _facts(self, record: logging.LogRecord) -> dict[str, object]:
        """Return what the line is about, as far as that is known where it is written."""
        facts: dict[str, object] = {**log_facts(), **getattr(record, "amoxi_facts", {})}
        for name in ("principal", "path"):  # as an app's sign-in names a person, and whatever a caller has sent
            if name in facts:
                facts[name] = self.redact(str(facts[name]))
        return facts
