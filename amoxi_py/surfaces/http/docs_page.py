"""`/docs`: the page for developers that shows `/openapi.json`. It loads nothing from elsewhere, so it works offline."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

_FILES = ("fastapi_swagger", "resources")  # read as files: the package's own code is not used


def add_docs_page(app: FastAPI, prefix: str) -> None:
    """Add the page, and the files that it is made of."""
    app.mount(f"{prefix}/docs/files", StaticFiles(packages=[_FILES]))

    @app.get(f"{prefix}/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        here = f"{request.scope.get('root_path', '')}{prefix}"
        return get_swagger_ui_html(
            title=app.title,
            openapi_url=f"{here}/openapi.json",
            swagger_js_url=f"{here}/docs/files/swagger-ui-bundle.js",
            swagger_css_url=f"{here}/docs/files/swagger-ui.css",
            swagger_favicon_url=f"{here}/docs/files/favicon-32x32.png",
            swagger_ui_parameters={"validatorUrl": None},  # else it sends the address of the page to its makers
        )
