"""`/docs`: the page for developers that shows `/openapi.json`. It loads nothing from elsewhere, so it works offline."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_FILES = ("fastapi_swagger", "resources")  # read as files: the package's own code is not used


def add_docs_page(app: FastAPI, prefix: str) -> None:
    """Add the page, and the files that it is made of."""
    app.mount(f"{prefix}/docs/files", StaticFiles(packages=[_FILES]))

    @app.get(f"{prefix}/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        here = f"{request.scope.get('root_path', '')}{prefix}"
        page = get_swagger_ui_html(
            title=app.title,
            openapi_url=f"{here}/openapi.json",
            swagger_js_url=f"{here}/docs/files/swagger-ui-bundle.js",
            swagger_css_url=f"{here}/docs/files/swagger-ui.css",
            swagger_favicon_url=f"{here}/docs/files/favicon-32x32.png",
            swagger_ui_parameters={"validatorUrl": None},  # else it sends the address of the page to its makers
        )
        page.headers.update(_security(bytes(page.body)))
        return page


def _security(page: bytes) -> dict[str, str]:
    """Return what keeps the page from being framed and from loading anything else; its own script is known by hash."""
    scripts = (b64encode(sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    allowed = " ".join(f"'sha256-{digest}'" for digest in scripts)
    return {
        "content-security-policy": (
            f"default-src 'self'; script-src 'self' {allowed}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
    }
