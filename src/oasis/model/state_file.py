"""What the file of a model says of a `CodewordState`."""

from __future__ import annotations

from typing import Any

import numpy as np

from oasis.model.base import ModelState, check_shape
from oasis.model.calibration import Calibration
from oasis.model.content import Content, check_guess
from oasis.model.file import ModelFile, Stored
from oasis.model.hash_functions import LinearMap
from oasis.model.readout import BitSums, ClassPairs, Codebook, CodeSums
from oasis.model.ridge import Ridge
from oasis.model.state import CodewordState


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
        "guessed": state.guessed,
        "content/BB": state.content_bits.BB,
        "content/B1": state.content_bits.B1,
        "calibration": np.stack([each.sums for each in (state.calibration, *state.alone.values())]),
    }
    for name, map_ in state.content.own.items():
        arrays[f"content/{name}/P"] = map_.weights[name]
        arrays[f"content/{name}/o"] = map_.offsets[name]
    for name, ridge in state.everything.items():
        arrays |= {f"everything/{name}/{key}": array for key, array in ridge.state().items()}
    meta = {
        "n_coded": book.bits.n,
        "n_guesses": state.guesses.bits.n,
        "n_content_coded": state.content_bits.n,
        "n_owned": state.n_owned,
        "sizes": dict(state.content.sizes),
        "made": dict(state.content.rows),
        "guess": state.content.guess,
        "content_since": state.content_since,
        "everything": list(state.everything),
        "chosen": state.chosen,
    }
    return meta, arrays


def from_file(common: ModelState, file: ModelFile, n_bits: int, n_content: int) -> CodewordState:
    """Return the state that `to_file` described; ValueError where parts do not fit."""
    header, arrays = file.header, file.arrays
    counts, r = arrays["counts"], n_bits - n_content
    c = len(arrays["codewords"])
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
    for name, array, shape in (
        ("BB", bits.BB, (r, r)),
        ("B1", bits.B1, (r,)),
        ("content/BB", content_bits.BB, (n_content, n_content)),
        ("content/B1", content_bits.B1, (n_content,)),
        ("LB", book.LB, (c, r)),
        ("counts", counts, (c,)),
        ("guesses/BB", guesses.bits.BB, (r, r)),
        ("guesses/B1", guesses.bits.B1, (r,)),
        ("guesses/LB", guesses.LB, (c_guessed, r)),
        ("guesses/counts", guesses.counts, (c_guessed,)),
        ("codewords", arrays["codewords"], (c, r)),
        ("calibration", arrays["calibration"], (1 + len(common.ridges), 8)),
    ):
        check_shape(name, array, shape)
    check_shape("guessed", arrays["guessed"], (257, 257) if len(arrays["guessed"]) else (0, 0))
    everything = {
        name: Ridge.from_state(file.under(f"everything/{name}/")) for name in header["everything"]
    }
    state = CodewordState(
        common.parameters,
        common.labels,
        common.ridges,
        common.n_seen,
        common.generator,
        everything,
        arrays["codewords"],
        int(header["n_owned"]),
        book,
        guesses,
        _content_from_file(common, file),
        arrays["guessed"],
        content_bits,
        int(header["content_since"]),
        Calibration.from_sums(arrays["calibration"][0]),
        {
            name: Calibration.from_sums(each)
            for name, each in zip(common.ridges, arrays["calibration"][1:], strict=True)
        },
        bool(header["chosen"]),
    )
    if not -1 <= state.n_owned <= r or (c and state.n_owned < 0) or c > len(common.labels.names):
        raise ValueError(f"{state.n_owned} owned bits, of {r}, and {c} classes")
    if guesses.bits.n < 0 or c_guessed > c or not (arrays["calibration"] >= 0).all():
        raise ValueError(f"{guesses.bits.n} guesses of {c_guessed} classes, of {c}")
    if everything and list(everything) != list(common.ridges):
        raise ValueError(f"regressions over all of {list(everything)}")
    for name, ridge in common.ridges.items():
        n = state.n_others(name)
        check_shape(f"{name}/BX", ridge.BX, (n + c, ridge.n_features))
        if everything:
            everything[name].check_shapes(name)
            check_shape(f"everything/{name}/BX", everything[name].BX, (n, ridge.n_features))
    return state


def _content_from_file(common: ModelState, file: ModelFile) -> Content:
    sizes = {str(name): int(size) for name, size in file.header["sizes"].items()}
    rows = {str(name): int(n) for name, n in file.header["made"].items()}
    own = {}
    for name in rows:
        P, o = file.arrays[f"content/{name}/P"], file.arrays[f"content/{name}/o"]
        check_shape(f"content/{name}/P", P, (sizes[name], common.ridges[name].n_features - 1))
        check_shape(f"content/{name}/o", o, (sizes[name],))
        own[name] = LinearMap({name: P}, {name: o}, normalize=True)
    if sizes and (
        sum(sizes.values()) != len(file.arrays["content/B1"])
        or not sizes.keys() <= common.ridges.keys()
    ):
        raise ValueError(f"{sizes} content bits, expected {len(file.arrays['content/B1'])}")
    widths = {name: ridge.n_features - 1 for name, ridge in common.ridges.items()}
    return Content(sizes, own, rows, check_guess(file.header["guess"], widths))
