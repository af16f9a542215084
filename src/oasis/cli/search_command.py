"""``oasis search``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from oasis.cli.console import Column, labels_line, people, print_json, table
from oasis.cli.opening import asked_ids, open_to_read
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile, TrustEmbedders, columns_of
from oasis.errors import InputError, UnknownIdError

if TYPE_CHECKING:
    from oasis.collection import Hit, Stats
    from oasis.collection.records import Explanation

_LONGEST_TEXT = 1000
"""Characters of a text that are shown of a hit."""

_LEAST_SHARE = 0.05

_HIT_COLUMNS: tuple[Column, ...] = (
    ("", "right"),
    ("score", "right"),
    ("bits", "right"),
    ("id", "left"),
    ("labels", "line"),
)


class Mode(StrEnum):
    """How codes are compared."""

    asymmetric = "asymmetric"
    hamming = "hamming"


def search(
    collection: ExistingOrServed,
    words: Annotated[str | None, typer.Argument(metavar="TEXT", help="The same as --text.")] = None,
    text: Annotated[str | None, typer.Option(help="Words to search with.")] = None,
    image: Annotated[Path | None, typer.Option(help="A picture to search with.")] = None,
    vector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODALITY=FILE",
            help="Features you already have: an .npy file, or a list such as image=[0.1, 0.2]. May "
            "be repeated, and go with --text and --image.",
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ID", help="An item: more like this one.")
    ] = None,
    word: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A class, or any word, by its meaning. May be repeated."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of hits.")] = 10,
    mode: Annotated[
        Mode, typer.Option(help="Compare projections, or codes alone.")
    ] = Mode.asymmetric,
    content: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Weight of content: 0 ranks by classes only, 1 by content only; a --word then "
            "also counts as a text. If not given: a small weight, 0.5 with --like, 0 with --word.",
        ),
    ] = None,
    fuse: Annotated[
        bool,
        typer.Option(
            help="Rank also by the words of --text in texts and labels, and by fingerprints of "
            "features; or by codes alone."
        ),
    ] = True,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='year=2024, "year>=2020", "kind!=cat", "title~boat" (contains), '
            "'$labels=sky' (has this class; in single quotes), '$text~boat', or JSON such as "
            '{"$labels": {"has": "sky", "predicted": true}}, where predicted may be left out, and '
            '{"$any": [{"year": 2024}, {"kind": "cat"}]}; all must hold. A field or class that no '
            "item has is an error, and so is a text where a field holds numbers only.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Tell of each hit of a text or picture which part of its score comes from what.",
        ),
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the hits as a contact sheet.")
    ] = None,
    trust_embedders: TrustEmbedders = False,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Search by text, picture or vector, or several of them; by an item; or by a class name.

    A class name need not have been seen: it is compared with the classes by its word vector. Labels
    with a question mark are predicted. Hits are shown with their text and payload. Instead of a
    directory, the address of a running service may be given; pictures are sent to it. Words that no
    item has are replaced by similar ones.

    Example: oasis search photos.oasis --text "red boat" --image query.jpg -k 5
    """
    from oasis.cli.conditions import parse_where
    from oasis.items import read_vector

    if words is not None and text is not None:
        raise typer.BadParameter("the text is given twice: once without --text")
    text = words if text is None else text
    raw = text is not None or image is not None
    kinds = [raw or bool(vector), like is not None, bool(word)]
    if sum(kinds) != 1:
        raise typer.BadParameter(
            "give --text, --image, --vector or several of them; or --like; or --word"
            + (" (only one kind at a time)" if any(kinds) else "")
        )
    if not fuse and not kinds[0]:
        raise typer.BadParameter("--like and --word search by codes alone", param_hint="--no-fuse")
    if explain and not raw:
        raise typer.BadParameter("hits of --text and --image are explained", param_hint="--explain")
    condition = parse_where(where or [])
    named = dict(columns_of(each) for each in vector or [])
    vectors = {modality: read_vector(value) for modality, value in named.items()}
    with open_to_read(collection, token_file, trust_embedders=trust_embedders) as opened:
        options: dict[str, Any] = {
            "k": k,
            "mode": mode.value,
            "where": condition or None,
            "content": content,
        }
        if word:
            queries: list[dict[str, Any]] = [{"word": name} for name in word]
            lists = opened.search_words(word, **options)
        elif like is not None:
            (found,) = asked_ids(opened, [like])
            queries, lists = [{"like": found}], [opened.more_like(found, **options)]
        else:
            options["fuse"] = fuse
            asked = {"text": text, "image": image}
            queries = [{name: str(value) for name, value in asked.items() if value is not None}]
            queries[0] |= {f"vector {modality}": value for modality, value in named.items()}
            if raw:
                has_words = fuse and mode is Mode.asymmetric and content != 0
                stats = opened.stats()
                if image is not None:
                    _check_made(stats, "image", is_needed=True)
                if text is not None:
                    alone = image is None and not vectors
                    _check_made(stats, "text", is_needed=alone and not has_words)
                item = {**asked, "vectors": vectors}
                lists = opened.search_items([item], **options)
            else:
                lists = opened.search({name: row[None] for name, row in vectors.items()}, **options)
        if save is not None:
            _save_hits(opened, queries, lists, save)
        why: dict[Any, Explanation] = {}
        if explain:
            why = {hit.id: opened.explain(hit.id, item) for hit in lists[0]}
        meant = None
        if text is not None:
            meant = opened.suggest(text)
        width = people().width
        told: dict[Any, _Told] = {}
        if not as_json:
            told = {
                hit.id: _told(opened, hit, width, why.get(hit.id)) for hits in lists for hit in hits
            }
    if as_json:
        results = [
            {"query": query, "hits": [_document(hit, why.get(hit.id)) for hit in hits]}
            for query, hits in zip(queries, lists, strict=True)
        ]
        if meant is not None:
            results[0]["suggestion"] = meant
        how = {"mode": mode.value, "content": content, "k": k, "where": condition}
        print_json({**how, "results": results})
        return
    for query, hits in zip(queries, lists, strict=True):
        shown = [name for name in _Told._fields if any(getattr(told[hit.id], name) for hit in hits)]
        columns = (*_HIT_COLUMNS, *((name, "line") for name in shown))
        rows = (
            (
                str(place),
                f"{_score(hit.score)}{'=' if hit.tied else ' '}",
                str(hit.distance),
                str(hit.id),
                labels_line(hit),
                *(getattr(told[hit.id], name) for name in shown),
            )
            for place, hit in enumerate(hits, 1)
        )
        is_found = any(hit.score for hit in hits)
        if is_found and any(hit.weak for hit in hits):
            people().print("nothing like this here; the nearest are:")
        if meant is not None:
            people().print(f"searched for: {meant}", markup=False, soft_wrap=True)
        people().print(_title(query), style="bold", markup=False)
        if is_found:
            people().print(table(columns, rows))
            if any(hit.tied for hit in hits):
                people().print("= the score of a neighbour is the same")
        elif hits:  # in the order of arrival, which says nothing about the query
            people().print("nothing like this here: all scores are 0")
        else:
            people().print("nothing found")
        people().print()
    if save is not None:
        people().print(f"contact sheet: {save}", soft_wrap=True)


