"""Commands that are given the address of a service do there what they do in a directory."""

import json
import socket
from dataclasses import replace

import numpy as np
import pytest
from service_data import KINDS, fill, picture
from serving import serving

import oasis as package
from oasis.client import Client
from oasis.collection import Collection

pytestmark = pytest.mark.slow  # every test asks a service in another process

READ, WRITE = "read-token-0123456", "write-token-012345"
TIMES = ("seconds", "time", "bytes")


def timeless(value):
    """What a document says, but for times and sizes of files."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Twins: a collection in a directory, and the address of a service with the same one."""
    folder = tmp_path_factory.mktemp("served")
    here = fill(folder / "here")
    with serving(fill(folder / "there")) as server:
        yield here, server.url


@pytest.fixture
def both(pair, oasis):
    """Run a command in both places; see that it says the same; return what it said."""

    def run(command, *arguments):
        found = [oasis(command, place, *arguments) for place in pair]
        (code, out, err), there = found
        assert there[0] == code and there[2] == err.replace(str(pair[0]), pair[1])
        if "--json" in arguments and out:
            out, told = (timeless(json.loads(each)) for each in (out, there[1]))
            assert told == out
        return code, out, err

    return run


def test_searches_print_the_same_as_in_a_directory(both, tmp_path):
    (tmp_path / "q.png").write_bytes(picture("sea", 99))
    np.save(tmp_path / "v.npy", np.linspace(0, 1, 900))
    for arguments in (
        ("--text", "boat anchor"),
        ("--text", "anchr"),
        ("--image", tmp_path / "q.png", "-k", 3),
        ("--text", "paw", "--image", tmp_path / "q.png", "--mode", "hamming"),
        ("--vector", f"image={tmp_path / 'v.npy'}"),
        ("--like", "item/1"),
        ("--like", "4"),
        ("--word", "cat", "--word", "dog"),
        ("--text", "fur", "--no-fuse", "--where", "year>=2010", "--where", "year<2030"),
    ):
        code, out, _ = both("search", *arguments, "--json")
        assert code == 0 and out["results"][0]["hits"]
    code, out, _ = both("search", "--text", "boat", "--save", tmp_path / "hits.png")
    assert code == 0 and (tmp_path / "hits.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--text", "boat", "--where", "yaer=2000"), "did you mean 'year'?"),
        (("--text", "boat", "--where", "year>abc"), "the field 'year' holds numbers only"),
        (("--text", "boat", "--where", '{"$labels": {"has": "sae"}}'), "did you mean 'sea'?"),
        (("--like", "none"), "no item has the id 'none'"),
        (("--like", "ITEM/1"), "no item has the id 'ITEM/1'; did you mean 'item/1'?"),
        (("--image", "none.png"), "the query cannot be used: image: the picture none.png is mis"),
        (("--vector", "image=[1, 2]"), "900"),
        (("--word", "unheard"), "unheard"),
    ],
)
def test_searches_fail_as_in_a_directory(both, arguments, said):
    code, out, err = both("search", *arguments)
    assert (code, out) == (1, "") and err.count("\n") == 1 and said in err


def test_info_and_check_print_the_same_as_in_a_directory(both):
    code, out, _ = both("info", "--json")
    assert code == 0 and out["n_items"] == 48
    assert set(out["norms"]) == {"W image", "W text", "codewords"}
    assert both("check", "--json")[1] == {"n_items": 48, "findings": []}


def test_ingest_and_delete_do_the_same_as_in_a_directory(both, pair, oasis, tmp_path):
    (tmp_path / "a.png").write_bytes(picture("sea", 1))
    (tmp_path / "bad.png").write_bytes(b"no picture")
    rows = [
        {"id": "a", "image": "a.png", "labels": ["sea"], "payload": {"year": 1, "ä": [None]}},
        {"id": "b", "image": "bad.png"},
        {"id": "c", "image": "missing.png"},
        {"id": 7, "text": "a boat", "labels": ["sea"]},
        {"id": "item/1", "text": "is there already"},
        {"id": "d", "text": "x" * (1 << 20) + "more than is kept"},
        {"id": "e", "text": " "},
    ]
    source = write_jsonl(tmp_path / "more.jsonl", [*rows, "no json\n"])
    told, listed = [], tmp_path / "left-out.jsonl"
    for place in pair:
        code, out, err = oasis("ingest", place, source, "--rejects", listed, "--json")
        summary = timeless(json.loads(out))
        assert (code, err, summary.pop("collection")) == (0, "", str(place))
        told.append((summary, listed.read_text()))
    assert told[0] == told[1]
    summary, lines = told[1]
    assert (summary["read"], summary["ingested"], summary["skipped"], summary["rejected"]) == (
        (8, 2, 1, 5)
    )
    assert "it is of no known format" in lines and "missing.png" in lines
    with Client(pair[1]) as client, Collection.open(pair[0], readonly=True) as opened:
        assert client.get("a") == opened.get("a")
        assert client.thumbnail("a") == opened.thumbnail("a") is not None
    source = write_jsonl(tmp_path / "again.jsonl", [{**rows[0], "labels": ["cat"]}, {"id": "b"}])
    for place in pair:
        code, out, err = oasis("ingest", place, source, "--replace", "--rejects", listed, "--json")
        summary = json.loads(out)
        assert (code, err, summary["replaced"], summary["rejected"]) == (0, "", 1, 1)
    assert both("relabel", "cat", "dog", "--json")[1]["changed"] > 1
    assert both("relabel", "dog", "cat", "--json")[0] == 0
    code, out, _ = both("delete", "a", "7", "--json")
    assert (code, out) == (0, {"deleted": 2, "items": 48})
    assert both("delete", "a")[:2] == (1, "")


