"""The page in a real browser: adding, editing and deleting, and who may."""

import json
from urllib.parse import quote

import page_browser
from page_browser import NASTY, N, drawn, ready, search, sync_api, titles, unnamed, upload
from service_data import fill, picture
from serving import serving

from oasis.items.folder import name_words

browser = page_browser.browser
server = page_browser.server
visit = page_browser.visit
pytestmark = page_browser.MARKS


def test_an_item_is_added_found_and_deleted_and_its_text_never_runs(visit, server):
    assert server.json("POST", "/v1/words", {"vectors": {"<b>bold</b>": [1] * 12}})[0] == 200
    page = ready(visit("/?view=add"))
    page.fill("#add-title", NASTY)
    page.fill("#add-text", "whisker fur")
    page.fill("#add-labels", "cat, <b>bold</b>, cat")
    page.set_input_files("#add-file", upload("cat"))
    page.click("text=Add and find it")
    page.wait_for_selector(".card.marked")
    assert page.inner_text(".card.marked h3") == NASTY
    assert "A search with it finds it at place" in page.inner_text("#add-status")
    page.wait_for_selector(f"text={N + 1} items")
    assert page.locator("#main script, .card b, .card h3 img").count() == 0
    assert "run" not in page.title()
    page.click(".card.marked >> text=<b>bold</b>")
    page.wait_for_selector("#view-search:not([hidden])")
    sync_api.expect(page.locator("#results h3")).to_have_count(1)
    assert titles(page) == [NASTY]
    page.click("#results .open")
    page.wait_for_selector("#detail[open] .fields, #detail[open] .chips")
    assert page.inner_text("#detail-title") == NASTY
    assert page.locator("#detail script, #detail h2 img, #detail b").count() == 0
    page.click("#detail >> text=Delete")
    page.click("#detail >> text=Keep it")
    page.click("#detail >> text=Delete")
    page.click("#detail >> text=Delete for ever")
    page.wait_for_selector(f"text={N} items")
    assert page.locator("#results .card").count() == 0 and page.locator("#detail").is_hidden()


def test_labels_are_edited_in_the_open_item_and_predicted_ones_shown_as_such(visit, folder):
    with serving(fill(folder / "c", 24, ("tabby", NASTY))) as running:
        bare = {"id": "bare", "text": "paw whisker", "payload": {"title": "bare"}}
        assert running.json("POST", "/v1/ingest", {"items": [bare]})[1]["ingested"] == 1
        page = drawn(ready(visit(url=running.url)))
        first = page.locator("#results .card").first
        assert first.locator("h3").inner_text() == "bare"
        assert first.locator(".chip.predicted").all_inner_texts() == ["cat"]
        assert "Predicted" in first.locator(".chip.predicted").get_attribute("title")
        # a predicted label asks for given and predicted ones
        first.locator(".chip.predicted").click()
        page.wait_for_selector("text=the label “cat”, given or predicted, most typical first")
        assert "bare" in titles(page) and "predicted=yes" in page.url
        page.locator("#active-filters .chip").wait_for()
        page.click("#filters summary")
        assert page.is_checked("#label-predicted")
        page.uncheck("#label-predicted")
        page.wait_for_selector("text=the label “cat”, most typical first")
        assert "bare" not in titles(page)
        page.check("#label-predicted")
        page.wait_for_selector("text=given or predicted, most typical first")
        titles(page)
        page.click("#results h3 >> text=bare")
        page.wait_for_selector("#detail-labels h3 >> text=Predicted labels")
        # what is predicted is offered; another one is added, and both are given
        page.click("#detail >> text=Edit labels")
        page.wait_for_selector("#edit-labels:focus")
        assert unnamed(page) == []
        page.keyboard.press("Escape")
        page.wait_for_selector("#detail[open] >> text=Edit labels")
        page.click("#detail >> text=Edit labels")
        page.fill("#edit-labels", f"tabby, {NASTY}")
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail >> text=Edit labels")  # once the change is saved
        shown = page.locator("#detail-labels .chips").first.locator(".chip").all_inner_texts()
        assert shown == ["cat", "tabby", NASTY]
        assert page.locator("#detail .predicted").count() == 0
        assert page.evaluate("document.activeElement.innerText") == "Edit labels"
        assert "run" not in page.title()
        assert running.json("GET", "/v1/item?id=bare")[1]["labels"] == shown
        # all are taken away, by the keyboard
        page.keyboard.press("Enter")
        page.wait_for_selector("#edit-labels:focus")
        for _ in shown:
            page.locator(".editor .chip").first.press("Enter")
        page.click("#detail >> text=Save")
        # that it has none was said: nothing is predicted over it
        page.wait_for_selector("#detail >> text=Edit labels")
        assert running.json("GET", "/v1/item?id=bare")[1]["labels"] == []
        page.click("#detail >> text=Edit labels")
        page.fill("#edit-labels", "tabby")
        page.click("#detail >> text=Save")
        page.wait_for_selector("#detail-labels .chip >> text=tabby")
        # a label that was never learned is looked through like any other
        page.click("#detail-labels .chip >> text=tabby")
        page.wait_for_selector("text=the label “tabby”, most typical first")
        sync_api.expect(page.locator("#results .card")).to_have_count(1)
        assert titles(page) == ["bare"]
        page.close()


