# /// script
# requires-python = ">=3.11"
# dependencies = []
#
# [tool.npm]
# dependencies = ["opencode-ai@1.18.33"]
#
# [tool.amoxi-bench]
# setup_path = "/session"
# session_field = "id"
# path = "/session/{session}/message"
# body = '{"model": {"providerID": "bench", "modelID": "bench"}, "parts": [{"type": "text", "text": "hello {n}"}]}'
# first = "tok0"
# end = "tok7"
# ///
"""opencode's server on its own store: a session for each client; its answer to a message is the whole reply.

Its first turn of a session asks the model once more, for a title.
"""

import json
import os
import sys
from pathlib import Path

CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    "snapshot": False,
    "model": "bench/bench",
    "small_model": "bench/bench",
    "enabled_providers": ["bench"],
    "provider": {
        "bench": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "bench",
            "options": {"baseURL": os.environ["OPENAI_BASE_URL"], "apiKey": os.environ["OPENAI_API_KEY"]},
            "models": {"bench": {"name": "bench", "limit": {"context": 128_000, "output": 4096}}},
        }
    },
}

if __name__ == "__main__":
    here = Path.cwd()
    program = Path(sys.prefix) / "node_modules" / ".bin" / "opencode"
    (here / "opencode.json").write_text(json.dumps(CONFIG), "utf-8")
    own = {f"XDG_{kind}_HOME": str(here / kind.lower()) for kind in ("DATA", "CONFIG", "CACHE", "STATE")}
    quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    arguments = ["opencode", "serve", "--hostname", "127.0.0.1", "--port", os.environ["PORT"]]
    os.execve(program, arguments, {**os.environ, "HOME": str(here), **own, **quiet})