def test_update_does_the_same_as_in_a_directory(both):
    arguments = ("--label", "sky", "--payload", '{"year": 1999, "title": "ä"}', "--json")
    code, out, _ = both("update", "item/2", *arguments)
    assert (code, out["labels"], out["payload"]["year"]) == (0, ["sky"], 1999)
    assert both("update", "4", "--no-labels", "--json")[1]["labels"] == []
    code, out, err = both("update", "none", "--label", "sky")
    assert (code, out) == (1, "") and "none" in err


def write_jsonl(path, rows):
    path.write_text(
        "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in rows)
    )
    return path


def text_rows(n):
    return [
        {"id": f"t{row}", "text": f"{list(KINDS.values())[row % 3]} {row}", "labels": [kind]}
        for row, kind in enumerate(list(KINDS)[row % 3] for row in range(n))
    ]


def test_update_from_a_table_does_the_same_as_in_a_directory(both, tmp_path):
    table = tmp_path / "facts.jsonl"
    rows = [{"id": "item/1", "labels": ["cat", "sea"]}, {"id": 4, "labels": []}, {"id": "none"}]
    table.write_text("".join(json.dumps(each) + "\n" for each in rows))
    for _ in range(2):
        _, out, _ = both("update", "--from", table, "--json")
        assert len(out["rejected"]) == 1
    assert both("search", "--like", "item/1", "--json")[0] == 0
    assert both("next", "--json")[0] == 0
    assert both("search", "boat", "--explain", "--json")[0] == 0


def test_ingest_keeps_to_the_limits_of_the_service_and_goes_on_where_it_was(
    folder, oasis, monkeypatch
):
    monkeypatch.chdir(folder)
    pictures = folder / "pictures"
    pictures.mkdir()
    (pictures / "huge.png").write_bytes(picture("sky") + bytes(2 << 20))
    for number in range(4):  # two of them are too many for a request of one megabyte
        (pictures / f"{number}.png").write_bytes(picture("sky", number) + bytes(600_000))
    with serving(fill(folder / "c"), "--max-body", 1) as server:
        code, out, err = oasis("ingest", server.url, pictures, "--json", "--no-thumbnails")
        summary = json.loads(out)
        assert (code, err) == (0, "")
        assert (summary["ingested"], summary["rounds"], summary["rejected"]) == (4, 4, 1)
        assert summary["rejects"] == "pictures.rejects.jsonl"
        assert "too large" in (folder / "pictures.rejects.jsonl").read_text()
        with Client(server.url) as client:
            assert client.thumbnail("0.png") is None
            client.delete(["2.png"])
        (pictures / "huge.png").unlink()
        code, out, _ = oasis("ingest", server.url, pictures)
        assert code == 0 and "1 item ingested" in out and "3 skipped" in out
        assert not (folder / "pictures.rejects.jsonl").exists()
        # more items than one request takes, whatever --batch says
        source = write_jsonl(folder / "many.jsonl", text_rows(600))
        code, out, _ = oasis("ingest", server.url, source, "--batch", 1000, "--json")
        assert (code, json.loads(out)["ingested"], json.loads(out)["rounds"]) == (0, 600, 3)
        assert server.stop() == 0
        code, out, err = oasis("ingest", server.url, source)
        assert (code, out) == (1, "") and "connection refused" in err
    with Collection.open(folder / "c", readonly=True) as opened:
        assert opened.check() == [] and len(opened) == 652


def test_vectors_begin_an_empty_collection_of_a_service(folder, oasis):
    rows = [
        {"id": row, "clip": [float(row % 2), 1.0, 0.5], "labels": [["sea", "sky"][row % 2]]}
        for row in range(20)
    ]
    source = write_jsonl(folder / "vectors.jsonl", rows)
    with serving(folder / "c", "--bits", 16) as server:
        code, out, err = oasis("ingest", server.url, source, "--feature", "clip", "--json")
        assert (code, err, json.loads(out)["ingested"]) == (0, "", 20)
        code, out, _ = oasis("search", server.url, "--vector", "clip=[1, 1, 0.5]", "--json")
        assert json.loads(out)["results"][0]["hits"][0]["labels"] == ["sky"]
        code, out, err = oasis("ingest", server.url, source, "--feature", "other=clip")
        told, ingested, skipped = out.splitlines()
        assert (code, told) == (
            0,
            "vectors.jsonl: labels from 'labels', ids from 'id', vectors of 'other' from 'clip'",
        )
        assert ingested.startswith("0 items ingested in 0 rounds, ")
        assert ingested.endswith("; 20 in the collection")
        assert skipped == "20 skipped: their ids were there already; not changed"


