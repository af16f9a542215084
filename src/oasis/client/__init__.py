"""Client: the methods of a collection, over HTTP.

    with Collection.open("photos.oasis") as c:           # here
    with Client("http://127.0.0.1:8000", token) as c:    # or there

Methods, results and errors are those of `oasis.collection.Collection`; errors that only a service
can cause are `oasis.errors.ServiceError` and its subclasses. It uses the standard library and the
dependencies of the package only.

=========  ===========================================================
client     `Client`: a method of the collection is one question
transport  bodies, connections, patience with a busy service, answers
=========  ===========================================================
"""

from __future__ import annotations

from oasis.client.client import Client

__all__ = ["Client"]
