"""The server under attack."""

import io
import json
import struct
import zlib
from dataclasses import replace

import pytest
from helpers import tiny_models
from helpers.api import HOME, TEXT, TestClient, ask
from helpers.pictures import encode_base64, make_photo
from PIL import Image
from starlette.websockets import WebSocketDisconnect

from clearhead.errors import BadOption
from clearhead.web.app import build_app
from clearhead.web.security import AccessPolicy
from clearhead.web.server import access_policy


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "10.0.0.7", ""])
def test_wrong_host(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9", "https://127.0.0.1.evil.example"]
)
def test_foreign_origin(client, origin):
    answer = client.post("/api/explain", json={"text": TEXT}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert client.post("/api/explain", json={"text": TEXT}, headers={"origin": HOME}).status_code == 200


def test_a_foreign_page_cannot_post_a_form_or_read_a_list(client):
    plain = client.post("/api/explain", content=json.dumps({"text": TEXT}), headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    assert client.get("/api/models", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fcli/serve.py", "/static//etc/passwd", "/%00"],
)
def test_path_traversal(client, path):
    answer = client.get(path)
    assert 400 <= answer.status_code < 500
    assert "import" not in answer.text


def test_every_answer_has_a_strict_policy(client):
    for answer in (client.get("/"), client.get("/static/main.js"), ask(client), client.get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert client.get("/").text.count("<script") == 1
    assert "style=" not in client.get("/").text


def test_script_in_texts_and_labels_stays_text():
    hostile = "<img src=x onerror=alert(1)>"
    labels = {0: hostile, 1: "b", 2: "c"}
    model = tiny_models.text_model(id2label=labels, label2id={name: number for number, name in labels.items()})
    with TestClient(build_app({hostile: replace(model, name=hostile)}), base_url=HOME) as client:
        text = "a <script>alert(1)</script> film"
        answer = ask(client, text=text, target=0)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["label"] == hostile
        page = ask(client, "file/html", text=text, target=0).text
    assert "<script>" not in page
    assert "<img src=x" not in page


def make_png(width, height):
    """A PNG that says it is huge and holds next to nothing."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def test_bombs_and_oversized_pictures(client):
    for size in ((60000, 60000), (6000, 6000)):
        answer = ask(client, image=encode_base64(make_png(*size)))
        assert answer.status_code == 422
        assert "pixels" in answer.json()["error"]
    assert ask(client, image=encode_base64(make_png(50, 50))).status_code == 422
    assert ask(client, image=encode_base64(make_photo((2000, 500), "JPEG"))).json()["size"] == [1600, 400]


@pytest.mark.parametrize("image_format", ["TIFF", "ICO", "PPM"])
def test_other_file_types_are_refused_whatever_they_claim(client, image_format):
    answer = ask(client, image="data:image/png;base64," + encode_base64(make_photo((32, 32), image_format)))
    assert answer.status_code == 422


def test_a_photo_is_seen_upright(client):

    sideways = Image.open(io.BytesIO(make_photo((60, 40))))
    note = sideways.getexif()
    note[0x0112] = 6
    buffer = io.BytesIO()
    sideways.save(buffer, "JPEG", exif=note)
    assert ask(client, image=encode_base64(buffer.getvalue())).json()["size"] == [40, 60]


def test_token(models):
    with TestClient(build_app(models, AccessPolicy(token="secret")), base_url=HOME, follow_redirects=False) as client:
        for path in ("/", "/static/main.js", "/api/models", "/openapi.json", "/?token=wrong"):
            assert client.get(path).status_code == 401
        assert ask(client, text=TEXT).status_code == 401
        assert client.get("/api/models", headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/", headers={"host": "10.0.0.7:80", "authorization": "Bearer secret"}).status_code == 200
        assert client.get("/", headers={"host": "evil.example", "authorization": "Bearer secret"}).status_code == 421
        entered = client.get("/?token=secret")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "SameSite=Strict" in entered.headers["set-cookie"]
        assert client.get("/").status_code == 200


def test_another_host_always_has_a_token():
    assert access_policy("127.0.0.1", None).token is None
    assert len(access_policy("0.0.0.0", None).token) > 20
    assert access_policy("127.0.0.1", "given").token == "given"


def test_a_further_host_name_is_answered_with_a_token():
    policy = access_policy("127.0.0.1", None, ["Demo.Example.org"])
    assert policy.token
    assert policy.accepts_host("demo.example.org") and policy.accepts_host("demo.example.org:443")
    assert not policy.accepts_host("other.example.org")


@pytest.mark.parametrize("name", ["https://demo.org", "demo.org:443", "*.org", ""])
def test_further_host_names_are_names(name):
    with pytest.raises(BadOption, match="--allow-host"):
        access_policy("0.0.0.0", None, [name])


def test_websockets_and_other_methods_are_refused(client):
    assert client.put("/api/explain").status_code == 405
    assert client.delete("/").status_code == 405
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect("/"):
        pass
    assert closed.value.code == 1008


def test_a_fault_of_ours_is_logged_without_the_text(models, caplog):
    app = build_app(models)

    def broken(_):
        raise RuntimeError("secret words")

    app.state.service.explain = broken
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as client:
        answer = ask(client, text="secret words")
    assert answer.status_code == 500
    assert "secret" not in answer.text + caplog.text
    assert "RuntimeError in test_security.py" in caplog.text


def test_two_servers_of_a_host_keep_their_own_cookies(models):
    with TestClient(build_app(models, AccessPolicy(token="secret")), base_url=HOME, follow_redirects=False) as client:
        entered = client.get("/?token=secret")
        assert entered.headers["set-cookie"].startswith("clearhead-token-8420=secret;")
        client.cookies.clear()
        others = 'theme={"mode":"dark"}; clearhead-token-9000=other'
        assert client.get("/", headers={"cookie": others}).status_code == 401
        assert client.get("/", headers={"cookie": f"{others}; clearhead-token-8420=secret"}).status_code == 200


def test_who_opens_the_page_without_a_token_can_read_why(models):
    with TestClient(build_app(models, AccessPolicy(token="secret")), base_url=HOME) as client:
        refused = client.get("/", headers={"accept": "text/html,*/*"})
        assert (refused.status_code, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert "<p>Missing or wrong token" in refused.text
        assert client.get("/api/models", headers={"accept": "text/html"}).json()["error"]


def test_short_tokens_are_refused_on_a_network():
    with pytest.raises(BadOption, match="at least 16"):
        access_policy("0.0.0.0", "hunter2")
    assert access_policy("127.0.0.1", "hunter2").token == "hunter2"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/models", "GET, HEAD"),
        ("PUT", "/api/explain", "POST"),
        ("GET", "/api/explain", "POST"),
        ("DELETE", "/", "GET, HEAD"),
    ],
)
def test_other_methods_are_refused_with_those_that_are_taken(client, method, path, allowed):
    refused = client.request(method, path)
    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)


def test_head_is_answered_without_a_body(client):
    whole = client.get("/api/models")
    head = client.head("/api/models")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