def test_strict_sends_nothing_when_an_item_is_refused(pair, oasis, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    rows = [*text_rows(3), {"id": "bad", "image": "bad.png"}]
    source = write_jsonl(tmp_path / "items.jsonl", rows)
    code, out, err = oasis("ingest", pair[1], source, "--strict")
    assert (code, out) == (1, "") and "items.jsonl:4" in err and "nothing was written" in err
    with Client(pair[1]) as client:
        assert not client.known(["t0", "t1", "t2"])


def test_strict_runs_no_code_that_a_service_names(pair, oasis, tmp_path, monkeypatch):
    source = write_jsonl(tmp_path / "items.jsonl", text_rows(3))
    told = Client.stats
    entry = {"field": "text", "embedder": "own.module:make", "takes": "text", "n_features": 8}
    monkeypatch.setattr(Client, "stats", lambda c: replace(told(c), extractor={"text": entry}))
    code, out, err = oasis("ingest", pair[1], source, "--strict")
    assert (code, out) == (1, "") and "would run own.module:make here" in err
    with Client(pair[1]) as client:
        assert not client.known(["t0", "t1", "t2"])


def test_a_service_that_goes_away_says_how_to_go_on(folder, oasis, monkeypatch):
    source = write_jsonl(folder / "items.jsonl", text_rows(40))
    with serving(fill(folder / "c")) as server:
        sent = Client.ingest_items

        def ingest_items(self, items, **options):
            if "t20" in [item.id for item in items]:
                server.stop()
            return sent(self, items, **options)

        monkeypatch.setattr(Client, "ingest_items", ingest_items)
        arguments = ("--batch", 10, "--rejects", folder / "rejects")
        code, out, err = oasis("ingest", server.url, source, *arguments)
    assert code == 1 and err.count("\n") == 1 and "ingested" not in out
    assert "20 items were stored before: give the same command again" in err
    with Collection.open(folder / "c", readonly=True) as opened:
        assert len(opened) == 68 and opened.check() == []


def test_tokens_come_from_a_file_or_the_environment_and_are_never_shown(folder, oasis, monkeypatch):
    tokens = {"OASIS_READ_TOKEN": READ, "OASIS_WRITE_TOKEN": WRITE}
    (folder / "token").write_text(f"{WRITE}\n")
    (folder / "wrong").write_text("wrong-secret-012345")
    (folder / "broken").write_bytes("sécret\nwith lines".encode())
    (folder / "empty").write_text(" \n")
    with serving(fill(folder / "c"), env=tokens) as server:
        code, out, err = oasis("search", server.url, "--text", "boat")
        assert (code, out) == (1, "")
        assert "a token is needed, and there is none" in err and "--token-file" in err
        for name, said in (
            ("wrong", "it is not a known one"),
            ("broken", "plain printable characters"),
            ("empty", "is empty"),
            ("none", "cannot be read: No such file"),
        ):
            code, out, err = oasis("info", server.url, "--token-file", folder / name)
            assert (code, out) == (1, "") and said in err and err.count("\n") == 1
            assert "secret" not in err and "sécret" not in err
        monkeypatch.setenv("OASIS_TOKEN", READ)
        assert oasis("info", server.url)[0] == 0
        for command in (("delete", "item/1"), ("check",)):
            code, out, err = oasis(command[0], server.url, *command[1:])
            assert (code, out) == (1, "") and "may read, but not write" in err and READ not in err
        arguments = (server.url, "item/1", "--token-file", folder / "token", "--json")
        assert json.loads(oasis("delete", *arguments)[1]) == {"deleted": 1, "items": 47}
        assert not any(READ in line or WRITE in line for line in server.log)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("ingest", "{url}", "{source}", "--bits", "64"), "--bits"),
        (("ingest", "{url}", "{source}", "--no-keep-text"), "--keep-text"),
        (("check", "{url}", "--repair"), "--repair"),
        (("export", "{url}", "out.npz"), "give its directory"),
        (("backup", "{url}", "out"), "give its directory"),
    ],
)
def test_what_a_service_cannot_be_asked_for_is_wrong_usage(pair, oasis, tmp_path, arguments, hint):
    source = write_jsonl(tmp_path / "items.jsonl", text_rows(1))
    told = [each.format(url=pair[1], source=source) for each in arguments]
    code, out, err = oasis(*told)
    assert (code, out) == (2, "") and hint in err


def test_what_cannot_be_asked_is_told_in_one_line(pair, oasis):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url, said in (
        (f"http://127.0.0.1:{port}", "connection refused; is `oasis serve` running there?"),
        (f"{pair[1]}/wrong", f"oasis there is {package.__version__}, here {package.__version__}"),
        ("http://127.0.0.1:port", "must be like http://127.0.0.1:8000"),
        ("https:/host", "must be like http://127.0.0.1:8000"),
        ("http://me:secret@127.0.0.1:1", "leave it out"),
    ):
        code, out, err = oasis("search", url, "--text", "boat")
        assert (code, out) == (1, "") and said in err and err.count("\n") == 1
        assert "secret" not in err
