"""Searches beside changes: what is answered without a thread, one writer, and an end in between."""

import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest
import safetensors.numpy
import scipy.linalg  # noqa: F401 - its BLAS is there before the first change loads it
import service_running
from service_data import N, extractor, fill, vectors
from service_running import TENSORS, problem
from serving import Serving, asgi, asgi_async, serving
from threadpoolctl import threadpool_info, threadpool_limits
from toy import chunk, class_vectors

from oasis.client import Client
from oasis.collection import Collection
from oasis.collection.committed import Follower
from oasis.collection.records import Question
from oasis.errors import BusyError
from oasis.model import OASIS
from oasis.model.threads import one_thread
from oasis.service import Limits, Settings, create_app, searching
from oasis.service.problems import Problem
from oasis.service.work import Lane, Writer

server = service_running.server


SHORT = [
    {"like": "item/1"},
    {"like": "item/1", "k": 90, "offset": 10, "where": {}},
    {"vectors": {"image": [[0.5] * 900] * 7}, "k": 1},
]
LONG = [
    {"like": "item/1", "k": 101},
    {"like": "item/1", "offset": 91},
    {"like": "item/1", "where": {"$labels": {"has": "cat"}}},
    {"words": ["cat"]},
    {"items": [{"text": "cat"}]},
    {"vectors": {"image": [[0.5] * 900] * 11}},
    {"vectors": {"image": [[0.5] * 900] * 8}, "k": 1},
]


def threads_of_searches(monkeypatch):
    """A list that gets the thread of each search that follows."""
    checked, threads = Question.checked, []

    def noted(question):
        threads.append(threading.current_thread())
        return checked(question)

    monkeypatch.setattr(Question, "checked", noted)
    return threads


@pytest.mark.parametrize("readonly", [False, True])
def test_only_short_searches_are_made_without_a_thread(folder, monkeypatch, readonly):
    monkeypatch.setattr(searching, "_FEW_NUMBERS", 7 * 900)
    path = fill(folder / "c", 6)
    with Collection.open(path, readonly=readonly, extractor=extractor()) as c:
        c.search(vectors(1)[0])  # reads the fingerprints
        app, threads = create_app(c), threads_of_searches(monkeypatch)
        for asked in SHORT + LONG:
            assert asgi(app, "POST", "/v1/search", asked)[0] == 200
        X, _ = vectors(8)
        for rows in (7, 8):
            body = safetensors.numpy.save({"image": X["image"][:rows]}, {"request": '{"k": 1}'})
            assert asgi(app, "POST", "/v1/search", body, {"content-type": TENSORS})[0] == 200
        here = [each is threading.current_thread() for each in threads]
        short = [True] * len(SHORT) + [False] * len(LONG) + [True, False]
        assert here == [each and not readonly for each in short]
        monkeypatch.setattr(searching, "_FEW_CODES", c.index.n_codes - 1)
        assert asgi(app, "POST", "/v1/search", SHORT[0])[0] == 200
        assert threads[-1] is not threading.current_thread()
        app.state.service.close()


def test_fingerprints_are_read_in_a_thread(folder, monkeypatch):
    X, y = chunk(40)
    asked = {"vectors": {"image": X["image"][:1].tolist()}}
    model = OASIS.for_search(128, labels=class_vectors(), random_state=0)
    with Collection.open(folder / "c", model=model) as c:
        c.ingest(X, y)
    with Collection.open(folder / "c") as c:
        app, threads = create_app(c), threads_of_searches(monkeypatch)

        def is_here(**how):
            assert asgi(app, "POST", "/v1/search", {**asked, **how})[0] == 200
            return threads[-1] is threading.current_thread()

        unread = [is_here(fuse=False), is_here(mode="hamming"), is_here(content=0)]
        assert unread == [True] * 3 and not c.fingerprints_are_here
        assert [is_here(), is_here()] == [False, True] and c.fingerprints_are_here
        c.ingest(*chunk(5, seed=1))
        assert not c.fingerprints_are_here
        assert [is_here(), is_here(content=0.5)] == [False, True]
        app.state.service.close()


