"""The page in a real browser: what a person sees and can do."""

import json
import shutil

import pytest
from service_data import fill, picture
from serving import serving

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
    # playwright closes its pipes when it is collected, in an order of its own
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NASTY = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(fill(tmp_path_factory.mktemp("page") / "c")) as running:
        yield running


@pytest.fixture
def visit(browser, server):
    """Open the page; whatever it complains about, or asks of others, fails the test."""
    contexts, complaints = [], []

    def open_page(path="/", width=1180, height=900, allowed=(), url=server.url, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))

        def console(message):
            if message.type == "error" and not any(each in message.text for each in allowed):
                complaints.append(message.text)

        page.on("console", console)
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((url, "blob:"))
                else complaints.append(f"asked {request.url}")
            ),
        )
        page.goto(url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def ready(page):
    page.wait_for_selector("body[data-ready]")
    return page


def titles(page, where="#results"):
    # busy from the click until the answer is drawn; old results stay meanwhile
    page.wait_for_selector(f"{where}:not([aria-busy])")
    page.wait_for_selector(f"{where} .card")
    page.wait_for_load_state("networkidle")
    return page.locator(f"{where} h3").all_inner_texts()


def upload(kind, seed=90):
    return {"name": "q.png", "mimeType": "image/png", "buffer": picture(kind, seed)}


def test_search_by_words(visit):
    page = ready(visit())
    assert "48 items" in page.inner_text("#facts")
    page.fill("#query", "anchor wave")
    page.press("#query", "Enter")
    assert all(title.startswith("sea") for title in titles(page)[:3])
    assert "best hits for “anchor wave”" in page.inner_text("#search-status")
    shown = page.locator("#results .frame img").first
    assert shown.evaluate("image => image.naturalWidth") == 64
    first = page.locator("#results .card").first.inner_text()
    assert "of 32 bits" in first and "sea" in first


def test_search_by_meaning_and_a_label(visit):
    page = ready(visit())
    page.click("#suggestions >> text=cat")
    assert all(title.startswith("cat") for title in titles(page)[:3])
    assert page.is_checked("[value=meaning]")
    page.select_option("#label-filter", "sky")
    page.wait_for_selector("text=with the label “sky”")
    assert all(title.startswith("sky") for title in titles(page))


def test_search_by_picture_and_by_both(visit):
    page = ready(visit())
    page.set_input_files("#search-file", upload("sea"))
    assert titles(page)[0].startswith("sea")
    assert "your picture" in page.inner_text("#search-status")
    page.fill("#query", "boat")
    page.press("#query", "Enter")
    page.wait_for_selector("text=“boat” and your picture")
    assert titles(page)[0].startswith("sea")
    page.click("text=Remove picture")
    assert page.locator(".preview img:visible").count() == 0


def test_a_picture_can_be_dropped(visit):
    page = ready(visit())
    content = list(picture("sky", 91))
    page.evaluate(
        """content => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(content)], "d.png", { type: "image/png" }));
          const options = { dataTransfer: data, bubbles: true, cancelable: true };
          document.querySelector(".drop").dispatchEvent(new DragEvent("drop", options));
        }""",
        content,
    )
    assert titles(page)[0].startswith("sky")


def test_more_like_this_and_more_hits(visit):
    page = ready(visit())
    page.fill("#query", "cloud")
    page.press("#query", "Enter")
    first = titles(page)[0]
    page.click("#results .like >> nth=0")
    page.wait_for_selector(f"text=more like “{first}”")
    near = titles(page)
    assert first not in near and len(near) == 24
    page.click("#show-more")
    page.wait_for_selector("#results .card:nth-child(25)")
    assert len(set(titles(page))) == 47


def test_an_item_is_added_and_found_and_its_text_never_runs(visit, server):
    assert server.json("POST", "/v1/words", {"vectors": {"<b>bold</b>": [1] * 12}})[0] == 200
    page = ready(visit("/#add"))
    page.fill("#add-title", NASTY)
    page.fill("#add-text", "whisker fur")
    page.fill("#add-labels", "cat, <b>bold</b>, cat")
    page.set_input_files("#add-file", upload("cat"))
    page.click("text=Add and find it")
    page.wait_for_selector(".card.marked")
    assert page.inner_text(".card.marked h3") == NASTY
    assert "A search with it finds it at place" in page.inner_text("#add-status")
    page.wait_for_selector("text=49 items")
    assert page.locator("#main script, .card b, .card h3 img").count() == 0
    assert "run" not in page.title()
    page.click(".card.marked >> text=<b>bold</b>")
    page.wait_for_selector("#view-search:not([hidden])")
    # the old results stay until the filtered ones are there
    sync_api.expect(page.locator("#results h3")).to_have_count(1)
    assert titles(page) == [NASTY]
    status, _ = server.json(
        "POST", "/v1/delete", {"ids": [find_id(server)]}, headers={"Origin": server.url}
    )
    assert status == 200


def find_id(server):
    asked = {"words": ["cat"], "k": 1, "where": {"title": NASTY}}
    return server.json("POST", "/v1/search", asked)[1]["results"][0][0]["id"]


def test_the_stream_is_drawn_and_told(visit):
    page = ready(visit())
    page.click("nav >> text=Stream")
    page.wait_for_selector("#charts svg")
    assert page.locator("#charts svg[role=img]").count() == 4
    assert "chance" in page.get_attribute("#charts svg >> nth=0", "aria-label")
    numbers = page.locator("#rounds tbody th").all_inner_texts()
    assert numbers[-2:] == ["2", "1"]
    assert page.locator("#rounds tbody tr").last.inner_text().endswith("sky, sea, cat")
    assert page.locator("#classes .chip").first.inner_text().startswith("sky")


def test_an_error_is_shown_in_words(visit):
    page = ready(visit(allowed=("422",)))
    page.fill("#query", "unheardof")
    page.click("text=by meaning")
    page.press("#query", "Enter")
    page.wait_for_selector("#alert:not([hidden])")
    alert = page.locator("#alert")
    assert alert.get_attribute("role") == "alert"
    assert "has no vector" in alert.inner_text() and "{" not in alert.inner_text()
    page.fill("#query", "cat")
    page.press("#query", "Enter")
    assert titles(page)[0].startswith("cat") and alert.is_hidden()
    page.fill("#query", "")
    page.press("#query", "Enter")
    assert "Type some words" in page.inner_text("#search-status")
    page.click("nav >> text=Add")
    page.click("text=Add and find it")
    assert "a text, a picture, or both" in alert.inner_text()


def test_a_broken_picture_is_refused_in_words(visit):
    page = ready(visit(allowed=("422",)))
    broken = {"name": "q.png", "mimeType": "image/png", "buffer": picture("sky")[:90]}
    page.set_input_files("#search-file", broken)
    page.wait_for_selector("#alert:not([hidden])")
    assert "cannot be read" in page.inner_text("#alert")


def test_everything_can_be_reached_by_keyboard(visit):
    page = ready(visit())
    page.keyboard.type("paw")
    page.keyboard.press("Enter")
    titles(page)
    page.focus(".skip")
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => e.id || e.getAttribute('aria-label') || e.innerText.trim())"
                "(document.activeElement)"
            )
        )
    for wanted in ("Search", "Stream", "Add", "query", "label-filter", "search-file"):
        assert wanted in reached
    assert any(each.startswith("More like ") for each in reached)
    page.click("nav >> text=Stream")
    page.keyboard.press("/")
    page.wait_for_selector("#query:focus")


