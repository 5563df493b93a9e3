"""What the strict model server answers at `/embeddings`: vectors in which words that are alike are near.

It looks at a request strictly. The vector of a text is always the same.
"""

from __future__ import annotations

import base64
import json
from array import array
from typing import Any

from amoxi_py.models.offline_embedder import vector_of
from amoxi_py.models.openai_embedder import DIMENSIONS

_OTHER_DIMENSIONS = 768
_MOST_TEXTS = 2048
_FIELDS = {"model", "input", "encoding_format", "dimensions", "user"}


def read_embedding_body(body: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return a request, and what the real API would refuse about it."""
    try:
        asked = json.loads(body)
    except ValueError as error:
        return {}, [f"the body is no JSON: {error}"]
    if not isinstance(asked, dict):
        return {}, ["the body is no JSON object"]
    problems = [f"unknown field {name!r}" for name in asked.keys() - _FIELDS]
    if not isinstance(asked.get("model"), str) or not asked["model"]:
        problems.append("'model' must be a text")
    texts = asked.get("input")
    if not isinstance(texts, list) or not 1 <= len(texts) <= _MOST_TEXTS:
        problems.append(f"'input' must be a list of 1 to {_MOST_TEXTS} texts")
    elif not all(isinstance(text, str) and text for text in texts):
        problems.append("'input' holds what is no text, or an empty one")
    if asked.get("encoding_format", "float") not in ("float", "base64"):
        problems.append("'encoding_format' must be 'float' or 'base64'")
    wanted = asked.get("dimensions", 1)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        problems.append("'dimensions' must be a whole number from 1 up")
    elif "dimensions" in asked and not str(asked.get("model")).startswith("text-embedding-3-"):
        problems.append(f"the model {asked.get('model')!r} takes no 'dimensions'")
    return asked, problems


def embedding_answer(asked: dict[str, Any]) -> bytes:
    """Return the body of the answer to a request that has no problems."""
    dimensions = asked.get("dimensions") or DIMENSIONS.get(asked["model"], _OTHER_DIMENSIONS)
    as_text = asked.get("encoding_format") == "base64"
    data = []
    for index, text in enumerate(asked["input"]):
        vector = vector_of(text, dimensions)
        embedding = base64.b64encode(vector).decode() if as_text else list(array("f", vector))
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    tokens = sum(len(text) // 4 + 1 for text in asked["input"])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json.dumps({"object": "list", "data": data, "model": asked["model"], "usage": usage}).encode()
