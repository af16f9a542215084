"""What the file of a model says of a `CodewordState`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oasis.model.base import ModelState, check_shape
from oasis.model.calibration import Calibration
from oasis.model.codeword_state import CodewordState
from oasis.model.content import Content
from oasis.model.file import ModelFile, Stored
from oasis.model.hash_functions import LinearMap
from oasis.model.novelty import ContentSums
from oasis.model.readout import BitSums, ClassPairs, Codebook, CodeSums


def to_file(state: CodewordState) -> tuple[dict[str, Any], Stored]:
    """Return what a file has beside what both kinds of model have: header and arrays."""
    book = state.codebook
    arrays: Stored = {
        "BB": book.bits.BB,
        "B1": book.bits.B1,
        "LB": book.LB,
        "counts": book.counts,
        "guesses/BB": state.guesses.bits.BB,
        "guesses/B1": state.guesses.bits.B1,
        "guesses/LB": state.guesses.LB,
        "guesses/counts": state.guesses.counts,
        "pairs": book.pairs.data,
        "pairs/columns": book.pairs.columns,
        "pairs/ends": book.pairs.ends,
        "codewords": state.codewords,
        "content/BB": state.content_sums.bits.BB,
        "content/B1": state.content_sums.bits.B1,
        "content/LB": state.content_sums.LB,
        "content/distances": state.content_sums.distances,
        "calibration": np.stack(
            [[each.hits, each.misses] for each in (state.calibration, *state.alone.values())]
        ),
    }
    own = {} if state.content is None else state.content.own
    for name, map_ in own.items():
        arrays[f"content/{name}/P"] = map_.weights[name]
        arrays[f"content/{name}/o"] = map_.offsets[name]
    meta = {
        "n_coded": book.bits.n,
        "n_guesses": state.guesses.bits.n,
        "n_content_coded": state.content_sums.bits.n,
        "n_owned": state.n_owned,
        "n_doubt": state.n_doubt,
        "n_regressed": state.n_regressed,
        "content": None if state.content is None else list(own),
    }
    return meta, arrays


def from_file(common: ModelState, file: ModelFile, n_bits: int, asked: int | None) -> CodewordState:
    """Return the state that `to_file` described; ValueError where parts do not fit.

    Where no number of content bits was ``asked`` for, it is that of the file: the default of
    another version may be another.
    """
    header, arrays = file.header, file.arrays
    n_content_bits = len(arrays["content/B1"]) if asked is None else asked
    counts, r = arrays["counts"], n_bits - n_content_bits
    n_owned, n_doubt = int(header["n_owned"]), int(header["n_doubt"])
    c = len(common.labels.names)
    pairs = ClassPairs(arrays["pairs"], arrays["pairs/columns"], arrays["pairs/ends"])
    pairs.check(c)
    bits = BitSums(arrays["BB"], arrays["B1"], int(header["n_coded"]))
    book = Codebook(bits, arrays["LB"], counts, pairs)
    guesses = CodeSums(
        BitSums(arrays["guesses/BB"], arrays["guesses/B1"], int(header["n_guesses"])),
        arrays["guesses/LB"],
        arrays["guesses/counts"],
    )
    c_guessed = len(guesses.counts)
    content_bits = BitSums(
        arrays["content/BB"], arrays["content/B1"], int(header["n_content_coded"])
    )
    sums = ContentSums(content_bits, arrays["content/LB"], arrays["content/distances"])
    for name, array, shape in (
        ("BB", bits.BB, (r, r)),
        ("B1", bits.B1, (r,)),
        ("content/BB", content_bits.BB, (n_content_bits, n_content_bits)),
        ("content/B1", content_bits.B1, (n_content_bits,)),
        ("content/LB", sums.LB, (c if n_content_bits else 0, n_content_bits)),
        ("content/distances", sums.distances, (3,)),
        ("LB", book.LB, (c, r)),
        ("counts", counts, (c,)),
        ("guesses/BB", guesses.bits.BB, (r, r)),
        ("guesses/B1", guesses.bits.B1, (r,)),
        ("guesses/LB", guesses.LB, (c_guessed, r)),
        ("guesses/counts", guesses.counts, (c_guessed,)),
        ("codewords", arrays["codewords"], (c, r)),
        ("calibration", arrays["calibration"], (1 + len(common.ridges), 2, 3)),
    ):
        check_shape(name, array, shape)
    if n_doubt not in (0, 1) or not n_doubt <= n_owned <= r - n_doubt:
        raise ValueError(f"{n_owned} owned bits and {n_doubt} of doubt, of {r}")
    content = None
    if header["content"] is not None:
        widths = {name: ridge.n_features - 1 for name, ridge in common.ridges.items()}
        content = _content_from_file(header["content"], file, widths)
        if sum(content.sizes.values()) != n_content_bits:
            raise ValueError(
                f"{sum(content.sizes.values())} content bits, expected {n_content_bits}"
            )
    state = CodewordState(
        common.parameters,
        common.labels,
        common.ridges,
        common.n_seen,
        common.generator,
        arrays["codewords"],
        n_owned,
        n_doubt,
        book,
        guesses,
        content,
        sums,
        int(header["n_regressed"]),
        Calibration(*arrays["calibration"][0]),
        {
            name: Calibration(*each)
            for name, each in zip(common.ridges, arrays["calibration"][1:], strict=True)
        },
    )
    if guesses.bits.n < 0 or c_guessed > c:
        raise ValueError(f"{guesses.bits.n} guesses of {c_guessed} classes, of {c}")
    if not (arrays["calibration"][:, :, 0] >= 0).all() or not sums.distances[0] >= 0:
        raise ValueError("a calibration of a negative number of samples")
    for name, ridge in common.ridges.items():
        shape = (state.n_content_targets(name) + c, ridge.n_features)
        check_shape(f"{name}/BX", ridge.BX, shape)
    return state


def _content_from_file(names: list[str], file: ModelFile, widths: Mapping[str, int]) -> Content:
    own = {}
    for name in names:
        P, o = file.arrays[f"content/{name}/P"], file.arrays[f"content/{name}/o"]
        check_shape(f"content/{name}/P", P, (len(o), widths[name]))
        check_shape(f"content/{name}/o", o, (len(P),))
        own[name] = LinearMap({name: P}, {name: o}, normalize=True)
    return Content(own)
