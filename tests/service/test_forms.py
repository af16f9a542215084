"""Forms come back as they were made, and whatever else is sent is refused with a reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import form

from oasis.client.requests import form as client_form
from oasis.service.api.forms import parse_form
from oasis.service.http.problems import Problem

FILES = st.dictionaries(st.integers(0, 999_999), st.binary(max_size=300), min_size=1, max_size=5)


@settings(deadline=None)
@given(FILES, st.text(max_size=50))
def test_forms_of_the_client_come_back_as_they_were(files, text):
    content, kind = client_form({"text": text}, files)
    found, pictures = parse_form(content, kind, 5)
    assert json.loads(found) == {"text": text} and pictures == files


@settings(deadline=None)
@given(st.data())
def test_a_broken_form_is_refused_or_whole(data):
    content, kind = form({"items": [{}]}, {"image.0": bytes(range(256)), "image.7": b""})
    at = data.draw(st.integers(0, len(content)))
    if data.draw(st.booleans()):
        broken = content[:at]
    else:
        broken = content[:at] + data.draw(st.binary(max_size=9)) + content[at:]
    try:
        text, pictures = parse_form(broken, kind, 5)
    except Problem as problem:
        assert problem.status == 400 and problem.detail.startswith("the form cannot be read: ")
    else:
        assert isinstance(text, bytes) and all(0 <= row < 1_000_000 for row in pictures)


def part(name, content="", disposition="form-data"):
    return f'--b\r\nContent-Disposition: {disposition}; name="{name}"\r\n\r\n{content}\r\n'


@pytest.mark.parametrize(
    ("content", "boundary", "said"),
    [
        (part("request", "{}") + "--b--", "", "names no boundary"),
        (part("request", "{}"), "b", "does not end with its boundary"),
        ("", "b", "does not end with its boundary"),
        (part("request", "{}") * 2 + "--b--", "b", "'request' is given twice"),
        (part("image.1") + part("image.01") + "--b--", "b", "image.1 is given twice"),
        (part("image.x") + "--b--", "b", "'image.x' is not known"),
        (part("../etc/passwd") + "--b--", "b", "is not known"),
        ("--b\r\nX-Other: 1\r\n\r\n\r\n--b--", "b", "has no name"),
        ("--b\r\nX: " + "x" * 3000 + "\r\n\r\n\r\n--b--", "b", "the head of a part"),
        ("".join(part(f"image.{row}") for row in range(5)) + "--b--", "b", "more than 4 parts"),
        ("no form at all", "b", "cannot be read"),
    ],
)
def test_why_a_form_is_refused_is_told(content, boundary, said):
    with pytest.raises(Problem) as caught:
        parse_form(content.encode(), f"multipart/form-data; boundary={boundary}", 3)
    assert caught.value.status == 400 and said in caught.value.detail
