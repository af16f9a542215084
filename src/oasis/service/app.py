"""Putting the application together: routes, layers, errors, and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from oasis.collection import Collection
from oasis.errors import OasisError
from oasis.service import changing, reading, searching  # noqa: F401 - they add their routes
from oasis.service.guard import Guard
from oasis.service.operations import router
from oasis.service.problems import Problem
from oasis.service.settings import Settings
from oasis.service.shapes import RECORDS, REQUESTS, described
from oasis.service.telemetry import LOG
from oasis.service.work import Service

_SUMMARY = """\
A collection over HTTP: it learns from a stream and finds things again.

Vectors may be sent as JSON, or as safetensors (`application/x-safetensors`): a tensor a modality,
the rest of the request as JSON under `request` in the metadata. Errors are problem details
(RFC 9457).
"""

STATIC = Path(str(resources.files("oasis.service") / "static"))
_PLACES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Of the page: only our own files, no inline script or style, and no text that becomes HTML."""

_HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}


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
    app.include_router(router)
    for path, name in _PLACES.items():
        app.add_api_route(path, _file(name), methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/static", _Files(directory=STATIC))
    app.add_middleware(Guard, service=service)
    for kind in (Problem, OasisError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


class _Files(StaticFiles):
    """The page, as its files lie in static/: no build step, nothing from elsewhere."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(_HEADERS)
        return response


def _file(name: str) -> Callable[[], Awaitable[Response]]:
    async def serve() -> Response:
        return FileResponse(STATIC / name, headers=_HEADERS)

    return serve


async def _refused(request: Request, error: Exception) -> Response:
    """Return any error as an answer; one of the collection that is not the caller's is logged."""
    problem = _problem_of(error)
    request_id = request.state.request_id
    if problem.status >= 500 and isinstance(error, OasisError):
        facts = {"request_id": request_id}
        LOG.error("refused by the collection", exc_info=error, extra={"facts": facts})
    return problem.response(request_id)


def _problem_of(error: Exception) -> Problem:
    if isinstance(error, OasisError):
        return Problem.of(error)
    if isinstance(error, RequestValidationError):  # of the query, without repeating what was sent
        found = [
            (f"/{'/'.join(map(str, each['loc'][1:]))}"[:200], str(each["msg"]))
            for each in error.errors()
        ]
        detail = "; ".join(f"{pointer[1:]}: {reason}" for pointer, reason in found)
        return Problem(422, "input", detail, found)
    if isinstance(error, HTTPException):
        kind = {404: "no-route", 405: "method"}.get(error.status_code, "request")
        detail = {404: "there is nothing at this address; /docs lists what there is"}.get(
            error.status_code, str(error.detail)
        )
        return Problem(error.status_code, kind, detail, headers=error.headers)
    if isinstance(error, Problem):
        return error
    raise error


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
        for record in RECORDS:
            own = components.get(record.__name__, {}).get("properties", {})
            for name, what in described(record).items():
                own.get(name, {})["description"] = what
        app.openapi_schema = schema
    return app.openapi_schema