def test_who_may_not_write_is_offered_no_change(visit, folder):
    with serving(fill(folder / "c", 12), "--readonly") as running:
        page = ready(visit("/?item=item%2F1", url=running.url))
        page.wait_for_selector("#detail[open] .chips")
        assert page.locator("#detail >> text=Edit labels").count() == 0
        assert page.locator("#detail >> text=Delete").count() == 0
        page.close()  # it may still be loading pictures


def test_many_files_are_added_with_progress_and_what_is_refused_is_told(visit, folder):
    with serving(fill(folder / "c", 12)) as running:
        page = ready(visit("/?view=add", url=running.url, allowed=("422",)))
        files = [
            {**upload("sea", seed), "name": f"boat-{seed}.png"} for seed in range(40)
        ] + [
            {"name": "broken.png", "mimeType": "image/png", "buffer": picture("sky")[:90]},
            {"name": "boat-1.txt", "mimeType": "text/plain", "buffer": b"harbour"},
            {"name": "note.txt", "mimeType": "text/plain", "buffer": b"whisker paw"},
            {"name": "empty.txt", "mimeType": "text/plain", "buffer": b" "},
            {"name": "x.pdf", "mimeType": "application/pdf", "buffer": b"%PDF"},
            {
                "name": "some.jsonl",
                "mimeType": "application/json",
                "buffer": b'{"id": 7, "text": "cloud", "payload": {"year": 9}}\n{"id": 8}\nno\n',
            },
        ]  # fmt: skip
        page.set_input_files("#bulk-files", files)
        assert "46 files chosen" in page.inner_text("#bulk-chosen")
        page.fill("#bulk-labels", "sea")
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=42 items added, 5 refused.")
        assert page.locator("#bulk-progress").evaluate("bar => bar.value / bar.max") == 1
        errors = page.inner_text("#bulk-errors")
        reasons = [
            "broken.png",
            "empty.txt the file is empty",
            "x.pdf it is neither",
            "some.jsonl, line 2 it has no text",
            "some.jsonl, line 3 it is no JSON",
        ]
        for told in reasons:
            assert told in errors
        page.wait_for_selector("text=54 items")
        assert "bulk" not in page.inner_text("#alert")
        # a second time all of them are there already
        page.set_input_files("#bulk-files", files[:3])
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=0 items added, 3 refused.")
        page.click("nav >> text=Search")
        search(page, "harbour")
        stored = running.json("GET", "/v1/item?id=boat-1.png")[1]
        assert stored["labels"] == ["sea"] and stored["payload"] == {"title": "boat-1"}
        page.close()


def test_words_of_file_names_may_be_the_texts_of_pictures(visit, folder):
    with serving(fill(folder / "c", 12)) as running:
        page = ready(visit("/?view=add", url=running.url))
        names = page.get_by_label("The words of file names are the texts")
        with_caption = [
            {**upload("sea", 1), "name": "a.png"},
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"harbour"},
        ]
        page.set_input_files("#bulk-files", with_caption)
        sync_api.expect(names).to_be_hidden()
        bare = {
            **upload("sea", 2),
            "name": "IMG_2031 redDouble-Decker_v2 \u65e5\u672c n02099601.png",
        }
        page.set_input_files("#bulk-files", [*with_caption, bare])
        names.check()
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=2 items added.")
        texts = {
            name: running.json("GET", f"/v1/item?id={quote(name)}")[1]["text"]
            for name in ("a.png", bare["name"])
        }
        assert texts == {"a.png": "harbour", bare["name"]: name_words(bare["name"][:-4])}
        page.close()


