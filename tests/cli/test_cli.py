"""The command line from end to end: what is printed, what is written, what the exit codes are."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import cli_data
import faiss
import numpy as np
import pytest
from cli_data import TEXT_ONLY, WORDS, row, write_jsonl
from PIL import Image, ImageDraw

from oasis.cli import reference
from oasis.cli.console import file_size
from oasis.collection import Collection
from oasis.collection.filters.conditions import parse_where
from oasis.collection.transfer import feeding
from oasis.errors import InputError, OasisError
from oasis.features.extractor import Extractor, Function
from oasis.features.thumbnail import MAX_BYTES
from oasis.model import OASIS

ingested = cli_data.ingested
filled = cli_data.filled


def test_ingest_skips_bad_items_lists_them_and_goes_on(tmp_path, oasis):
    source = write_jsonl(
        tmp_path / "items.jsonl",
        [
            row(0),
            "no json\n",
            row(1),
            row(0),
            {"id": "x", "text": "a", "labels": "sky"},
            {"id": "y", "image": "missing.png"},
            {"id": "z" * 2000, "text": "an id that is too long"},
            row(2),
        ],
    )
    target = tmp_path / "c.oasis"
    code, out, err = oasis("ingest", target, source, *TEXT_ONLY, "--json")
    summary = json.loads(out)
    assert (code, err) == (0, "")
    assert (summary["read"], summary["ingested"], summary["rejected"]) == (8, 3, 5)
    lines = Path(summary["rejects"]).read_text().splitlines()
    assert summary["rejects"] == f"{target}.rejects.jsonl"
    rejected = [json.loads(line) for line in lines]
    assert [each["where"].split(":")[1] for each in rejected] == ["2", "4", "5", "6", "7"]
    assert "no JSON" in rejected[0]["reason"] and "earlier" in rejected[1]["reason"]
    with Collection.open(target, readonly=True) as opened:
        assert opened.check() == []
        assert opened.get("item-2").payload == {"year": 2002}


def test_ingest_may_say_how_many_bits_are_owned_and_says_so_again(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(30)])
    target, options = tmp_path / "c.oasis", ("--bits", 32, "--owned", 32)
    code, out, _ = oasis("ingest", target, source, *TEXT_ONLY, *options, "--json")
    assert (code, json.loads(out)["ingested"]) == (0, 30)
    code, out, _ = oasis("ingest", target, source, *options, "--json")
    assert (code, json.loads(out)["skipped"]) == (0, 30)
    with Collection.open(target, readonly=True) as c:
        codes, _ = c.index.items()
        assert len(np.unique(codes, axis=0)) == len(WORDS)
        assert np.bitwise_count(codes).sum(axis=1).tolist() == [1] * 30  # one bit for each class


def test_a_warning_is_a_note_without_a_source_line(tmp_path, oasis):
    rows = [row(0), row(1), row(3) | {"labels": ["Sea"]}]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, _, err = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--json")
    said = "note: class names that differ by case alone are different classes: 'sea' and 'Sea'\n"
    assert (code, err) == (0, said)


def test_ingest_again_skips_what_is_there_and_drops_an_empty_rejects_file(filled, tmp_path, oasis):
    source = write_jsonl(tmp_path / "more.jsonl", [row(number) for number in range(50, 70)])
    code, out, _ = oasis("ingest", filled, source, "--json")
    summary = json.loads(out)
    assert code == 0
    assert (summary["skipped"], summary["ingested"], summary["items"]) == (10, 10, 70)
    assert summary["rejects"] is None
    assert not list(tmp_path.glob("*.rejects.jsonl"))


def test_strict_stops_before_anything_is_written(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(0), row(1), '{"id": 3}\n'])
    target = tmp_path / "c.oasis"
    code, out, err = oasis("ingest", target, source, *TEXT_ONLY, "--strict")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and "items.jsonl:3" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.jsonl"]
    write_jsonl(source, [row(0), row(1)])
    assert oasis("ingest", target, source, *TEXT_ONLY, "--strict")[0] == 0


def test_labels_may_come_after_the_first_chunks(tmp_path, oasis):
    rows = [{**row(number), "labels": [] if number < 30 else ["sea"]} for number in range(40)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, out, _ = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--batch", 9, "--json")
    assert code == 0
    assert (json.loads(out)["ingested"], json.loads(out)["rounds"]) == (40, 5)


def test_csv_fields_have_names_and_separators(tmp_path, oasis):
    source = tmp_path / "items.csv"
    source.write_text("key,caption,tags,year\n7,a boat,sea|sky,1999\n8,a street,town,2001\n")
    code, _, err = oasis(
        *("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--id-field", "key"),
        *("--text-field", "caption", "--labels-field", "tags", "--labels-separator", "|"),
        *("--keep", "year"),
    )
    assert (code, err) == (0, "")
    with Collection.open(tmp_path / "c.oasis", readonly=True) as opened:
        assert opened.get("7").labels == ("sea", "sky")
        assert opened.get("8").payload == {"year": 2001}


@pytest.mark.slow
def test_killed_ingest_goes_on_where_it_was(tmp_path):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(1200)])
    target = tmp_path / "c.oasis"
    command = [sys.executable, "-m", "oasis", "ingest", target, source, *TEXT_ONLY]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "--batch", "10"], env=environment) as writer:
        while writer.poll() is None and _n_rounds(target) < 3:
            time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True)
    summary = json.loads(done.stdout)
    assert summary["skipped"] >= 30
    assert summary["skipped"] + summary["ingested"] == 1200 == summary["items"]
    with Collection.open(target, readonly=True) as opened:
        assert opened.check() == []


def test_interrupted_ingest_says_how_to_go_on(filled, tmp_path, oasis, monkeypatch):
    def interrupt(*_, summary, **__):
        summary.ingested = 7
        raise KeyboardInterrupt

    monkeypatch.setattr(feeding, "feed", interrupt)
    code, out, err = oasis("ingest", filled, tmp_path / "items.jsonl")
    assert (code, out) == (1, "")
    assert "7 items are stored" in err and "again" in err


def _n_rounds(target):
    if not (target / "catalog.sqlite").exists():
        return 0
    try:
        with Collection.open(target, readonly=True) as opened:
            return opened.stats().n_rounds
    except OasisError:  # it is only just being made
        return 0


def test_search_by_text_word_and_item_agree_with_the_collection(filled, oasis):
    with Collection.open(filled, readonly=True) as opened:
        by_text = opened.search_items([{"text": "boat anchor"}], k=5)[0]
        by_word = opened.search_words(["sea", "ship"], k=4, mode="hamming")
        by_item = opened.more_like("item-3", k=3)
    _, out, _ = oasis("search", filled, "--text", "boat anchor", "-k", 5, "--json")
    assert _ids(out) == [[hit.id for hit in by_text]]
    assert json.loads(out)["results"][0]["query"] == {"text": "boat anchor"}
    assert all(hit["labels"] == ["sea"] for hit in json.loads(out)["results"][0]["hits"])
    _, out, _ = oasis(
        *("search", filled, "--word", "sea", "--word", "ship", "-k", 4),
        *("--mode", "hamming", "--json"),
    )
    assert _ids(out) == [[hit.id for hit in hits] for hits in by_word]
    _, out, _ = oasis("search", filled, "--like", "item-3", "-k", 3, "--json")
    assert _ids(out) == [[hit.id for hit in by_item]]


def test_search_by_kind_and_by_content(tmp_path, oasis):
    rows = [{**row(number), "labels": ["thing"]} for number in range(40)]
    source, target = write_jsonl(tmp_path / "items.jsonl", rows), tmp_path / "c.oasis"
    assert oasis("ingest", target, source, *TEXT_ONLY)[0] == 0
    query = ("search", target, "--text", rows[31]["text"], "-k", 1, "--json")
    assert _ids(oasis(*query, "--content", 0)[1]) == [["item-0"]]
    _, out, _ = oasis(*query, "--content", 1)
    assert _ids(out) == [["item-31"]] and json.loads(out)["content"] == 1.0
    with Collection.open(target, readonly=True) as opened:
        like = [hit.id for hit in opened.more_like("item-3", 5, content=0.9)]
    _, out, _ = oasis("search", target, "--like", "item-3", "-k", 5, "--content", 0.9, "--json")
    assert _ids(out) == [like]


def _ids(out):
    return [[hit["id"] for hit in result["hits"]] for result in json.loads(out)["results"]]


def test_search_prints_a_table_and_filters(filled, oasis):
    code, out, _ = oasis(
        *("search", filled, "--text", "boat", "--where", "year>=2010", "--where", "year<2020"),
        *("--where", '{"$labels": {"has": "sea"}}'),
    )
    lines = [line.split() for line in out.splitlines() if "item-" in line]
    assert code == 0
    assert sorted(line[3] for line in lines) == ["item-12", "item-15", "item-18"]
    assert (
        oasis("search", filled, "--text", "boat", "--where", "year=1900")[1].count("nothing") == 1
    )


def test_search_takes_any_not_contains_and_exists(filled, oasis):
    def years(*conditions):
        options = [part for each in conditions for part in ("--where", each)]
        out = oasis("search", filled, "--text", "boat", "-k", 100, "--json", *options)[1]
        return sorted(hit["payload"]["year"] for hit in json.loads(out)["results"][0]["hits"])

    every = years()
    assert years("year!=2003", "year!=2005") == [each for each in every if each not in (2003, 2005)]
    assert years('{"$any": [{"year": 2003}, {"year": {"gte": 2020}}]}') == [
        each for each in every if each == 2003 or each >= 2020
    ]
    assert years('{"year": {"exists": true}}') == every
    assert years('{"year": {"exists": false}}') == []


def test_search_without_knowledge_says_so(filled, oasis):
    code, out, err = oasis("search", filled, "--text", "xylophone", "-k", 1)
    scores = [line.split()[1] for line in out.splitlines() if "item-" in line]
    assert code == 0
    assert (scores == ["+0.000"]) == ("nothing like this query" in err)


def test_collection_with_an_extractor_of_ones_own_answers_what_it_can(tmp_path, oasis):
    length = Function("length@1", lambda texts: [[len(text), 1.0] for text in texts], 2)
    own = Extractor({"text": ("text", length)})
    with Collection.open(tmp_path / "c.oasis", extractor=own) as opened:
        opened.ingest_items([row(number) for number in range(9)])
    assert oasis("search", tmp_path / "c.oasis", "--like", "item-3")[0] == 0
    code, _, err = oasis("search", tmp_path / "c.oasis", "--text", "boat")
    assert code == 1
    assert "no embedder is called 'length@1'" in err


def test_like_finds_a_whole_number(tmp_path, oasis):
    rows = [{**row(number), "id": number} for number in range(9)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY)
    code, out, _ = oasis("search", tmp_path / "c.oasis", "--like", "3", "-k", 2, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["query"] == {"like": 3}


def test_info_tells_the_sums_of_the_published_method(tmp_path, oasis):
    model = OASIS.paper(16, labels="orthogonal", random_state=0)
    with Collection.open(tmp_path / "c.oasis", model=model) as opened:
        X = {"image": np.random.default_rng(0).random((9, 4))}
        opened.ingest(X, [[list(WORDS)[n % 3]] for n in range(9)])
    norms = json.loads(oasis("info", tmp_path / "c.oasis", "--json")[1])["norms"]
    assert set(norms) == {"W image", "sum G'V", "sum V'V"}
    assert min(norms.values()) > 0


def test_folder_without_labels_is_ingested_and_searched(tmp_path, oasis):
    folder, target = tmp_path / "photos", tmp_path / "c.oasis"
    folder.mkdir()
    for number in range(12):
        picture = Image.new("L", (64, 64))
        ImageDraw.Draw(picture).rectangle((5 * number, 8, 63, 20 + 3 * number), fill=255)
        picture.save(folder / f"{number:02}.png")
    code, out, err = oasis("ingest", target, folder, "--image-extractor", "gradients", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ingested"] == 12
    code, out, _ = oasis("search", target, "--image", folder / "07.png", "-k", 3, "--json")
    assert code == 0
    assert "07.png" in [hit["id"] for hit in json.loads(out)["results"][0]["hits"]]
    code, out, err = oasis("search", target, "--word", "boat")  # no class is there to be near
    assert code == 0 and "nothing like this here" not in out and "all scores are 0" in err
    (folder / "sun").mkdir()
    Image.new("L", (64, 64), 9).save(folder / "sun" / "new.png")
    code, out, _ = oasis("ingest", target, folder, "--labels-from-folders", "--json")
    assert (code, json.loads(out)["ingested"], json.loads(out)["skipped"]) == (0, 1, 12)
    with Collection.open(target, readonly=True) as opened:
        assert opened.get("sun/new.png").labels == ("sun",)


def test_a_hit_without_a_payload_is_shown_with_its_text(tmp_path, oasis):
    rows = [
        {"id": "a", "text": "a red\nboat", "labels": ["sea"]},
        {"id": "b", "text": "a cat", "payload": {"year": 2020}, "labels": ["cat"]},
        {"id": "c", "text": " ".join(["boats"] * 100), "labels": ["sea"]},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert oasis("ingest", tmp_path / "c", source, "--text-extractor", "words")[0] == 0
    code, out, _ = oasis("search", tmp_path / "c", "--text", "red boat")
    shown = {line.split()[3]: line for line in out.splitlines() if line[:1].isdigit()}
    assert code == 0 and sorted(shown) == ["a", "b", "c"]
    assert shown["a"].rstrip().endswith("a red boat") and shown["b"].rstrip().endswith("year: 2020")
    assert "boats boats" in shown["c"]


def test_ingest_says_that_there_was_nothing_to_ingest(filled, tmp_path, oasis):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    for name, nothing in (("empty", "picture"), ("empty.jsonl", "item")):
        code, out, err = oasis("ingest", filled, tmp_path / name)
        assert (code, err) == (0, f"note: {tmp_path / name} holds no {nothing}\n")
        assert out.startswith("0 items ingested in 0 rounds")
    code, _, err = oasis("ingest", filled, tmp_path / "nowhere")
    assert (code, err) == (1, f"error: there is no file or folder {tmp_path / 'nowhere'}\n")


def test_failed_ingest_leaves_nothing_behind(tmp_path, oasis):
    source = tmp_path / "items.csv"
    source.write_text("key,text\n1,a boat\n")
    target = tmp_path / "deep" / "c.oasis"
    target.parent.mkdir()
    code, _, err = oasis("ingest", target, source, *TEXT_ONLY)
    assert (code, "no column 'id'" in err) == (1, True)
    assert not list(target.parent.iterdir())
    # a collection that is there, and an empty directory of the user's, stay
    oasis("ingest", target, write_jsonl(tmp_path / "i.jsonl", [row(0)]), *TEXT_ONLY)
    assert oasis("ingest", target, source)[0] == 1
    with Collection.open(target, readonly=True) as opened:
        assert len(opened) == 1
    (tmp_path / "own").mkdir()
    assert oasis("ingest", tmp_path / "own", source, *TEXT_ONLY)[0] == 1
    assert (tmp_path / "own").is_dir()


def test_field_that_no_line_of_a_jsonl_file_has_is_refused(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(6)])
    for option in ("--text-field", "--image-field", "--labels-field", "--keep"):
        code, out, err = oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, option, "tag")
        assert (code, out) == (1, "")
        assert "no field 'tag'; its fields are ['id', 'text', 'labels', 'payload']" in err
    # one line that has it is enough
    write_jsonl(source, [row(0), {**row(1), "tag": 3}])
    assert oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY, "--keep", "tag")[0] == 0


@pytest.mark.slow
def test_pictures_from_a_folder_to_a_contact_sheet(tmp_path, oasis):
    folder = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for kind, colour in (("circle", "red"), ("square", "blue")):
        (folder / kind).mkdir(parents=True)
        for number in range(6):
            image = Image.new("RGB", (120, 90), tuple(rng.integers(150, 255, 3).tolist()))
            draw = ImageDraw.Draw(image)
            corner = rng.integers(5, 40, 2).tolist()
            box = (*corner, corner[0] + 45, corner[1] + 45)
            (draw.ellipse if kind == "circle" else draw.rectangle)(box, fill=colour)
            image.save(folder / kind / f"{number}.png")
            (folder / kind / f"{number}.txt").write_text(f"a {colour} {kind}")
    (folder / "circle" / "broken.png").write_bytes(b"no picture")
    target = tmp_path / "p.oasis"
    common = ("ingest", target, folder, "--labels-from-folders")
    assert oasis(*common, "--strict")[0] == 1
    assert not target.exists()
    code, out, err = oasis(*common)
    assert (code, err) == (0, "")
    assert "12 items ingested" in out and "1 left out" in out
    query = folder / "square" / "0.png"
    sheet = tmp_path / "hits.png"
    code, out, _ = oasis("search", target, "--image", query, "-k", 6, "--save", sheet, "--json")
    assert code == 0
    hits = json.loads(out)["results"][0]["hits"]
    assert [hit["labels"] for hit in hits] == [["square"]] * 6
    with Image.open(sheet) as drawn, Collection.open(target, readonly=True) as opened:
        assert drawn.format == "PNG" and drawn.width > 5 * 160
        blue = np.asarray(drawn.convert("RGB"), dtype=int)
        assert ((blue[..., 2] > 200) & (blue[..., :2].max(axis=2) < 60)).sum() > 6 * 1000
        thumbnail = opened.thumbnail("square/0.png")
        assert thumbnail is not None and len(thumbnail) <= MAX_BYTES
    code, out, _ = oasis("search", target, "--image", query, "--text", "red circle", "--json")
    assert (code, json.loads(out)["results"][0]["query"]["text"]) == (0, "red circle")


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
    assert "60 now, 60 ever" in out and "hashed-text-64-tf@2" in out and "since round" in out


@pytest.mark.parametrize("form", ["faiss", "npz", "parquet"])
def test_export_holds_every_code_under_its_id(filled, tmp_path, oasis, form):
    out = tmp_path / f"codes.{form}"
    code, printed, _ = oasis("export", filled, out, "--format", form, "--json")
    assert (code, json.loads(printed)["items"]) == (0, 60)
    with Collection.open(filled, readonly=True) as opened:
        truth = {f"item-{number}": opened.get(f"item-{number}").code for number in range(60)}
    if form == "faiss":
        index = faiss.read_index_binary(str(out))
        lines = (tmp_path / "codes.faiss.ids.jsonl").read_text().splitlines()
        keys = {each["key"]: each["id"] for each in map(json.loads, lines)}
        codes = faiss.vector_to_array(faiss.downcast_IndexBinary(index.index).xb).reshape(60, 16)
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
            ("search", "C", "--text", "boat", "--where", '{"$labels": {"has": "see"}}'),
            "no class is called 'see'; did you mean 'sea'?",
        ),
        (
            ("search", "C", "--text", "boat", "--mode", "hamming", "--content", "0.5"),
            "leave one of them out",
        ),
        (("search", "C", "--text", "boat", "--save", "no/such/folder.png"), "cannot write"),
        (("search", "C", "--image", "no.png"), "expected one of ['text']"),
        (("export", "C", "out", "--format", "csv"), "expected one of faiss, npz, parquet"),
        (("export", "C", "no/such/folder.npz"), "cannot write"),
        (("info", "nowhere"), "there is no collection"),
        (("ingest", "C", "nothing.jsonl"), "cannot read nothing.jsonl"),
        (("ingest", "C", "I", "--bits", "32"), "128 bits"),
        (("ingest", "C", "I", "--owned", "7"), "made with owned=None, got 7"),
        (("ingest", "N", "I", "--owned", "129"), "owned must be an integer from 0 to"),
        (("ingest", "N", "I", "--bits", "7"), "a positive multiple of 8"),
        (("ingest", "C", "I", "--image-extractor", "none"), "the one recorded made"),
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
        database.execute("DELETE FROM postings WHERE class = 1")
    database.close()
    code, out, _ = oasis("check", filled, "--json")
    assert code == 1 and "postings lack" in " ".join(json.loads(out)["findings"])
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


def test_where_reads_scalars_as_json_and_refuses_two_equalities():
    assert parse_where(["a=1", "b=x y", "c=null", 'd="1"', "e=[1]"]) == {
        "a": 1,
        "b": "x y",
        "c": None,
        "d": "1",
        "e": "[1]",
    }
    assert parse_where(["a==1", "b == x", 'c="=1"']) == {"a": 1, "b": "x", "c": "=1"}
    assert parse_where(["a=" + "[" * 99_999]) == {"a": "[" * 99_999}
    assert parse_where(['{"a": {"gt": 1}}', "a<=3"]) == {"a": {"gt": 1, "lte": 3}}
    assert parse_where(["a!=1", "b ~ x", "c!=null"]) == {
        "a": {"not": 1},
        "b": {"contains": "x"},
        "c": {"not": None},
    }
    assert parse_where(["a~x", "a=1", "a~y"]) == {
        "a": {"contains": "x"},
        "$all": [{"a": 1}, {"a": {"contains": "y"}}],
    }
    assert parse_where(['{"$any": [{"a": 1}]}', '{"$any": [{"b": 2}]}']) == {
        "$any": [{"a": 1}],
        "$all": [{"$any": [{"b": 2}]}],
    }
    assert parse_where(['{"$all": [{"a": 1}]}', '{"$all": [{"b": 2}]}']) == {
        "$all": [{"$all": [{"a": 1}]}, {"$all": [{"b": 2}]}]
    }
    with pytest.raises(InputError, match="two conditions on 'a'"):
        parse_where(["a=1", "a=2"])


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_an_answer(tmp_path, oasis):
    source = write_jsonl(tmp_path / "i.jsonl", [{**row(n), "id": f"Bär {n}"} for n in range(6)])
    command = [sys.executable, "-m", "oasis"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    def run(*arguments):
        return subprocess.run(
            [*command, *map(str, arguments)], env=environment, capture_output=True, check=True
        ).stdout.decode("ascii")

    oasis("ingest", tmp_path / "c.oasis", source, *TEXT_ONLY)
    assert "B?r" in run("search", tmp_path / "c.oasis", "--word", "sea")
    found = json.loads(run("search", tmp_path / "c.oasis", "--word", "sea", "--json"))
    assert found["results"][0]["hits"][0]["id"].startswith("Bär")


def test_sizes_for_people():
    assert [file_size(n) for n in (999, 1000, 10**6, 10**9, 10**12)] == [
        "999 B",
        "1.0 kB",
        "1.0 MB",
        "1.0 GB",
        "1.0 TB",
    ]


def test_features_that_are_there_already(tmp_path, oasis):
    rng = np.random.default_rng(0)
    clip, words = rng.normal(size=(12, 5)).astype(np.float16), rng.normal(size=(12, 3))
    labels = np.array(["sky" if number % 2 else "sea;boat" for number in range(12)])
    np.savez(tmp_path / "e.npz", clip=clip, words=words, labels=labels)
    target = tmp_path / "c.oasis"
    both = ("--feature", "image=clip", "--feature", "words")
    code, out, err = oasis("ingest", target, tmp_path / "e.npz", *both, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ingested"] == 12
    with Collection.open(target, readonly=True) as opened:
        assert opened.stats().modalities == {"image": 5, "words": 3}
        truth = [hit.id for hit in opened.search({"image": clip[4:5]}, k=3)[0]]
    np.save(tmp_path / "query.npy", clip[4:5])
    listed = json.dumps(clip[4].tolist())
    for value in (tmp_path / "query.npy", listed):
        code, out, _ = oasis("search", target, "--vector", f"image={value}", "-k", 3, "--json")
        assert code == 0
        assert [hit["id"] for hit in json.loads(out)["results"][0]["hits"]] == truth
    np.savez(tmp_path / "narrow.npz", clip=clip[:, :4], words=words, id=np.arange(50, 62))
    np.save(tmp_path / "nan.npy", np.full(5, np.nan))
    for arguments, said in (
        (("ingest", target, tmp_path / "narrow.npz", *both), "have 4 values, expected 5"),
        (("ingest", target, tmp_path / "e.npz", "--feature", "image=clop"), "no column 'clop'"),
        (("ingest", target, tmp_path / "e.npz"), "which array holds the vectors"),
        (("search", target, "--vector", "image=[1, 2]"), "2 features"),
        (("search", target, "--vector", "image=[1, "), "cannot be read"),
        (("search", target, "--vector", f"image={tmp_path / 'nan.npy'}"), "holds nan"),
        (("search", target, "--vector", "image=none.npy"), "cannot be read as npy"),
        (("search", target, "--vector", "sound=[1]"), "sound"),
    ):
        code, out, err = oasis(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("error: ") and err.count("\n") == 1
        assert said in err
    assert oasis("ingest", target, tmp_path / "e.npz", "--feature", "=x")[0] == 2


def test_an_embedder_by_name_is_found_again(tmp_path, oasis, monkeypatch):
    (tmp_path / "embedder_of_the_cli_test.py").write_text(
        "def letters():\n    return lambda texts: [[t.count(c) for c in 'abc'] for t in texts]\n"
    )
    rows = [{**row(number), "text": "a b b" if number % 2 else "c a"} for number in range(9)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    target = tmp_path / "c.oasis"
    named = ("--image-extractor", "none", "--text-extractor", "embedder_of_the_cli_test:letters")
    code, _, err = oasis("ingest", target, source, *named)
    assert code == 1
    assert "No module named 'embedder_of_the_cli_test'; install its package" in err
    assert err.count("\n") == 1 and not target.exists()
    monkeypatch.syspath_prepend(tmp_path)
    assert oasis("ingest", target, source, *named)[0] == 0
    assert oasis("search", target, "--text", "b b", "--json")[0] == 0
    assert "embedder_of_the_cli_test:letters" in oasis("info", target)[1]


def test_search_says_where_nothing_is_like_the_query(filled, oasis):
    assert "nothing like this here" in oasis("search", filled, "--text", "xylophone")[1]
    assert "nothing like this here" not in oasis("search", filled, "--text", "boats")[1]
    assert "nothing like this here" not in oasis("search", filled, "--word", "sea")[1]


def test_search_marks_ties(filled, oasis):
    asked = ("search", filled, "--word", "sea", "-k", 2)
    hits = json.loads(oasis(*asked, "--json")[1])["results"][0]["hits"]
    assert [(hit["tied"], hit["weak"]) for hit in hits] == [(True, False)] * 2
    out = oasis(*asked)[1]
    assert [line.split()[1][-1] for line in out.splitlines() if "item-" in line] == ["="] * 2
    assert "= the score of a neighbour is the same" in out


def test_search_by_codes_alone(filled, oasis):
    with Collection.open(filled, readonly=True) as opened:
        expected = [hit.id for hit in opened.search_items([{"text": "boat"}], fuse=False)[0]]
    assert _ids(oasis("search", filled, "--text", "boat", "--no-fuse", "--json")[1]) == [expected]


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


def test_predicted_labels_have_a_question_mark(tmp_path, oasis):
    rows = [row(number) for number in range(60)]
    bare = [{**row(number), "id": f"bare-{number}", "labels": []} for number in range(3)]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    assert oasis("ingest", tmp_path / "c", source, *TEXT_ONLY)[0] == 0
    source = write_jsonl(tmp_path / "bare.jsonl", bare)
    assert oasis("ingest", tmp_path / "c", source, *TEXT_ONLY)[0] == 0
    with Collection.open(tmp_path / "c", readonly=True) as opened:
        (name,) = opened.get("bare-0").predicted
    options = ["--like", "item-0", "-k", "70", "--where"]
    where = json.dumps({"$labels": {"has": name, "predicted": True}})
    out = oasis("search", tmp_path / "c", *options, where)[1]
    assert f"{name}?" in out
    found = json.loads(oasis("search", tmp_path / "c", *options, where, "--json")[1])
    (hit,) = [hit for hit in found["results"][0]["hits"] if hit["id"] == "bare-0"]
    assert (hit["labels"], hit["predicted"]) == ([], [name])
    classes = json.loads(oasis("info", tmp_path / "c", "--json")[1])["classes"]
    assert sum(each["n_predicted"] for each in classes) == 3
    assert "predicted" in oasis("info", tmp_path / "c")[1]


def test_texts_are_kept_unless_asked_otherwise(tmp_path, oasis):
    source = write_jsonl(tmp_path / "items.jsonl", [row(number) for number in range(40)])
    for name, option in (("a", ()), ("b", ("--no-keep-text",))):
        assert oasis("ingest", tmp_path / name, source, *TEXT_ONLY, *option)[0] == 0
        with Collection.open(tmp_path / name, readonly=True) as opened:
            assert (opened.get("item-0").text is None) == bool(option)
    code, _, err = oasis("ingest", tmp_path / "b", source, *TEXT_ONLY, "--keep-text")
    assert code == 1
    assert "begun with keep_text=False" in err
