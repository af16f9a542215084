"""The command line from end to end: what is printed, what is written, what the exit codes are."""

import json
import sqlite3
from pathlib import Path

import cli_data
import faiss
import numpy as np
import pytest
from cli_data import TEXT_ONLY, WORDS, row, write_jsonl

from oasis.cli import reference
from oasis.cli.console import file_size
from oasis.collection import Collection
from oasis.model import OASIS

ingested = cli_data.ingested
filled = cli_data.filled


def test_info_tells_the_sums_of_the_published_method(tmp_path, oasis):
    model = OASIS.paper(16, labels="orthogonal", random_state=0)
    with Collection.open(tmp_path / "c.oasis", model=model) as opened:
        X = {"image": np.random.default_rng(0).random((9, 4))}
        opened.ingest(X, [[list(WORDS)[n % 3]] for n in range(9)])
    norms = json.loads(oasis("info", tmp_path / "c.oasis", "--json")[1])["norms"]
    assert set(norms) == {"W image", "sum G'V", "sum V'V"}
    assert min(norms.values()) > 0


def test_info_is_narrow_in_a_pipe_where_a_round_brings_many_classes(tmp_path, oasis):
    names = [f"class number {n}" for n in range(60)]
    with Collection.open(tmp_path / "c", 16) as c:
        c.ingest({"x": np.eye(60)}, [[name] for name in names])
    code, out, _ = oasis("info", tmp_path / "c")
    assert code == 0 and max(map(len, out.splitlines())) < 100
    assert "class number 1 and 58 more" in out
    assert all(name in out for name in names)  # among the classes


def test_info_tells_classes_rounds_and_sizes(filled, oasis):
    code, out, _ = oasis("info", filled, "--json")
    found = json.loads(out)
    assert code == 0
    assert {each["name"]: each["n"] for each in found["classes"]} == dict.fromkeys(WORDS, 20)
    assert [each["n"] for each in found["rounds"]] == [40, 20]
    assert found["rounds"][0]["precision"] is None
    assert found["rounds"][1]["precision"] > found["rounds"][1]["chance"]
    assert set(found["norms"]) == {"W text", "codewords"}
    assert min(found["norms"].values()) > 0
    code, out, _ = oasis("info", filled)
    assert code == 0
    assert "60 now, 60 ever" in out and "hashed-text-64-tf@3" in out and "since round" in out


@pytest.mark.parametrize("form", ["faiss", "npz", "parquet"])
def test_export_holds_every_code_under_its_id(filled, tmp_path, oasis, form):
    out = tmp_path / f"codes.{form}"
    given = () if form == "parquet" else ("--format", form)  # the name tells it too
    code, printed, _ = oasis("export", filled, out, *given, "--json")
    assert (code, json.loads(printed)["items"]) == (0, 60)
    with Collection.open(filled, readonly=True) as opened:
        truth = {f"item-{number}": opened.get(f"item-{number}").code for number in range(60)}
    if form == "faiss":
        index = faiss.read_index_binary(str(out))
        lines = (tmp_path / "codes.faiss.ids.jsonl").read_text().splitlines()
        keys = {each["key"]: each["id"] for each in map(json.loads, lines)}
        codes = faiss.vector_to_array(faiss.downcast_IndexBinary(index.index).xb).reshape(60, -1)
        ids = faiss.vector_to_array(index.id_map)
        found = {keys[int(key)]: each.tobytes() for key, each in zip(ids, codes, strict=True)}
    elif form == "npz":
        with np.load(out) as arrays:
            found = {
                str(key): each.tobytes()
                for key, each in zip(arrays["ids"], arrays["codes"], strict=True)
            }
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(out).to_pylist()
        found = {each["id"]: each["code"] for each in rows}
        assert rows[3]["predicted"] == []
        assert rows[3]["labels"] == ["sea"] and json.loads(rows[3]["payload"]) == {"year": 2003}
    assert found == truth