def test_a_reader_looks_for_commits_in_threads_only(folder, monkeypatch):
    commits, threads = Follower.commits, []

    def noted(reader):
        threads.append(threading.current_thread())
        return commits(reader)

    with Collection.open(fill(folder / "c", 6), readonly=True, extractor=extractor()) as c:
        app = create_app(c)
        monkeypatch.setattr(Follower, "commits", noted)
        for asked in SHORT + LONG:
            assert asgi(app, "POST", "/v1/search", asked)[0] == 200
        for path in ("/v1/stats", "/health/ready", "/v1/item?id=item/1"):
            assert asgi(app, "GET", path)[0] == 200
        assert threads and threading.current_thread() not in threads
        app.state.service.close()


def test_searches_do_not_wait_and_changes_queue(folder, monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, Settings(limits=Limits(ingests=2)))
        delete = c.delete

        def slow(ids):
            entered.set()
            assert leave.wait(60)
            return delete(ids)

        monkeypatch.setattr(c, "delete", slow)

        async def story():
            def change(name):
                return asyncio.create_task(
                    asgi_async(app, "POST", "/v1/delete", {"ids": [f"item/{name}"]})
                )

            first = change(1)
            await asyncio.to_thread(entered.wait, 60)
            second = change(2)
            await asyncio.sleep(0)
            while len(app.state.service.writer) < 2:
                await asyncio.sleep(0)
            third = await change(3)
            asked = {"words": ["cat"], "k": 1}
            searched = await asgi_async(app, "POST", "/v1/search", asked)
            leave.set()
            return third, searched, await first, await second

        third, searched, first, second = asyncio.run(story())
        assert third[0] == 429 and int(third[1]["retry-after"]) >= 1
        assert searched[0] == first[0] == second[0] == 200
        assert c.known(["item/1", "item/2", "item/3"]) == {"item/3"}
        app.state.service.close()


def test_a_stopped_queue_finishes_one_change_and_refuses_the_rest():
    queue, entered, leave, made = Writer(4), threading.Event(), threading.Event(), []

    def change():
        entered.set()
        assert leave.wait(60)
        made.append(1)
        return "done"

    async def story():
        first = asyncio.create_task(queue.run(change))
        await asyncio.to_thread(entered.wait, 60)
        second = asyncio.create_task(queue.run(change))
        await asyncio.sleep(0)
        queue.stopping = True
        leave.set()
        with pytest.raises(Problem, match="stopped"):
            await queue.run(change)
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = asyncio.run(story())
    queue.close()
    assert first == "done" and isinstance(second, Problem) and made == [1] and not len(queue)


def test_a_failure_of_ours_is_logged_and_not_told(folder, monkeypatch, caplog):
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c)

        def broken(*_, **__):
            raise RuntimeError("a secret of the inside")

        monkeypatch.setattr(Question, "checked", broken)
        status, _, found = asgi(app, "POST", "/v1/search", {"words": ["cat"]})
        assert status == 500 and found["title"] and "secret" not in json.dumps(found)
        assert "a secret of the inside" in caplog.text
        monkeypatch.setattr(c, "stats", lambda: threading.Event().wait(0.2))
        app.state.service.settings = Settings(limits=Limits(answer_seconds=0.01))
        status, heads, found = asgi(app, "GET", "/v1/stats")
        assert status == 503 and heads["retry-after"] and "0.01 seconds" in found["detail"]
        app.state.service.close()


@pytest.mark.slow
def test_a_stop_leaves_a_chunk_whole_or_refused(folder):
    fill(folder / "c")
    server = Serving(folder / "c")
    X, y = vectors(400, seed=4)
    answers = []

    def ingest():
        with Client(server.url, patience=0) as client:
            try:
                client.ingest(X, y, [f"last {row}" for row in range(400)])
                answers.append(400)
            except BusyError:  # the stop came between its arrival and its turn
                answers.append(0)

    thread = threading.Thread(target=ingest)
    thread.start()
    while b"oasis_writer_queue 1" not in server.ask("GET", "/metrics")[2] and not answers:
        pass
    assert server.stop() == 0
    thread.join()
    assert [each["event"] for each in server.entries() if each["event"] != "request"][-2:] == [
        "stopping",
        "stopped",
    ]
    with Collection.open(folder / "c") as c:
        assert len(c) == N + answers[0] and c.check() == []
        assert c.stats().journal_entries == 0


