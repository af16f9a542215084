"""The paper's own data: MIRFlickr and NUS-WIDE as the authors' ``.mat`` files.

Each data set is one file of six variables, ``I_tr``, ``T_tr``, ``L_tr``, ``I_te``, ``T_te`` and
``L_te``: image features, text features and label indicators, samples as rows, train and test.
Beside it lies a file with a vector for each label name. Both MAT 5 and MAT 7.3 (HDF5, which needs
the extra ``paper``) are read; a matrix may be dense or sparse.

Train and test parts are merged, train first: the online settings draw their own queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.datasets.dataset import Dataset, Source
from oasis.datasets.matfile import MatFile, dense, open_mat
from oasis.errors import DataError

WHERE = "https://github.com/DravenALG/OASIS"
"""Where the authors publish links to their features."""

VARIABLES = ("I_tr", "T_tr", "L_tr", "I_te", "T_te", "L_te")


@dataclass(frozen=True)
class MatLayout:
    """What a data set's files must hold."""

    name: str
    file: str
    vectors_file: str
    names_variable: str
    vectors_variable: str
    vectors_sha256: str
    n_samples: int
    image_features: int
    text_features: int
    classes: tuple[str, ...]


# The class names are those of the authors' vectors, in the order of the label columns. 'wate' is
# their spelling, and the vector in the file is the vector of that spelling.
MIRFLICKR = MatLayout(
    name="mirflickr",
    file="MIRFLICKR_deep.mat",
    vectors_file="MIRFLICKR_Groundtrue_Vec.mat",
    names_variable="mir_gt",
    vectors_variable="mir_gt_vec",
    vectors_sha256="f360a84ae2b308ae532bce538593e838e869c74cced64b82fe50785b0db8b0fb",
    n_samples=20_015,
    image_features=4096,
    text_features=1386,
    classes=(
        *("animals", "baby", "bird", "car", "clouds", "dog", "female", "flower", "food", "indoor"),
        *("lake", "male", "night", "people", "plant", "portrait", "river", "sea", "sky"),
        *("structures", "sunset", "transport", "tree", "wate"),
    ),
)
NUSWIDE = MatLayout(
    name="nuswide",
    file="NUSWIDE21_deep.mat",
    vectors_file="NUSWIDE21_Groundtrue_Vec.mat",
    names_variable="nus_gt",
    vectors_variable="nus_gt_vec",
    vectors_sha256="f31a678a1dd8084dd9484b17f69f5d56902b171b6afc4d616b9689117c5db2b1",
    n_samples=195_834,
    image_features=4096,
    text_features=5018,
    classes=(
        *("sky", "clouds", "person", "water", "animal", "grass", "buildings", "window", "plants"),
        *("lake", "ocean", "road", "flowers", "sunset", "reflection", "rocks", "vehicle", "snow"),
        *("tree", "beach", "mountain"),
    ),
)


def mirflickr_text(folder: str | Path) -> Dataset:
    """Read the labels and texts of MIRFlickr without its pictures: 20,015 samples.

    ``mirflickr25k-lall.mat`` (``LAll``) and ``mirflickr25k-yall.mat`` (``YAll``, 1386 features) of
    the program of another paper, whose counts of labels fit the classes in this order. With texts
    alone, no figure is one of the paper.
    """
    folder = Path(folder)
    labels, texts = (folder / f"mirflickr25k-{each}.mat" for each in ("lall", "yall"))
    parts = []
    for file, variable in ((labels, "LAll"), (texts, "YAll")):
        if not file.is_file():
            raise DataError(f"{file}: no such file; it holds {variable} of MIRFlickr")
        with open_mat(file) as mat:
            parts.append(_whole(mat, variable))
    if parts[0].shape[1] != len(MIRFLICKR.classes) or len(parts[0]) != len(parts[1]):
        raise DataError(f"{labels}: LAll is {parts[0].shape}, YAll {parts[1].shape}")
    beside = [each / MIRFLICKR.vectors_file for each in (folder, folder.parent)]
    beside = [each for each in beside if each.is_file()][:1]
    return Dataset(
        "mirflickr-text",
        {"text": sp.csr_array(parts[1], dtype=np.float32)},
        parts[0].astype(np.uint8),
        MIRFLICKR.classes,
        vectors=label_vectors(beside[0], MIRFLICKR) if beside else None,
        sources=tuple(map(Source.of, (labels, texts, *beside))),
    )


