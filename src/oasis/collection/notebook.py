"""What a notebook shows: hits with their pictures, a collection with its map. No script."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable

from oasis.collection.records import Hit, Id, Plane, Stats

_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
_TYPES = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))
_SIDE = 480


class Hits(list[Hit]):
    """A list of hits that a notebook shows as pictures; ``picture`` returns that of an id."""

    def __init__(self, hits: Iterable[Hit], picture: Callable[[Id], bytes | None]) -> None:
        super().__init__(hits)
        self._picture = picture

    def _repr_html_(self) -> str:
        return "".join(["<div>", *(_shown(hit, self._picture(hit.id)) for hit in self), "</div>"])


def _shown(hit: Hit, picture: bytes | None) -> str:
    kind = next((kind for begin, kind in _TYPES if picture and picture.startswith(begin)), None)
    image = ""
    if picture and kind:
        data = base64.b64encode(picture).decode()
        source = f"data:image/{kind};base64,{data}"
        image = f'<img alt="" style="max-width:100%;height:110px" src="{source}">'
    lines = [str(hit.id), hit.text or "", ", ".join(hit.labels or hit.predicted)]
    told = "<br>".join(html.escape(line[:80]) for line in lines if line)
    weak = " (weak)" if hit.weak else ""
    return (
        '<figure style="display:inline-block;width:160px;margin:6px;vertical-align:top">'
        f"{image}<figcaption>{told}<br>{hit.score:.2f}{weak}</figcaption></figure>"
    )


def collection_html(name: str, stats: Stats, plane: Plane) -> str:
    """Return a collection's numbers and map."""
    counts = f"{stats.n_items:,} items, {stats.n_classes:,} classes, {stats.n_bits} bits"
    return f"<p><b>{html.escape(name)}</b>: {counts}</p>{plane_svg(plane)}"


def plane_svg(plane: Plane, side: int = _SIDE) -> str:
    """Return a map as SVG: a point an item in the colour of its class, with a title."""
    names = dict.fromkeys(point.label for point in plane.points if point.label is not None)
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
    dots = "".join(
        f'<circle cx="{4 + point.x * (side - 8):.1f}" cy="{4 + (1 - point.y) * (side - 8):.1f}" '
        f'r="2.5" fill="{colours.get(point.label or "", "#999999")}" '
        f'fill-opacity="{0.4 if point.predicted else 0.8}">'
        f"<title>{html.escape(f'{point.id}: {point.label}' if point.label else str(point.id))}"
        "</title></circle>"
        for point in plane.points
    )
    told = f"Map of {len(plane.points):,} of {plane.n_items:,} items in {len(names)} classes"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{told}" '
        f'width="{side}" height="{side}" viewBox="0 0 {side} {side}">{dots}</svg>'
    )