@pytest.mark.slow
def test_readers_beside_a_writer_follow_it_and_change_nothing(folder):
    fill(folder / "c")
    with Collection.open(folder / "c") as c, serving(folder / "c", "--readonly") as server:
        assert server.json("GET", "/v1/stats")[1]["readonly"] is True
        assert problem(server, "POST", "/v1/delete", {"ids": ["item/1"]})[0] == 403
        c.ingest(*vectors(3), ["n1", "n2", "n3"])
        assert server.json("GET", "/v1/item?id=n2")[0] == 200
        assert server.json("GET", "/v1/stats")[1]["n_items"] == N + 3
        X, _ = vectors(1)
        body = safetensors.numpy.save(X, {"request": '{"k": 3}'})
        found = server.json("POST", "/v1/search", body, kind=TENSORS)[1]["results"]
        assert [hit["id"] for hit in found[0]] == [hit.id for hit in c.search(X, 3)[0]]
        ran = subprocess.run(
            [sys.executable, "-m", "oasis", "serve", str(folder / "c"), "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 1 and "another writer" in ran.stderr


def blas():
    return {
        each["num_threads"]
        for each in threadpool_info()
        if (each["user_api"], each.get("threading_layer")) == ("blas", "pthreads")
    }


def set_blas(n):  # in a thread that ends: one that lives would keep the right to set it
    thread = threading.Thread(target=threadpool_limits, args=(n, "blas"))
    thread.start()
    thread.join()


@pytest.fixture
def queue(monkeypatch):
    """A queue that takes one change, on a machine of four cores; BLAS has four threads."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    made = Writer(1)
    (before,) = blas()
    set_blas(4)
    assert blas() == {4}
    yield made
    made.close()
    set_blas(before)


def test_a_change_leaves_blas_as_it_was(queue):
    assert asyncio.run(queue.run(blas)) == {3}
    assert blas() == {4}
    with pytest.raises(ZeroDivisionError):
        asyncio.run(queue.run(lambda: 1 // 0))
    queue.close()
    assert blas() == {4}


def test_a_change_that_begins_inside_a_search_leaves_blas_as_it_was(queue):
    entered, leave, inside = threading.Event(), threading.Event(), []

    def change():
        inside.append(blas())
        entered.set()
        assert leave.wait(60)
        inside.append(blas())

    async def story():
        with one_thread():
            changed = asyncio.create_task(queue.run(change))
            await asyncio.to_thread(entered.wait, 60)
        leave.set()
        await changed

    asyncio.run(story())
    assert inside == [{1}, {3}] and blas() == {4}


def test_a_change_that_no_thread_takes_is_not_counted():
    queue = Writer(1)
    queue.close()
    with pytest.raises(Problem, match="stopped"):
        asyncio.run(queue.run(blas))
    assert len(queue) == 0


def test_clients_have_their_turns_in_a_lane():
    lane, leave, done = Lane("test", 1, 1), threading.Event(), []
    first = lane.submit("a", lambda: leave.wait(60))
    while not lane.running:
        pass
    rest = [lane.submit("a", lambda n=n: done.append(f"a{n}")) for n in range(3)]
    rest += [lane.submit("b", lambda n=n: done.append(f"b{n}")) for n in range(2)]
    dropped = lane.submit("a", lambda: done.append("dropped"))
    assert dropped.cancel()
    leave.set()
    for each in [first, *rest]:
        each.result(60)
    lane.close()
    assert done == ["a0", "b0", "a1", "b1", "a2"]


def test_a_client_has_no_more_than_its_share_of_a_lane():
    lane, leave = Lane("test", 3, 2), threading.Event()
    held = [lane.submit("a", lambda: leave.wait(60)) for _ in range(5)]
    assert lane.submit("b", lambda: 7).result(60) == 7
    assert lane.running["a"] == 2
    leave.set()
    assert all(each.result(60) for each in held)
    lane.close()


def test_what_a_client_has_running_is_bounded(folder):
    entered, leave = threading.Event(), threading.Event()
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, Settings(Limits(client_cost=30)))
        asked = {"words": ["cat"] * 20, "k": 3}

        def held():
            entered.set()
            return leave.wait(60) and []

        async def story(monkey):
            monkey.setattr(c, "classes", held)
            one = asyncio.create_task(asgi_async(app, "GET", "/v1/classes"))
            await asyncio.to_thread(entered.wait, 60)
            small = await asgi_async(app, "POST", "/v1/search", {"like": "item/1", "k": 3})
            beside = await asgi_async(app, "POST", "/v1/search", {**asked, "words": ["cat"] * 29})
            leave.set()
            return small, beside, await one

        with pytest.MonkeyPatch.context() as monkey:
            small, beside, one = asyncio.run(story(monkey))
        assert (small[0], beside[0], one[0]) == (200, 429, 200)
        assert beside[1]["retry-after"] == "1"
        # one request alone is taken, whatever it costs
        assert asgi(app, "POST", "/v1/search", {**asked, "words": ["cat"] * 100})[0] == 200
        assert not app.state.service.costs
        app.state.service.close()


def test_a_search_in_slices_answers_as_a_whole_one(folder, monkeypatch):
    with Collection.open(fill(folder / "c"), extractor=extractor()) as c:
        app = create_app(c)
        X, _ = vectors(30)
        asked = [
            {"words": ["cat", "sky", "sea"] * 20, "k": 5},
            {"items": [{"text": "boat"}, {"text": "fur cloud"}] * 20, "k": 5, "snippet": 9},
            {"items": [{"text": "boat"}, {"text": "zzz"}] * 20, "k": 3, "evidence": True},
            {"vectors": {name: matrix.tolist() for name, matrix in X.items()}, "k": 4},
        ]
        cut = [asgi(app, "POST", "/v1/search", each) for each in asked]
        monkeypatch.setattr(searching, "_SLICE_COST", 1e9)
        whole = [asgi(app, "POST", "/v1/search", each) for each in asked]
        assert [each[0] for each in cut] == [200] * 4

        def hits(answer):  # scores of another number of rows differ in the last digit
            found = [[(h["id"], h.get("text")) for h in each] for each in answer[2]["results"]]
            return found, len(answer[2].get("evidence", ()))

        assert [hits(each) for each in cut] == [hits(each) for each in whole]
        app.state.service.close()


def test_what_a_gone_caller_asked_is_dropped(folder):
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app, left = create_app(c), []
        sliced = json.dumps({"words": ["cat"] * 1000, "k": 10}).encode()
        search = c.search_words

        def counted(*given, **how):
            left.append(len(given[0]))
            return search(*given, **how)

        with pytest.MonkeyPatch.context() as monkey:
            monkey.setattr(c, "search_words", counted)
            messages = [
                {"type": "http.request", "body": sliced},
                {"type": "http.disconnect"},
            ]

            async def receive():
                if len(messages) == 1 and not left:
                    while not left:
                        await asyncio.sleep(0.001)
                return messages.pop(0) if len(messages) > 1 else messages[0]

            async def send(message):
                raise AssertionError("nobody is there")

            head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope = {
                "type": "http", "method": "POST", "path": "/v1/search", "raw_path": b"/v1/search",
                "query_string": b"", "headers": head, "client": ("127.0.0.1", 1), "scheme": "http",
                "http_version": "1.1", "root_path": "", "server": ("127.0.0.1", 2),
            }  # fmt: skip
            asyncio.run(app(scope, receive, send))
        assert 1 <= len(left) < 10
        app.state.service.close()
