"""How a process of ours writes its log: one line an entry, on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

from amoxi_py.config.settings import Settings

_CHATTY = ("uvicorn", "uvicorn.error", "watchfiles", "httpx", "httpx2", "httpcore", "httpcore2", "openai", "aiohttp")


def configure_logging(settings: Settings) -> None:
    """Make the root logger write as the settings say; chatty libraries are heard only when there is trouble."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if settings.log_format == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log.level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class _TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)
