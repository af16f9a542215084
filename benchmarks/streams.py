"""Streams as they really are: what a search finds when a stream begins or runs unusually.

A row of the table is one bar: what was measured, and the least that it has to be. That is a figure
of the same run less a margin where one is named, such as "labelled first - .01".

Only the public interface of models is used, so other versions can be measured by ``PYTHONPATH``.
What a version cannot do is told in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks import samples
from benchmarks.bars import Bar, Bars, options, report
from benchmarks.many_classes import gaussian_clusters, words_as_labels
from benchmarks.samples import Chunk, Names, Sample, X, chunked, chunks_of, learn, search_model
from oasis.arrays import Rows
from oasis.errors import OasisError

N_LABELLED, N_UNLABELLED, CHUNK = 600, 3000, 600


def tried(measure: Callable[[], float]) -> tuple[float | None, str]:
    """Return a measurement, or None and why the model refuses."""
    try:
        return measure(), ""
    except OasisError as error:
        return None, f"not possible: {str(error)[:50]}"


def begun_unlabelled(s: Sample, seed: int) -> Bars:
    """600 labelled items, and 3,000 unlabelled ones after or before them."""
    n = min(N_LABELLED, len(s.rows) // 3)
    given, bare = s.rows[:n], s.rows[n : n + N_UNLABELLED]
    told = chunks_of(s.data, [given])
    untold = chunks_of(s.data, chunked(bare, CHUNK), labelled=False)
    again = chunks_of(s.data, chunked(np.concatenate([given, bare]), CHUNK), labelled=False)
    queries, labels = s.data.take(s.queries), s.relevance(given)
    measured = []
    for before, after in (((), untold), (untold, ()), (again, ())):
        model = search_model(seed)
        codes = learn(model, [*before, *told, *after])
        start = sum(len(names) for _, names in before)
        found = samples.label_map(model.project(queries), codes[start : start + n], labels)
        measured.append((found, float(np.median(model.evidence(queries)))))
    for at, what in enumerate(("label MAP", "median evidence")):
        least = measured[0][at] - 0.01
        yield f"{what}, labelled first", measured[0][at], None, ""
        yield f"{what}, unlabelled first", measured[1][at], least, "labelled first - .01"
        yield f"{what}, same items unlabelled first", measured[2][at], None, ""


def begun_small(s: Sample, seed: int) -> Bars:
    """A first chunk of few items: neighbours kept by content of what comes after the first 500."""
    name = "image" if "image" in s.data.X else next(iter(s.data.X))
    rows = s.rows[:N_UNLABELLED]
    skipped = min(500, len(rows) // 2)
    base = rows[skipped:]
    queries = {name: s.data.take(s.queries)[name]}
    near = samples.best(samples.cosine(queries, s.data.take(base)))

    def kept(cuts: list[int]) -> float:
        model = search_model(seed)
        codes = learn(model, chunks_of(s.data, np.split(rows, [c for c in cuts if c < len(rows)])))
        found = samples.firsts(model.project(queries, content=1.0), codes[skipped:])
        return float(
            np.mean([len(np.intersect1d(*pair)) for pair in zip(found, near, strict=True)])
        )

    def share(cuts: list[int]) -> tuple[float | None, str]:
        return tried(lambda: kept(cuts) / samples.PLACES)

    goal, note = share([1000, 1500, 2000, 2500])
    yield "neighbours kept, first chunk of 1,000", goal, None, note
    least = None if goal is None else 0.9 * goal
    for first in (1, 5, 30, 200):
        value, note = share([first, *range(500, 3000, 500)])
        yield f"neighbours kept, first chunk of {first}", value, least, note or ".9 of 1,000 first"
    value, note = share([*range(30, 601, 30), *range(1000, 3000, 500)])
    yield "neighbours kept, 20 chunks of 30", value, least, note or ".9 of 1,000 first"


def few_labels(s: Sample, seed: int) -> Bars:
    """1, 3, 10, 30 labelled items a class, then unlabelled ones: the search must not get worse."""
    queries = s.data.take(s.queries)
    for k in (1, 3, 10, 30):
        firsts = [s.rows[s.data.L[s.rows, c] > 0][:k] for c in range(len(s.data.classes))]
        given = s.rows[np.isin(s.rows, np.concatenate(firsts))]
        bare = s.rows[~np.isin(s.rows, given)][:N_UNLABELLED]
        if len(bare) < len(s.queries):
            continue
        base = np.concatenate([given, bare])
        labels = s.relevance(base)
        model = search_model(seed)
        told = chunks_of(s.data, chunked(given, 2000))
        codes = learn(model, told + chunks_of(s.data, chunked(bare, CHUNK), labelled=False))
        usual, alone = (
            float(samples.right(samples.firsts(projected, codes), labels).mean())
            for projected in (model.project(queries), model.project(queries, content=1.0))
        )
        floats = samples.best(samples.cosine(queries, s.data.take(base)))
        yield f"P@10, {k} a class", usual, alone - 0.02, "content alone - .02"
        yield f"P@10, {k} a class, content alone", alone, None, ""
        yield f"P@10, {k} a class, float", float(samples.right(floats, labels).mean()), None, ""


def single_tag(s: Sample, seed: int) -> Bars:
    """30 items with one tag and no others, then unlabelled ones: found by the tag's word?"""
    share = s.data.L.mean(axis=0)
    near = np.argsort(np.abs(share - 0.04), kind="stable")[:4]
    usual = [n for n in ("dog", "pizza", "train", "cat") if n in s.data.classes]
    for tag in usual or [s.data.classes[c] for c in near]:
        has = s.data.L[:, s.data.classes.index(tag)] > 0
        given = s.rows[has[s.rows]][:30]
        bare = s.rows[~np.isin(s.rows, given)][:N_UNLABELLED]
        for at in (0, min(500, len(bare) // 2)):
            rest = bare[at:]
            parts: list[tuple[Rows, Names]] = [(bare[:at], [()] * at)] if at else []
            parts += [(given, [(tag,)] * len(given))]
            parts += [(part, [()] * len(part)) for part in chunked(rest, CHUNK)]
            stream: list[Chunk] = [(s.data.take(part), names) for part, names in parts]
            model = search_model(seed)
            stored = learn(model, stream)[-len(rest) :]
            labels = (np.ones((1, 1), np.uint8), has[rest][:, None].astype(np.uint8))
            own = samples.score_map(model.predict_labels(s.data.take(rest)).T, labels)
            value = samples.label_map(model.project_words([tag]), stored, labels)
            after = f", after {at} untagged" if at else ""
            yield f"MAP by {tag!r}{after}", value, 0.6 * own, f".6 of own prediction, {own:.3f}"


def without_texts(s: Sample, seed: int) -> Bars:
    """A first chunk without texts: later items by three of their words."""
    if not hasattr(s.data.X.get("text"), "nnz"):
        return
    rows = s.rows[:3000]
    size = min(CHUNK, len(rows) // 3)
    base = rows[size:]
    items = np.arange(min(400, len(base)))
    rng = np.random.default_rng([seed, 34])
    words = {"text": samples.few_words(s.data.take(base[items])["text"], rng)}
    stream = chunks_of(s.data, chunked(rows, size))
    first, names = stream[0]
    bare = {name: x for name, x in first.items() if name != "text"}
    zeros = {**bare, "text": first["text"] * 0}

    def found(begin: X) -> float:
        model = search_model(seed)
        codes = learn(model, [(begin, names), *stream[1:]])[len(names) :]
        return samples.found_among(model.project(words), codes, items)

    goal = found(first)
    yield "three words, texts from the start", goal, None, ""
    for what, begin in (("without the modality", bare), ("rows of zeros", zeros)):
        value, note = tried(partial(found, begin))
        yield f"three words, first chunk {what}", value, goal - 0.03, note or "from the start - .03"


def added_modality(s: Sample, seed: int) -> Bars:
    """A modality that comes after 1,000 items: label MAP of its queries."""
    n = min(1000, len(s.rows) // 3)
    rows = s.rows[: n + 3000]
    whole = chunks_of(s.data, [*chunked(rows[:n], 500), *chunked(rows[n:], CHUNK)])
    n_first = -(-n // 500)
    labels = s.relevance(rows)
    for late in s.data.X:
        queries = {late: s.data.take(s.queries)[late]}

        def found(stream: Sequence[Chunk], queries: X = queries) -> float:
            model = search_model(seed)
            codes = learn(model, stream)
            return samples.label_map(model.project(queries), codes, labels)

        def lacking(part: X, late: str = late) -> X:
            return {name: x for name, x in part.items() if name != late}

        stream = [(lacking(part), names) for part, names in whole[:n_first]] + whole[n_first:]
        goal = found(whole)
        yield f"label MAP by {late}, from the start", goal, None, ""
        value, note = tried(partial(found, stream))
        note = note or "from the start - .02"
        yield f"label MAP by {late}, added later", value, goal - 0.02, note


STREAMS: dict[str, Callable[[Sample, int], Bars]] = {
    "begun-unlabelled": begun_unlabelled,
    "begun-small": begun_small,
    "few-labels": few_labels,
    "single-tag": single_tag,
    "without-texts": without_texts,
    "added-modality": added_modality,
}
MANY = ("gaussian-clusters", "words-as-labels")


def bars(names: Sequence[str], only: Sequence[str], seed: int) -> Iterator[Bar]:
    """Measure the streams that are named, on each data set."""
    for name in names:
        data = samples.load_data(name)
        s = samples.sample(data, seed)
        for stream, measure in STREAMS.items():
            if stream in only:
                yield from (Bar(stream, data.name, *each) for each in measure(s, seed))
    if "gaussian-clusters" in only:
        yield from (Bar("gaussian-clusters", "", *each) for each in gaussian_clusters(seed))
    if "words-as-labels" in only:
        s = samples.sample(samples.load_data("words"), seed)
        yield from (Bar("words-as-labels", "words", *each) for each in words_as_labels(s, seed))


def main(arguments: Sequence[str]) -> int:
    parser = options("streams", __doc__, beside=True)
    parser.add_argument("--only", default=",".join((*STREAMS, *MANY)))
    asked = parser.parse_args(arguments)
    only = asked.only.split(",")
    if unknown := set(only) - {*STREAMS, *MANY}:
        known = ", ".join((*STREAMS, *MANY))
        parser.error(f"unknown stream {sorted(unknown)[0]!r}; known: {known}")
    return report(asked, lambda seed: bars(asked.data.split(","), only, seed))
