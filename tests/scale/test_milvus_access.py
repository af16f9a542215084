"""Authorization and TLS: who may ask, and that no secret is shown or recorded."""

from __future__ import annotations

import logging
import shutil
import subprocess

import numpy as np
import pytest

from oasis.collection import Collection
from oasis.errors import EngineError, InputError
from oasis.scale.milvus import MilvusIndex
from oasis.scale.milvus.address import Address, without_user

SECRET = "Milvus"  # that of a new server's user root
VARIABLE = "OASIS_TEST_TOKEN"


# -- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "recorded"),
    [
        ("milvus://me@h/x?token_env=T", "milvus://me@h:19530/x?token_env=T"),
        ("milvus://h/x?tls=1&token_file=/run/a b", "milvus://h:19530/x?tls=1&token_file=/run/a+b"),
        ("https://h:1/x?tls_ca=/c.pem", "milvus://h:1/x?tls=1&tls_ca=/c.pem"),
        (
            "milvus://a%40b@h/x?timeout=3&token_env=T",
            "milvus://a%40b@h:19530/x?token_env=T&timeout=3",
        ),
        ("milvus://h/x?tls=0", "milvus://h:19530/x"),
    ],
)
def test_addresses_are_recorded_with_how_to_ask(uri, recorded):
    address = Address.parse(uri, "oasis")
    assert address.uri == recorded
    assert Address.parse(recorded, "oasis") == address


def test_a_password_in_an_address_is_used_and_never_shown_or_recorded():
    address = Address.parse("milvus://me:s%2Fecret@h/x", "oasis")
    assert address.token() == "me:s/ecret"
    assert "ecret" not in repr(address) + str(address)
    with pytest.raises(InputError, match=r"would be recorded; give \?token_env=VARIABLE") as caught:
        _ = address.uri
    assert "ecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("milvus://secret@h/x", "names a user and no password"),
        ("milvus://me:secret@h/x?token_env=T", r"several ways \(password, token_env\)"),
        ("milvus://h/x?token_env=T&token_file=F", r"several ways \(token_env, token_file\)"),
        ("milvus://h/x?tls_ca=/c.pem", "tls_ca without tls=1"),
        ("milvus://me:secret@h/x?tls=2", "expected nothing after the name"),
        ("milvus://me:secret@h/x?token=secret", "expected nothing after the name"),
        ("milvus://me:secret@h/x?token_env=", "expected nothing after the name"),
        ("milvus://me:secret@h/x?tls=1&tls=0", "expected nothing after the name"),
        ("milvus://me:secret@h/x#y", "has a fragment"),
        ("milvus://me:se/secret@h/x", "host and port cannot be read"),
        ("milvus://me:#secret@h/x", "has a fragment"),
        ("milvus://me:secret@/x", "names no host"),
        ("ftp://me:secret@h/x", "has the scheme 'ftp'"),
    ],
)
def test_refusals_do_not_show_what_may_be_a_secret(uri, message):
    with pytest.raises(InputError, match=message) as caught:
        Address.parse(uri, "oasis")
    # the query is shown as it is: nothing in it is a secret but where someone puts one
    assert "secret" not in str(caught.value).replace("?token=secret", "")
    assert "secret" not in without_user(uri).replace("?token=secret", "")


def token(options, user=""):
    return Address.parse(f"milvus://{user}h/x{options}", "oasis").token()


def test_tokens_are_read_where_the_address_says(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, " root:Milvus\n")
    file = tmp_path / "token"
    file.write_text("Milvus\n")
    assert token(f"?token_env={VARIABLE}") == "root:Milvus"
    assert token(f"?token_file={file}", "root@") == "root:Milvus"
    assert token("") == ""


