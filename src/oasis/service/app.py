"""Putting the application together: routes, layers, errors, and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from oasis.collection import Collection
from oasis.errors import OasisError
from oasis.service import changing, reading, searching
from oasis.service.guard import Guard
from oasis.service.problems import Problem, response_to, response_to_error
from oasis.service.settings import Settings
from oasis.service.shapes import REQUESTS
from oasis.service.work import Service

_SUMMARY = """\
A collection over HTTP: it learns from a stream and finds things again.

Vectors may be sent as JSON, or as safetensors (`application/x-safetensors`): a tensor a modality,
the rest of the request as JSON under `request` in the metadata. Errors are problem details
(RFC 9457).
"""

STATIC = resources.files("oasis.service") / "static"
_KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_PLACES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Of the page: only our own files, no inline script or style, and no text that becomes HTML."""


def assemble(collection: Collection, settings: Settings) -> FastAPI:
    """Return the application; see `oasis.service.create_app`."""
    service = Service(collection, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="oasis",
        version=version("oasis-hash"),
        description=_SUMMARY,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    for router in (searching.router, changing.router, reading.router, _pages()):
        app.include_router(router)
    app.add_middleware(Guard, service=service)
    app.add_exception_handler(Problem, _of_problem)
    app.add_exception_handler(OasisError, _of_error)
    app.add_exception_handler(RequestValidationError, _of_parameters)
    app.add_exception_handler(HTTPException, _of_http)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


# -- the page, as its files lie in static/: no build step, nothing from elsewhere ---------------


def files() -> dict[str, str]:
    """Return address -> file; nothing else is served, whatever a path says.

    >>> files()["/"], files()["/static/main.js"]
    ('index.html', 'main.js')
    """
    names = sorted(each.name for each in STATIC.iterdir() if each.name.rsplit(".")[-1] in _KINDS)
    return {**_PLACES, **{f"/static/{name}": name for name in names}}


def _pages() -> APIRouter:
    made = APIRouter(include_in_schema=False)
    for path, name in files().items():
        made.add_api_route(path, _server_of(name), methods=["GET", "HEAD"])
    return made


def _server_of(name: str) -> Callable[[], Awaitable[Response]]:
    content = (STATIC / name).read_bytes()
    kind = _KINDS[name.rsplit(".", 1)[1]]

    async def serve() -> Response:
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return Response(content, media_type=kind, headers=headers)

    return serve


# -- errors, and the description ----------------------------------------------------------------


def _of_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    return response_to(request, error)


def _of_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, OasisError):
        raise error
    return response_to_error(request, error)


def _of_parameters(request: Request, error: Exception) -> Response:
    """Tell what is wrong with the query of an address, without repeating what was sent."""
    if not isinstance(error, RequestValidationError):
        raise error
    found = [
        (f"/{'/'.join(map(str, each['loc'][1:]))}"[:200], str(each["msg"]))
        for each in error.errors()
    ]
    detail = "; ".join(f"{pointer[1:]}: {reason}" for pointer, reason in found)
    return response_to(request, Problem(422, "input", detail, found))


def _of_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kinds = {404: "no-route", 405: "method"}
    detail = {404: "there is nothing at this address; /docs lists what there is"}.get(
        error.status_code, str(error.detail)
    )
    kind = kinds.get(error.status_code, "request")
    return response_to(request, Problem(error.status_code, kind, detail, headers=error.headers))


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, with the bodies that routes decode themselves."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = schema["components"]["schemas"]
        for model in REQUESTS:
            own = model.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(own.pop("$defs", {}))
            components[model.__name__] = own
        app.openapi_schema = schema
    return app.openapi_schema
