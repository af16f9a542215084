"""The page and its files, as they lie in ``static/``: no build step, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Response

_FOLDER = resources.files("oasis.service") / "static"
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
"""Only our own files, no inline script or style, and no text that becomes HTML."""


def router() -> APIRouter:
    """Return the routes of all files."""
    made = APIRouter(include_in_schema=False)
    for path, name in files().items():
        made.add_api_route(path, _server_of(name), methods=["GET", "HEAD"])
    return made


def files() -> dict[str, str]:
    """Return address -> file; nothing else is served, whatever a path says.

    >>> files()["/"], files()["/static/main.js"]
    ('index.html', 'main.js')
    """
    names = sorted(each.name for each in _FOLDER.iterdir() if each.name.rsplit(".")[-1] in _KINDS)
    return {**_PLACES, **{f"/static/{name}": name for name in names}}


def _server_of(name: str) -> Callable[[], Awaitable[Response]]:
    content = (_FOLDER / name).read_bytes()
    kind = _KINDS[name.rsplit(".", 1)[1]]

    async def serve() -> Response:
        return Response(
            content,
            media_type=kind,
            headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"},
        )

    return serve
