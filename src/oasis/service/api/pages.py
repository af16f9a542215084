"""The page and its files, as they lie in ``static/``: no build step, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Response

_KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_FILES = {
    "/": "index.html",
    "/docs": "docs.html",
    "/static/style.css": "style.css",
    "/static/main.js": "main.js",
    "/static/api.js": "api.js",
    "/static/search.js": "search.js",
    "/static/stream.js": "stream.js",
    "/static/charts.js": "charts.js",
    "/static/add.js": "add.js",
    "/static/dom.js": "dom.js",
    "/static/picture.js": "picture.js",
    "/static/docs.js": "docs.js",
    "/favicon.ico": "icon.svg",
    "/static/icon.svg": "icon.svg",
}
"""Address -> file; nothing else is served, whatever a path says."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only our own files, no inline script or style, and no text that becomes HTML."""


def router() -> APIRouter:
    """Return the routes of all files."""
    made = APIRouter(include_in_schema=False)
    for path, name in _FILES.items():
        made.add_api_route(path, _server_of(name), methods=["GET", "HEAD"])
    return made


def _server_of(name: str) -> Callable[[], Awaitable[Response]]:
    content = (resources.files("oasis.service") / "static" / name).read_bytes()
    kind = _KINDS[name.rsplit(".", 1)[1]]

    async def serve() -> Response:
        return Response(
            content,
            media_type=kind,
            headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"},
        )

    return serve