def test_fields_of_lines_that_are_not_kept_are_told(visit, folder):
    with serving(fill(folder / "c", 12)) as running:
        page = ready(visit("/?view=add", url=running.url))
        lines = b'{"id": 70, "text": "cloud", "year": 9}\n{"id": 80, "text": "sea", "size": 1}\n'
        page.set_input_files(
            "#bulk-files",
            {"name": "some.jsonl", "mimeType": "application/json", "buffer": lines},
        )
        page.click("text=Add them")
        page.wait_for_selector("#bulk-status >> text=2 items added.")
        told = page.inner_text("#bulk-status")
        assert "Fields that are not kept: year, size;" in told
        page.close()


def test_an_empty_collection_works_after_the_first_add_without_a_reload(visit, folder):
    with serving(folder / "c") as running:
        page = ready(visit(url=running.url))
        assert page.locator("#filters").is_hidden() and page.locator("#search-picture").is_hidden()
        page.click("text=Add the first items")
        page.fill("#add-title", "The first")
        page.fill("#add-text", "a red boat in the harbour")
        page.set_input_files("#add-file", upload("sea"))
        page.fill("#add-labels", "boat")
        page.click("text=Add and find it")
        page.wait_for_selector(".card.marked")
        page.click("nav >> text=Search")
        page.wait_for_selector("#suggestions >> text=boat")
        assert page.is_visible("#search-picture") and page.is_visible("#exactness")
        assert page.is_visible("#filters")
        search(page, "red boat")
        assert titles(page) == ["The first"]
        page.set_input_files("#search-file", upload("sea"))
        page.wait_for_selector("text=“red boat” and your picture")
        assert titles(page) == ["The first"]
        page.close()


def test_a_broken_picture_is_refused_in_words(visit):
    page = ready(visit(allowed=("422",)))
    broken = {"name": "q.png", "mimeType": "image/png", "buffer": picture("sky")[:90]}
    page.set_input_files("#search-file", broken)
    page.wait_for_selector("#alert:not([hidden])")
    assert "cannot be read" in page.inner_text("#alert")


def test_a_token_is_asked_for_and_a_service_that_is_gone_is_told(visit, folder):
    env = {"OASIS_READ_TOKEN": "reading-token-0001", "OASIS_WRITE_TOKEN": "writing-token-0001"}
    server = serving(fill(folder / "c", 12), env=env)
    with server as running:
        allowed = ("401", "403", "Failed to load resource")
        page = visit(url=running.url, allowed=allowed)
        page.wait_for_selector("dialog[open]")
        assert "Authorization" not in page.inner_text("#token-reason")  # that is for programs
        page.fill("#token", "a-wrong-token-here")
        page.click("text=Use it")
        page.wait_for_selector("text=does not know the token")
        page.fill("#token", env["OASIS_READ_TOKEN"])
        page.click("text=Use it")
        ready(page)
        search(page, "boat")
        assert titles(page)[0].startswith("sea")
        page.click("nav >> text=Add")
        page.fill("#add-text", "boat")
        page.fill("#add-id", "by-hand")
        page.click("text=Add and find it")
        page.wait_for_selector("text=this token may read, but not write")
        page.fill("#token", env["OASIS_WRITE_TOKEN"])
        page.click("text=Use it")
        page.wait_for_selector("text=just added")
        page.wait_for_selector("text=13 items")
        assert json.loads(page.evaluate("JSON.stringify(document.cookie)")) == ""
    page.click("nav >> text=Search")
    page.fill("#query", "wave")
    page.press("#query", "Enter")
    page.wait_for_selector("text=The service does not answer")


def test_a_refusal_of_an_old_token_that_comes_late_asks_nobody_again(visit, folder):
    env = {"OASIS_READ_TOKEN": "reading-token-0001"}
    with serving(fill(folder / "c", 12), env=env) as running:
        held = []

        def hold(route):  # the first request waits until a token was given
            if held:
                route.continue_()
            else:
                held.append(route)

        allowed = ("401", "Failed to load resource")
        page = visit(url=running.url, allowed=allowed, routes={"**/v1/classes": hold})
        page.wait_for_selector("dialog[open]")
        page.fill("#token", env["OASIS_READ_TOKEN"])
        page.click("text=Use it")
        page.wait_for_selector("#token-dialog:not([open])", state="attached")
        refused = held[0].fetch()
        assert refused.status == 401
        held[0].fulfill(response=refused)
        ready(page)
        page.close()