def _score(value: float) -> str:
    """Return a score for people; one that is rounded to 0 has no minus.

    >>> _score(-0.25), _score(-0.0001)
    ('-0.250', '+0.000')
    """
    return f"{round(value, 3) + 0.0:+.3f}"


def _title(query: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in query.items())


def _check_made(stats: Stats, field: str, is_needed: bool) -> None:
    """Refuse a picture or a text if this collection makes no features of such.

    A text that is not needed for features is compared by its words, unless vectors have its field.
    """
    there = stats.modalities
    recorded = {name: each for name, each in (stats.extractor or {}).items() if name in there}
    modalities = recorded or there
    makes = {each["field"]: not each["embedder"].startswith("given-") for each in recorded.values()}
    if makes.get(field, bool(recorded) and not is_needed) or not modalities:
        return
    ways = [f"--{name}" for name in ("text", "image") if makes.get(name)]
    ways = ways or [f"--vector {name}=FILE" for name in modalities]
    raise InputError(
        f"this collection makes no features of {'pictures' if field == 'image' else 'texts'}; use "
        + " or ".join(ways)
    )


def _document(hit: Hit, why: Explanation | None) -> dict[str, Any]:
    return asdict(hit) if why is None else {**asdict(hit), "why": asdict(why)}


_SOURCES = {
    "class": "class {}",
    "words": "word {!r}",
    "meaning": "what it is about",
    "content": "likeness to the {}",
    "same": "the same",
}


def _why(found: Explanation | None) -> str:
    """Return an explanation in a line, parts below a twentieth left out."""
    parts = sorted(found.parts, key=lambda each: -each.share) if found else []
    return ", ".join(
        f"{100 * each.share:.0f} % {_SOURCES[each.source].format(each.what).strip()}"
        for each in parts
        if each.share >= _LEAST_SHARE
    )


class _Told(NamedTuple):
    """Why a hit was found, its text and its payload, a line each; empty if there is none."""

    why: str
    text: str
    payload: str


def _told(opened: Any, hit: Hit, n_characters: int, why: Explanation | None) -> _Told:
    """Return what is shown of a hit; a text that the payload repeats is left out.

    A text may have a mebibyte: it is cut in pipes, too.
    """
    text = ""
    with suppress(UnknownIdError):  # deleted since
        text = opened.get(hit.id).text or ""
    if text in hit.payload.values():
        text = ""
    return _Told(
        _why(why),
        _cut(text, min(n_characters, _LONGEST_TEXT)),
        _cut(_line(hit.payload), n_characters),
    )


def _cut(text: str, n_characters: int) -> str:
    """Return a text in one line of so many characters.

    >>> _cut("two\\nlines", 20), _cut("two lines", 5)
    ('two lines', 'two …')
    """
    line = " ".join(text.split())
    return line if len(line) <= n_characters else f"{line[: n_characters - 1]}…"


def _line(payload: dict[str, Any]) -> str:
    """Return a payload in one line: scalars first, as they tell most."""
    nested = {name: value for name, value in payload.items() if isinstance(value, (list, dict))}
    plain = [f"{name}: {value}" for name, value in payload.items() if name not in nested]
    return ", ".join([*plain, *(f"{name}: {value}" for name, value in nested.items())])


def _save_hits(
    opened: Any, queries: list[dict[str, Any]], lists: list[list[Any]], path: Path
) -> None:
    from oasis.collection.contact_sheet import Picture, contact_sheet

    sections = [
        (
            _title(query),
            [
                Picture(
                    opened.thumbnail(hit.id),
                    (f"{place}. {hit.id}", f"{_score(hit.score)}  {labels_line(hit)}"),
                )
                for place, hit in enumerate(hits, 1)
            ],
        )
        for query, hits in zip(queries, lists, strict=True)
    ]
    contact_sheet(sections, path)