def read(path: str | Path, layout: MatLayout) -> Dataset:
    """Read one of the paper's data sets; image dense float32, text CSR float32.

    ``path`` is the file, or the folder that holds it. The label-name vectors are read too when
    their file lies beside it. NUS-WIDE's image features take 3.2 GB; a MAT 7.3 file is read in
    blocks, so little more is needed while loading.
    """
    file = locate(path, layout)
    with open_mat(file) as mat:
        n_train, n_test = _check_shapes(mat, layout)
        n = n_train + n_test
        image = np.empty((n, layout.image_features), dtype=np.float32)
        L = np.empty((n, len(layout.classes)), dtype=np.uint8)
        text = []
        for part, start in (("tr", 0), ("te", n_train)):
            for row, block in mat.blocks(f"I_{part}"):
                image[start + row : start + row + block.shape[0]] = dense(block)
            text += [sp.csr_array(block, dtype=np.float32) for _, block in mat.blocks(f"T_{part}")]
            for row, block in mat.blocks(f"L_{part}"):
                labels = dense(block)
                if len(bad := labels[~np.isin(labels, (0, 1))]):
                    raise DataError(
                        f"{file}: variable L_{part} holds {bad[0].item()}, expected 0 and 1"
                    )
                L[start + row : start + row + len(labels)] = labels
    beside = file.with_name(layout.vectors_file)
    has_vectors = beside.is_file()
    return Dataset(
        layout.name,
        {"image": image, "text": sp.csr_array(sp.vstack(text, format="csr"))},
        L,
        layout.classes,
        vectors=label_vectors(beside, layout) if has_vectors else None,
        sources=tuple(map(Source.of, (file, beside) if has_vectors else (file,))),
        recipe={"merged": f"train {n_train} + test {n_test}"},
    )


def label_vectors(path: str | Path, layout: MatLayout) -> dict[str, npt.NDArray[np.float32]]:
    """Read the vectors of the label names: class name -> (f,) float32, in column order.

    Names are stored padded with spaces; they are stripped, and must be the layout's classes.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; {layout.vectors_file} is at {WHERE}")
    with open_mat(path) as mat:
        held = mat.shapes()
        for variable in (layout.names_variable, layout.vectors_variable):
            if variable not in held:
                raise DataError(f"{path}: no variable {variable}; it holds {sorted(held)}")
        names = mat.strings(layout.names_variable)
        vectors = _whole(mat, layout.vectors_variable).astype(np.float32)
    if tuple(names) != layout.classes:
        raise DataError(
            f"{path}: variable {layout.names_variable} holds the names {names}, "
            f"expected {list(layout.classes)}"
        )
    if len(vectors) != len(names):
        raise DataError(
            f"{path}: variable {layout.vectors_variable} has shape {vectors.shape}, "
            f"expected ({len(names)}, f)"
        )
    return dict(zip(names, vectors, strict=True))


def locate(path: str | Path, layout: MatLayout) -> Path:
    """Return the data file, given the file or its folder; an error says what to download."""
    path = Path(path)
    file = path / layout.file if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"{file}: no such file. Download {layout.file} and {layout.vectors_file} from {WHERE} "
            f"and put both into {file.parent}/. {layout.file} must hold "
            f"{', '.join(VARIABLES)} (images n x {layout.image_features}, texts n x "
            f"{layout.text_features}, labels n x {len(layout.classes)})"
        )
    return file


def check(path: str | Path, layout: MatLayout) -> list[str]:
    """Read the files, and return what differs from those that were published: nothing is right.

    Compares the number of samples, the classes that occur and the checksum of the label vectors.
    No checksum of the feature files is published. A file that cannot be read raises its error.
    """
    data = read(path, layout)
    found = []
    if data.n_samples != layout.n_samples:
        found.append(f"{data.n_samples:,} samples, expected {layout.n_samples:,}")
    for column in np.flatnonzero(data.L.sum(axis=0, dtype=np.int64) == 0):
        found.append(f"no sample has the class {data.classes[column]}")
    digests = {source.file: source.sha256 for source in data.sources}
    digest = digests.get(layout.vectors_file, "absent")
    if digest != layout.vectors_sha256:
        found.append(f"sha256 of {layout.vectors_file}: {digest}, not {layout.vectors_sha256}")
    return found


def _whole(mat: MatFile, variable: str) -> npt.NDArray[Any]:
    return np.concatenate([dense(block) for _, block in mat.blocks(variable)])


def _check_shapes(mat: MatFile, layout: MatLayout) -> tuple[int, int]:
    """Return the rows of the train and test parts; raise unless all six variables fit."""
    widths = {"I": layout.image_features, "T": layout.text_features, "L": len(layout.classes)}
    shapes = mat.shapes()
    for variable in VARIABLES:
        width = widths[variable[0]]
        if variable not in shapes:
            raise DataError(
                f"{mat.path}: no variable {variable}; it holds {sorted(shapes) or 'nothing'}, "
                f"expected {', '.join(VARIABLES)}"
            )
        shape = shapes[variable]
        if len(shape) != 2 or shape[1] != width:
            hint = "; is it transposed? samples are rows" if shape[:1] == (width,) else ""
            found = " x ".join(f"{size:,}" for size in shape)
            raise DataError(
                f"{mat.path}: variable {variable} is {found}, expected n x {width:,}{hint}"
            )
    for part in ("tr", "te"):
        rows = {v: shapes[v][0] for v in VARIABLES if v.endswith(part)}
        if len(set(rows.values())) > 1:
            raise DataError(
                f"{mat.path}: the variables of the {part} part differ in their number of rows: "
                f"{rows}"
            )
    return shapes["L_tr"][0], shapes["L_te"][0]
