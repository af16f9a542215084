"""Client: the methods of a collection, over HTTP.

    with Collection.open("photos.oasis") as c:           # here
    with Client("http://127.0.0.1:8000", token) as c:    # or there

Methods, results and errors are those of `oasis.collection.Collection`; only what a service alone
can do wrong is an error of its own (`oasis.errors.ServiceError` and its kinds). Needs nothing but
the standard library and what the package needs anyway.
"""

from __future__ import annotations

from oasis.client.client import Client

__all__ = ["Client"]
