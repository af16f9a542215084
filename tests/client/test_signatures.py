"""A program changes from a collection to a client by one line: their methods take the same."""

import inspect

import pytest

from oasis.client import Client
from oasis.collection import Collection

HERE_ALONE = {"max_bytes"}
"""Parameters of the collection that a client lacks: its service bounds the answers."""


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


SHARED = [*sorted(public(Client) & public(Collection)), "__len__", "__contains__"]


def parameters(method):
    """Names, in order, with their kinds and defaults."""
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(method).parameters.values()
        if each.name not in HERE_ALONE
    ]


@pytest.mark.parametrize("name", SHARED)
def test_methods_of_a_client_take_what_the_collections_take(name):
    ours, theirs = (inspect.getattr_static(kind, name) for kind in (Client, Collection))
    assert isinstance(ours, property) == isinstance(theirs, property)
    if not isinstance(ours, property):
        assert parameters(ours) == parameters(theirs)


def test_methods_of_one_side_alone_are_known():
    assert public(Client) - public(Collection) == {"fitting", "limits"}
    assert public(Collection) - public(Client) == {
        "codes_are_here",
        "extractor",
        "fingerprints_are_here",
        "index",
        "ingest_table",
        "items",
        "keep_text",
        "model",
        "open",
        "repair",
        "search_items_with_evidence",
        "snippets",
    }
