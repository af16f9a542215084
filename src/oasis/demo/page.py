"""The page of the service as one file that needs no service: its own assets, answers recorded.

The modules of the page are put into the file as data, found by an import map. ``recorded.js`` takes
the place of the network: it answers from what is recorded here, for every item, every label, some
titles, and the searches that the page names.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from importlib import resources
from urllib.parse import urlencode

from oasis.collection import Collection, Hit
from oasis.demo.stream import EVERY

GENERATOR = '<meta name="generator" content="oasis demo">'
"""Marks a page as written by the demo."""

_STATIC = resources.files("oasis.service") / "static"
_IMPORT = re.compile(r'(from|import) "\./([\w.]+)"')
_N_HITS, _N_LABEL = 12, 48
_NEED_A_SERVICE = ("add", "label", "map", "duplicates")


def recorded_page(collection: Collection, searches: Sequence[str]) -> str:
    """Return the page as HTML."""
    recorded = _script(_recorded(collection, searches))
    text = (_STATIC / "index.html").read_text("utf-8")
    modules = {
        f"oasis/{each.name}": _data(_module(each.read_text("utf-8")), "text/javascript")
        for each in _STATIC.iterdir()
        if each.name.endswith(".js") and each.name != "docs.js"
    }
    recorder = (resources.files("oasis.demo") / "recorded.js").read_text("utf-8")
    style = (_STATIC / "style.css").read_text("utf-8")
    icon = _data((_STATIC / "icon.svg").read_text("utf-8"), "image/svg+xml")
    links = ", ".join(
        f'<a href="?{urlencode({"q": each})}">{escape(each)}</a>' for each in searches
    )
    about = (
        '<p class="lede">A recording of what <code>oasis serve</code> shows: look through labels, '
        f"open icons, search for a label, or for {links}. Of titles, each ninth icon's can be "
        "searched for; the service itself answers any search.</p>"
    )
    changes = {
        '<link rel="stylesheet" href="/static/style.css">': f"<style>{style}</style>{GENERATOR}",
        '<script type="module" src="/static/main.js"></script>': (
            f'<script id="recorded" type="application/json">{recorded}</script>'
            f"<script>{recorder}</script>"
            f'<script type="importmap">{_script({"imports": modules})}</script>'
            '<script type="module">import "oasis/main.js";</script>'
        ),
        **{f'data-view="{view}">': f'data-view="{view}" hidden>' for view in _NEED_A_SERVICE},
        '<h1 id="title-search" class="sr">Search</h1>': (
            f'<h1 id="title-search" class="sr">Search</h1>{about}'
        ),
        'Served by oasis. The <a href="/docs">API</a> does all that this page does.': (
            "Written by <code>oasis demo</code>. Icons: Font Awesome Free 6 (CC BY 4.0)."
        ),
    }
    for before, after in changes.items():
        if before not in text:
            raise ValueError(f"the page of the service lacks {before!r}")
        text = text.replace(before, after)
    return text.replace("/static/icon.svg", icon)


def _module(text: str) -> str:
    """Return a module whose imports are found by the import map."""
    return _IMPORT.sub(r'\1 "oasis/\2"', text)


def _data(text: str, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(text.encode()).decode()}"


def _script(value: object) -> str:
    """Return JSON that ends no script."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _recorded(collection: Collection, searches: Sequence[str]) -> dict[str, object]:
    items = list(collection.items())
    places = {each.id: place for place, each in enumerate(items)}

    def ranked(lists: Iterable[Sequence[Hit]]) -> list[list[object]]:
        return [
            [[places[hit.id], round(hit.score, 4), hit.distance, hit.weak] for hit in hits]
            for hits in lists
        ]

    titles = [str(each.payload["title"]) for each in items[::EVERY]]
    texts = list(dict.fromkeys([*searches, *titles]))
    labels = [each.name for each in collection.classes()]
    stats = {**asdict(collection.stats()), "readonly": True, "n_content_bits": 0}
    return {
        "stats": stats,
        "classes": [asdict(each) for each in collection.classes()],
        "rounds": [asdict(each) for each in collection.rounds()],
        "items": [
            {
                "id": each.id,
                "payload": each.payload,
                "labels": each.labels,
                "round": each.round,
                "text": each.text,
                "code": b64encode(each.code).decode(),
                "predicted": each.predicted,
                "picture": b64encode(collection.thumbnail(each.id) or b"").decode(),
            }
            for each in items
        ],
        "texts": dict(
            zip(texts, ranked(collection.find(text, k=_N_HITS) for text in texts), strict=True)
        ),
        "words": dict(zip(labels, ranked(collection.search_words(labels, _N_LABEL)), strict=True)),
        "like": ranked(collection.more_like(each.id, _N_HITS) for each in items),
    }