def test_tokens_that_are_not_there_are_errors_that_say_where(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(EngineError, match=f"variable {VARIABLE}, .* is not set or empty"):
        token(f"?token_env={VARIABLE}")
    path = tmp_path / "token"
    with pytest.raises(EngineError, match="as token_file, cannot be read: No such file"):
        token(f"?token_file={path}")
    for content in (b"", b" \n", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(EngineError, match="holds no token"):
            token(f"?token_file={path}")
    with pytest.raises(EngineError, match="as tls_ca, cannot be read"):
        MilvusIndex(f"milvus://h/x?tls=1&tls_ca={tmp_path / 'ca.pem'}")


# -- a server that asks who is there --------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A folder with key.pem and cert.pem for 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(made, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def guarded(milvus_server, certificate):
    """A server with authorization and TLS, in place of the other one."""
    settings = {
        "authorization_enabled": True,
        "tls_mode": 1,
        "server_pem_path": str(certificate / "cert.pem"),
        "server_key_path": str(certificate / "key.pem"),
    }
    with milvus_server.replaced(settings) as server:
        yield server


@pytest.fixture
def place(guarded, certificate, monkeypatch):
    """The address of a collection there, without a token; the variable has the right one."""
    monkeypatch.setenv(VARIABLE, SECRET)
    return f"{guarded.address}/guarded", f"tls=1&tls_ca={certificate / 'cert.pem'}"


@pytest.mark.scale
def test_the_right_token_opens_the_server(place, tmp_path, monkeypatch):
    host, query = place
    (tmp_path / "token").write_text(f"root:{SECRET}\n")
    code = np.array([[7]], np.uint8)
    for number, uri in enumerate(
        [
            f"milvus://root@{host}?{query}&token_env={VARIABLE}",
            f"milvus://{host}?{query}&token_file={tmp_path / 'token'}",
            f"milvus://root:{SECRET}@{host}?{query}",
        ]
    ):
        with MilvusIndex(uri, 8, timeout=30) as ix:
            ix.add(code, [number])
            assert ix.search(code, 3).ids[0, : number + 1].tolist() == list(range(number + 1))
            assert SECRET not in repr(ix).replace("MilvusIndex", "")


@pytest.mark.scale
def test_a_wrong_token_is_one_clear_line(place, monkeypatch):
    host, query = place
    monkeypatch.setenv(VARIABLE, "not-the-token")
    for uri in (
        f"milvus://root@{host}?{query}&token_env={VARIABLE}",
        f"milvus://{host}?{query}&token_env={VARIABLE}",
        f"milvus://{host}?{query}",
    ):
        with pytest.raises(EngineError, match="did not accept the user and token") as caught:
            MilvusIndex(uri, 8, timeout=30)
        assert "\n" not in str(caught.value)
        assert "not-the-token" not in str(caught.value)
        assert "token_env" in str(caught.value)


@pytest.mark.scale
def test_a_server_with_tls_is_not_reached_without(place):
    host, _ = place
    for uri in (
        f"milvus://root@{host}?token_env={VARIABLE}",
        f"milvus://root@{host}?tls=1&token_env={VARIABLE}",
    ):
        with pytest.raises(EngineError, match=r"no Milvus answered at .* for 1 s") as caught:
            MilvusIndex(uri, 8, timeout=1)
        assert "\n" not in str(caught.value)
        assert ("tls=1" in str(caught.value)) == ("tls" not in uri)


@pytest.mark.scale
def test_a_collection_records_where_the_token_is_and_not_the_token(
    place, tmp_path, monkeypatch, caplog
):
    host, query = place
    rng = np.random.default_rng(0)
    X = {"image": rng.standard_normal((30, 8)).astype(np.float32)}
    secret = "root:" + SECRET
    monkeypatch.setenv(VARIABLE, secret)
    uri = f"milvus://{host.replace('guarded', 'kept')}?{query}&token_env={VARIABLE}"
    caplog.set_level(logging.DEBUG)
    with Collection.open(tmp_path / "c", n_bits=16, index=uri) as c:
        c.ingest(X, [("a",)] * 15 + [("b",)] * 15, ids=list(range(30)))
        assert c.search({"image": X["image"][:1]}, 1)[0][0].id == 0
        assert c.stats().index == uri
        assert secret not in repr(c) + str(c.stats()) + caplog.text
    with Collection.open(tmp_path / "c") as c:
        assert len(c.search({"image": X["image"][:1]}, 5)[0]) == 5
    for path in (tmp_path / "c").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    monkeypatch.setenv(VARIABLE, "root:wrong")
    with pytest.raises(EngineError, match="did not accept the user and token") as caught:
        Collection.open(tmp_path / "c")
    assert "wrong" not in str(caught.value)
    with pytest.raises(InputError, match="would be recorded"):
        Collection.open(tmp_path / "d", index=f"milvus://root:{SECRET}@{host}?{query}")
    assert not any(SECRET.encode() in p.read_bytes() for p in (tmp_path / "d").rglob("*"))
