"""A program changes from a collection to a client by one line: their methods take the same."""

import inspect

import pytest

from oasis.client import Client
from oasis.collection import Collection
from oasis.collection.records import Question, SearchOptions

HERE_ALONE = {"max_bytes"}
"""Parameters of the collection that a client lacks: its service bounds the answers."""


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


SHARED = [*sorted(public(Client) & public(Collection)), "__len__", "__contains__"]


def parameters(method):
    """Names, in order, with their kinds and defaults; options of a search one by one."""
    found = []
    for each in inspect.signature(method).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            defaults = [
                (name, Question._field_defaults[name]) for name in SearchOptions.__annotations__
            ]
            found += [(name, each.KEYWORD_ONLY, default) for name, default in defaults]
        else:
            found.append((each.name, each.kind, each.default))
    return [each for each in found if each[0] not in HERE_ALONE]


@pytest.mark.parametrize("name", SHARED)
def test_methods_of_a_client_take_what_the_collections_take(name):
    ours, theirs = (inspect.getattr_static(kind, name) for kind in (Client, Collection))
    assert isinstance(ours, property) == isinstance(theirs, property)
    if not isinstance(ours, property):
        mine, all_of_them = parameters(ours), parameters(theirs)
        names = {each[0] for each in mine} | {each[0] for each in all_of_them} - {"fuse"}
        assert mine == [each for each in all_of_them if each[0] in names]


def test_methods_of_one_side_alone_are_known():
    assert public(Client) - public(Collection) == {"fitting", "limits"}
    assert public(Collection) - public(Client) == {
        "codes_are_here",
        "extractor",
        "fingerprints_are_here",
        "index",
        "index_field",
        "ingest_table",
        "items",
        "keep_text",
        "model",
        "open",
        "repair",
        "search_items_with_evidence",
        "snippets",
    }
