"""How an error is written in JSON-RPC and in REST; which one it is, and its words, are said elsewhere."""

from __future__ import annotations

from typing import Any

from a2a.utils.error_handlers import build_error_details, build_rest_error_payload
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError

from amoxi_py.surfaces.a2a.context import V1_0
from amoxi_py.surfaces.a2a.errors import TooManyNow, is_store_away

_INTERNAL = -32603
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def rpc_error(request_id: str | int | None, error: A2AError, version: str) -> dict[str, Any]:
    """Return the answer to a request in JSON-RPC that could not be done."""
    told: dict[str, Any] = {"code": JSON_RPC_ERROR_CODE_MAP.get(type(error), _INTERNAL), "message": error.message}
    if version == V1_0:
        told["data"] = _details(error)
    elif error.data is not None:
        told["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": told}


def rest_error(error: A2AError, version: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of the answer to a request in REST that could not be done.

    0.3 does not say what is in the body; its clients look for these two fields.
    """
    body = build_rest_error_payload(error)
    if is_store_away(error):
        body["error"] |= {"code": 503, "status": "UNAVAILABLE"}
    if isinstance(error, TooManyNow):
        body["error"] |= {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": _details(error)}
    more = {} if version == V1_0 else {"type": type(error).__name__, "message": error.message}
    return body["error"]["code"], {**body, **more}


def _details(error: A2AError) -> list[dict[str, Any]]:
    details = build_error_details(error)
    if isinstance(error, TooManyNow):
        details[0]["reason"] = error.reason
        details.append({"@type": _RETRY_INFO, "retryDelay": f"{error.retry_after}s"})
    return details