def test_export_to_faiss_keeps_whole_numbers(tmp_path, oasis):
    source = write_jsonl(tmp_path / "i.jsonl", [{**row(n), "id": 5 * n} for n in range(9)])
    oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY)
    oasis("export", tmp_path / "c.oasis", tmp_path / "c.faiss", "--format", "faiss")
    index = faiss.read_index_binary(str(tmp_path / "c.faiss"))
    assert faiss.vector_to_array(index.id_map).tolist() == [5 * n for n in range(9)]
    assert not (tmp_path / "c.faiss.ids.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "nowhere", "--text", "a"), "there is no collection at nowhere"),
        (("search", "C", "--like", "nobody"), "no item has the id 'nobody'"),
        (("search", "C", "--text", "a", "--where", "{broken"), "is no JSON"),
        (("search", "C", "--text", "a", "--where", '{"a":' * 99_999), "is no JSON"),
        (("search", "C", "--text", "a", "--where", "year"), "is no condition"),
        (("search", "C", "--text", "a", "--where", "year<>2014"), "is no condition"),
        (("search", "C", "--text", "a", "--where", "year=>2014"), "is no condition"),
        (("search", "C", "--text", "boat", "--where", "yaer=2014"), "did you mean 'year'?"),
        (("search", "C", "--text", "boat", "--where", "x<1"), "no item has a field 'x'"),
        (
            ("search", "C", "--text", "boat", "--where", "year>abc"),
            "the field 'year' holds numbers only, and where compares it with the text 'abc'",
        ),
        (
            ("search", "C", "--text", "boat", "--where", '{"$labels": {"has": "see"}}'),
            "no class is called 'see'; did you mean 'sea'?",
        ),
        (
            ("search", "C", "--text", "boat", "--mode", "hamming", "--content", "0.5"),
            "leave one of them out",
        ),
        (("search", "C", "--text", "boat", "--save", "no/such/folder.png"), "cannot write"),
        (("search", "C", "--image", "no.png"), "makes no features of pictures; use --text"),
        (("search", "C", "--like", "Photos/item-3"), "did you mean 'item-3'?"),
        (("update", "C", "Item-3", "--no-labels"), "did you mean 'item-3'?"),
        (("delete", "C", "item-4", "ITEM-3.png"), "did you mean 'item-3'?"),
        (("search", "C", "--text", "boat", "--where", "$labels=see"), "did you mean 'sea'?"),
        (("export", "C", "out", "--format", "csv"), "expected one of faiss, npz, parquet"),
        (
            ("export", "C", "no/codes.csv"),
            "codes.csv ends in .csv, which is no format of codes; name",
        ),
        (("export", "C", "no/such/folder.npz"), "cannot write"),
        (("info", "nowhere"), "there is no collection"),
        (("ingest", "C", "nothing.jsonl"), "there is no file or folder nothing.jsonl"),
        (("ingest", "C", "I", "--bits", "32"), "256 bits"),
        (("ingest", "C", "I", "--owned", "7"), "made with owned=None, got 7"),
        (("ingest", "N", "I", "--owned", "129"), "owned must be an integer from 0 to"),
        (("ingest", "N", "I", "--bits", "7"), "a positive multiple of 8"),
        (("ingest", "N", "I", "--bits", "65536"), "at most 4096 bits, got 65536"),
        (("ingest", "N", "I", "--bits", "65536", "--owned", "8"), "at most 4096 bits"),
        (("ingest", "N", "I", "--image-extractor", "efficentnet"), "mean 'efficientnet'?"),
        (("ingest", "C", "I", "--text-extractor", "meaning"), "the one recorded made"),
        (("ingest", "I", "I"), "is a file"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(filled, tmp_path, oasis, arguments, said):
    names = {"C": filled, "I": tmp_path / "items.jsonl", "N": tmp_path / "new.oasis"}
    code, out, err = oasis(*(names.get(each, each) for each in arguments))
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert said in err
    assert not names["N"].exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "C"),
        ("search", "C", "--text", "a", "--like", "b"),
        ("search", "C", "--text", "a", "--mode", "best"),
        ("search", "C", "--text", "a", "-k", "0"),
        ("search", "C", "--word", "sea", "--no-fuse"),
        ("search", "C", "--like", "b", "--no-fuse"),
        ("ingest", "C"),
        ("frobnicate",),
    ],
)
def test_wrong_usage_is_exit_code_2(filled, oasis, arguments):
    code, out, err = oasis(*(filled if each == "C" else each for each in arguments))
    assert (code, out) == (2, "")
    assert "Usage" in err


