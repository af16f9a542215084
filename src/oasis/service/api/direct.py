"""The search without the framework's router: straight to the endpoint.

An endpoint that takes only the request does not need the framework's handling of parameters and
dependencies, which costs about half as much as a search itself (0.3 to 0.8 ms measured). The route
stays in the application, for its description and for requests that this layer passes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from oasis.errors import OasisError
from oasis.service.api.served import Service
from oasis.service.http.problems import response_to_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request, Service], Awaitable[Response]]


class Direct:
    """A layer that answers one route itself; all else, and any other method, is passed on.

    Parameters
    ----------
    app : the application without it
    service : Service
    route : APIRoute
        Whose path and method this layer takes; it has no parameters in its path.
    endpoint : coroutine function of (request, service)
        Does everything that the route does, including the check of the token.
    """

    def __init__(self, app: ASGIApp, service: Service, route: APIRoute, endpoint: Endpoint) -> None:
        self.app = app
        self.service = service
        self.route = route
        self.endpoint = endpoint
        self._methods = frozenset(route.methods or ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] != self.route.path
            or scope["method"] not in self._methods
        ):
            await self.app(scope, receive, send)
            return
        scope["route"] = self.route  # as the router does, for the metrics
        request = Request(scope, receive)
        try:
            response = await self.endpoint(request, self.service)
        except OasisError as error:
            response = response_to_error(request, error)
        await response(scope, receive, send)