def test_names_and_contrast(visit):
    """Every control has a name, every field a label, and text stands out from what is behind it."""
    for scheme in ("light", "dark"):
        page = ready(visit(color_scheme=scheme))
        page.fill("#query", "cloud")
        page.press("#query", "Enter")
        titles(page)
        unnamed = page.evaluate(
            """[...document.querySelectorAll("button, a, input, select, textarea")]
              .filter(e => e.offsetParent && !(e.getAttribute("aria-label") || e.innerText?.trim()
                || e.labels?.length)).map(e => e.outerHTML)"""
        )
        assert unnamed == []
        for name in ("soft", "accent", "ink", "alert", "good"):
            for behind in ("card", "page"):
                assert contrast(page, name, behind) >= 4.5, (scheme, name, behind)


def contrast(page, name, behind):
    def light(variable):
        value = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{variable}').trim()"
        )[1:]
        value = value if len(value) == 6 else "".join(2 * each for each in value)
        channels = [int(value[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(name), light(behind)))
    return (high + 0.05) / (low + 0.05)


def test_a_narrow_screen_needs_no_sideways_scrolling(visit):
    page = ready(visit(width=360, height=740))
    page.fill("#query", "cloud")
    page.press("#query", "Enter")
    titles(page)
    for view in ("Search", "Stream", "Add"):
        page.click(f"nav >> text={view}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("nav >> text=Search")
    boxes = [each.bounding_box() for each in page.locator("#results .card").all()[:2]]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[1]["x"] > boxes[0]["x"]


def test_the_api_is_told_to_people(visit):
    page = visit("/docs")
    page.wait_for_selector("details")
    assert "/v1/search" in page.inner_text("#operations")
    page.click("summary >> nth=0")
    assert "vectors?" in page.inner_text("details[open] pre >> nth=0")


def test_a_token_is_asked_for_and_a_service_that_is_gone_is_told(visit, folder):
    env = {"OASIS_READ_TOKEN": "reading-token-0001", "OASIS_WRITE_TOKEN": "writing-token-0001"}
    server = serving(fill(folder / "c", 12), env=env)
    with server as running:
        allowed = ("401", "403", "Failed to load resource")
        page = visit(url=running.url, allowed=allowed)
        page.wait_for_selector("dialog[open]")
        page.fill("#token", "a-wrong-token-here")
        page.click("text=Use it")
        page.wait_for_selector("text=it is not a known one")
        page.fill("#token", env["OASIS_READ_TOKEN"])
        page.click("text=Use it")
        ready(page)
        page.fill("#query", "boat")
        page.press("#query", "Enter")
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
    page.press("#query", "Enter")
    page.wait_for_selector("text=The service does not answer")