@pytest.mark.parametrize("command", ["demo", "ingest", "search", "info", "export"])
def test_help_has_an_example(oasis, command):
    code, out, _ = oasis(command, "-h")
    assert code == 0
    assert f"Example: oasis {command}" in out


def test_check_repair_backup_and_restore(filled, tmp_path, oasis):
    assert oasis("check", filled)[:2] == (0, "60 items: everything was read and is sound\n")
    assert oasis("backup", filled, tmp_path / "copy")[0] == 0
    with sqlite3.connect(filled / "catalog.sqlite") as database:
        database.execute("DELETE FROM members WHERE class = 1")
    database.close()
    code, out, _ = oasis("check", filled, "--json")
    assert code == 1 and "classes lack" in " ".join(json.loads(out)["findings"])
    assert oasis("check", filled, "--repair")[0] == 0
    assert oasis("check", filled)[0] == 0
    code, _, err = oasis("restore", tmp_path / "copy", filled)
    assert code == 1 and "not empty" in err
    assert oasis("restore", tmp_path / "copy", tmp_path / "back")[0] == 0
    with Collection.open(tmp_path / "back", readonly=True) as opened:
        assert len(opened) == 60
    for command in (("check", "--repair"), ("check",)):
        code, _, err = oasis(*command, tmp_path / "absent")
        assert code == 1 and "no collection" in err
    assert not (tmp_path / "absent").exists()


def test_reference_is_current():
    path = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
    assert path.read_text("utf-8") == reference.reference(), (
        "run: python -m oasis.cli.reference docs/cli.md"
    )
    assert "`None`" not in reference.reference()  # an argument without a name


def test_sizes_for_people():
    assert [file_size(n) for n in (999, 1000, 10**6, 10**9, 10**12)] == [
        "999 B",
        "1.0 kB",
        "1.0 MB",
        "1.0 GB",
        "1.0 TB",
    ]


def test_delete_removes_items_or_nothing(filled, oasis):
    code, out, err = oasis("delete", filled, "item-3", "item-4")
    assert (code, err) == (0, "")
    assert out == "2 deleted; 58 in the collection\n"
    code, _, err = oasis("delete", filled, "item-5", "item-3")
    assert code == 1
    assert "no item has the id 'item-3'; nothing was deleted" in err
    code, out, _ = oasis("delete", filled, "item-5", "--json")
    assert json.loads(out) == {"deleted": 1, "items": 57}
    assert oasis("delete", filled.with_name("none.oasis"), "a")[0] != 0
    assert not filled.with_name("none.oasis").exists()


def test_update_changes_labels_and_payload(filled, oasis):
    code, out, err = oasis("update", filled, "item-3", "--label", "cat", "--label", "[sofa]")
    assert (code, err) == (0, "")
    assert out.startswith("item-3: cat, [sofa]; {")
    with Collection.open(filled, readonly=True) as opened:
        before = opened.get("item-4")
        assert opened.get("item-3").labels == ("cat", "[sofa]")
    code, out, _ = oasis("update", filled, "item-4", "--payload", '{"year": 2020}', "--json")
    expected = {"id": "item-4", "labels": list(before.labels), "payload": {"year": 2020}}
    assert json.loads(out) == expected
    code, out, _ = oasis("update", filled, "item-4", "--no-labels", "--json")
    assert json.loads(out) == {**expected, "labels": []}
    code, out, _ = oasis(
        "search", filled, "--text", "boat", "--where", '{"$labels": {"has": "[sofa]"}}'
    )
    assert "cat, [sofa]" in out


def test_relabel_renames_a_class(filled, oasis):
    with Collection.open(filled, readonly=True) as opened:
        n = {each.name: each.n for each in opened.classes()}
    name = next(iter(n))
    code, out, err = oasis("relabel", filled, name, "new name")
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} is new name now: ")
    info = json.loads(oasis("info", filled, "--json")[1])
    assert {each["name"]: each["n"] for each in info["classes"]} == {
        {name: "new name"}.get(each, each): count for each, count in n.items()
    }
    code, out, err = oasis("relabel", filled, "newname", "other")
    assert (code, out) == (1, "") and "did you mean 'new name'?" in err
    done = json.loads(oasis("relabel", filled, "new name", name, "--json")[1])
    assert (done["old"], done["new"], done["changed"] > 0) == ("new name", name, True)


