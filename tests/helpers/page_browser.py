"""The page of a service in a real browser, and what a person does there."""

import shutil

import pytest
from service_data import fill, picture
from serving import serving

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
N = 60
MARKS = [
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
    with serving(fill(tmp_path_factory.mktemp("page") / "c", N)) as running:
        yield running


@pytest.fixture
def visit(browser, server):
    """Open the page; whatever it complains about, or asks of others, fails the test."""
    contexts, complaints = [], []

    def open_page(
        path="/", width=1180, height=900, allowed=(), url=server.url, routes=None, **options
    ):
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
        for pattern, handler in (routes or {}).items():
            page.route(pattern, handler)
        page.goto(url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints, complaints


def ready(page):
    page.wait_for_selector("body[data-ready]")
    return page


def drawn(page, where="#results"):
    # busy from the click until the answer is drawn; old results stay meanwhile
    page.wait_for_selector(f"{where}:not([aria-busy]) .card")
    return page


def titles(page, where="#results"):
    """Open what is stacked, and return the titles of all hits."""
    drawn(page, where)
    while page.locator(f"{where} .stack .open").count():
        page.locator(f"{where} .stack .open").first.click()
        drawn(page, where)
    return page.locator(f"{where} .card h3").all_inner_texts()


def search(page, words):
    page.fill("#query", words)
    page.press("#query", "Enter")
    page.wait_for_selector(f"#search-status:has-text('“{words}”')")
    return drawn(page)


def upload(kind, seed=90):
    return {"name": "q.png", "mimeType": "image/png", "buffer": picture(kind, seed)}


def unnamed(page):
    return page.evaluate(
        """[...document.querySelectorAll("button, a, input, select, textarea, summary")]
          .filter(e => e.offsetParent && !(e.getAttribute("aria-label") || e.innerText?.trim()
            || e.labels?.length)).map(e => e.outerHTML)"""
    )
