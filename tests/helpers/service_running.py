"""A service that runs for all tests of a file, and ways to ask it."""

import json

import pytest
from service_data import fill
from serving import serving

TENSORS = "application/x-safetensors"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(fill(tmp_path_factory.mktemp("service") / "c"), "--max-body", "4") as running:
        yield running


def search(server, **asked):
    status, found = server.json("POST", "/v1/search", asked)
    assert status == 200, found
    return found["results"]


def problem(server, *request, **options):
    status, headers, content = server.ask(*request, **options)
    assert headers["Content-Type"] == "application/problem+json", content
    found = json.loads(content)
    assert found["status"] == status and found["detail"] and found["title"]
    assert found["instance"] == f"urn:oasis:request:{headers['X-Request-ID']}"
    assert "Traceback" not in content.decode() and ".py" not in content.decode()
    return status, found