def test_update_refuses_what_cannot_be(filled, oasis):
    for arguments, wanted, said in (
        (["item-3"], 2, "give --label"),
        (["item-3", "--label", "a", "--no-labels"], 2, "not both"),
        (["item-3", "--payload", "{"], 2, "no JSON"),
        (["item-3", "--payload", "[" * 99_999], 2, "no JSON"),
        (["item-3", "--payload", "[1]"], 2, "JSON object"),
        (["item-3", "--label", ""], 1, "empty class name"),
        (["nobody", "--label", "a"], 1, "no item has the id 'nobody'; nothing was changed"),
    ):
        code, out, err = oasis("update", filled, *arguments)
        assert (code, out) == (wanted, "")
        assert said in " ".join(err.split())
    assert oasis("update", filled.with_name("none.oasis"), "a", "--no-labels")[0] == 1
    assert not filled.with_name("none.oasis").exists()


@pytest.fixture
def labels_csv(tmp_path):
    rows = "id,labels,place\nitem-3,cat;pet,home\nitem-4,,\nnobody,cat,x\nitem-5,dog,street\n"
    (tmp_path / "labels.csv").write_text(rows)
    return tmp_path / "labels.csv"


def test_update_from_a_table_changes_all_of_its_items(filled, labels_csv, oasis):
    code, out, err = oasis("update", filled, "--from", labels_csv, "--keep", "place")
    assert code == 0 and out.startswith("3 items changed, the model learned from 3; 1 row left out")
    assert "row 3: no item has the id 'nobody'" in err
    with Collection.open(filled, readonly=True) as opened:
        assert opened.get("item-3").labels == ("cat", "pet")
        assert opened.get("item-3").payload == {"place": "home"}
        assert opened.get("item-4").labels == ()
    labels_csv.write_text("id,labels\nitem-3,cat;pet\nitem-5,dog\nnobody,cat\n")
    again = json.loads(oasis("update", filled, "--from", labels_csv, "--json")[1])
    assert (again["changed"], len(again["rejected"])) == (0, 1)
    for arguments in (("item-3", "--from", labels_csv), ("--from", labels_csv, "--no-labels")):
        assert oasis("update", filled, *arguments)[0] == 2
    assert "no file" in oasis("update", filled, "--from", "absent.csv")[2]


def test_next_lists_what_to_label(filled, labels_csv, oasis):
    assert oasis("next", filled)[1] == "every item has a label\n"
    labels_csv.write_text("id,labels\nitem-4,\nitem-9,\n")
    oasis("update", filled, "--from", labels_csv)
    found = json.loads(oasis("next", filled, "-k", "5", "--json")[1])
    assert {each["id"] for each in found} == {"item-4", "item-9"}
    assert all(len(each["classes"]) == len(each["chances"]) > 0 for each in found)
    out = oasis("next", filled)[1]
    assert "item-9" in out and "predicted" in out


def test_hits_are_explained(filled, oasis):
    code, out, _ = oasis("search", filled, "boat anchor", "-k", "2", "--explain", "--json")
    hits = json.loads(out)["results"][0]["hits"]
    assert code == 0 and sum(share for *_, share in hits[0]["why"]["parts"]) == pytest.approx(1)
    assert " % " in oasis("search", filled, "boat anchor", "--explain")[1]
    assert oasis("search", filled, "--like", "item-3", "--explain")[0] == 2


@pytest.mark.parametrize("name", ["map.png", "map.svg", "map.gif"])
def test_info_draws_a_map(filled, tmp_path, oasis, name):
    code, _, err = oasis("info", filled, "--map", tmp_path / name)
    if name.endswith("gif"):
        assert code == 1 and "drawn as .png or .svg" in err
        return
    content = (tmp_path / name).read_bytes()
    assert code == 0 and content.startswith(b"\x89PNG" if name.endswith("png") else b"<svg")
    assert len(content) > 2000
