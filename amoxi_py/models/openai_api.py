"""What chat models and embedders behind OpenAI's API share: the address, the key, and how a refusal is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amoxi_py.models.http_model import HttpModel
from amoxi_py.models.openai_servers import OPENAI_ADDRESS

_ACTS_FOR = ("OpenAI-Organization", "OpenAI-Project")


class OpenAIApi(HttpModel):
    """A model at OpenAI, or at a server that speaks its API; `organization` and `project` are what the key acts for."""

    _provider = "openai"
    _address = OPENAI_ADDRESS

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None,
        options: Mapping[str, Any] | None,
        timeout: float,
        *,
        organization: str | None,
        project: str | None,
    ) -> None:
        super().__init__(model, api_key, base_url, options, timeout)
        self._acts_for = (organization or None, project or None)

    @property
    def identity(self) -> tuple[object, ...]:
        return (*super().identity, *self._acts_for)

    def _headers(self) -> dict[str, str]:
        acts_for = {name: value for name, value in zip(_ACTS_FOR, self._acts_for, strict=True) if value is not None}
        return {"Authorization": f"Bearer {self._key}", **acts_for}

    def _refusal(self, told: Any) -> tuple[str | None, str | None]:
        if isinstance(told, list) and told:  # Gemini's way
            told = told[0]
        error = told.get("error", told) if isinstance(told, dict) else {}
        if not isinstance(error, dict):
            return None, str(error)
        codes = [code for code in (error.get("code"), error.get("type")) if isinstance(code, str)]
        words = error.get("message")
        return next(iter(codes), None), words if isinstance(words, str) else None
