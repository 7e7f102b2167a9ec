"""Heavy requests: refused before they cost memory or time, and never in the way of others."""

import asyncio
import json
import threading
import tracemalloc
from collections import Counter

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from cavity.cli.models import Model
from cavity.cli.serving import service
from cavity.cli.serving.application import make_app
from cavity.cli.serving.json_rows import parse_rows
from cavity.cli.serving.requests import RowReader
from cavity.cli.serving.settings import Limits
from cavity.errors import BadInput
from support import toy

LOCAL = "http://localhost"
HEAVY = 2 << 20  # characters


@pytest.mark.parametrize(
    "row, words",
    [
        ("[],", "must be"),
        ("[1,1],", "too many rows"),
        (f"[{'[],' * (HEAVY // 3)}1],", "row 1 is not valid JSON within"),
        (f"[{'1,' * (HEAVY // 2)}1],", "row 1 is not valid JSON within"),
        (f"{'[' * HEAVY}", "row 1 is not valid JSON within"),
        ("{" + ",".join(f'"{i}":1' for i in range(HEAVY // 9)) + "},", "row 1 is not valid JSON within"),
        (f'"{"x" * HEAVY}",', "row 1 is not valid JSON within"),
    ],
    ids=["empty rows", "rows", "nested", "cells", "brackets", "keys", "text"],
)
def test_a_heavy_body_is_refused_before_its_objects_are_built(toy_model, row, words):
    """json.loads would need 20 to 60 times the size of these bodies, and hold the interpreter meanwhile."""
    reader = RowReader(Model.open(toy_model), most_rows=1000)
    body = f'{{"rows": [{row * (HEAVY // len(row) or 1)}0]}}'.encode()
    tracemalloc.start()
    with pytest.raises(BadInput, match=words):
        reader.read(body, Counter())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(body)


@pytest.mark.parametrize("space", ["", " ", "\r\n\t "])
def test_rows_are_parsed_as_json_does(space):
    rows = [
        {"a": 'é [{,"\\', "b": None},
        [],
        {},
        [1.5e3, True, "]"],
        7,
        "x",
        [[{"a": []}]],
        {"a": {"b": "\u2028"}},
    ]
    for encoding in ("utf-8", "utf-16", "utf-8-sig"):
        separators = (f"{space},{space}", f"{space}:{space}")
        body = space + json.dumps({"rows": rows}, separators=separators, ensure_ascii=bool(space)) + space
        assert list(parse_rows(body.encode(encoding), len(rows))) == rows
    for end in ("", "]", "]}}", "],}", "]} 1", '], "rows": [1]}', ",]}"):
        with pytest.raises(BadInput, match=r"valid JSON|unknown key 'rows'"):
            list(parse_rows(b'{"rows": [1' + end.encode(), 5))


def test_large_bodies_are_parsed_outside_the_event_loop(toy_model, monkeypatch):
    X, _ = toy(3, 3, seed=1)
    app, threads = make_app(Model.open(toy_model)), []
    read, write = RowReader.read, service.format_answer
    monkeypatch.setattr(
        RowReader, "read", lambda *given: (threads.append(threading.get_ident()), read(*given))[1]
    )
    monkeypatch.setattr(
        service, "format_answer", lambda *given: (threads.append(threading.get_ident()), write(*given))[1]
    )

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=LOCAL) as client:
            got = await client.post("/predict", json={"rows": np.repeat(X, 1000, axis=0).tolist()})
        return got.status_code, threading.get_ident()

    status, loop = asyncio.run(ask())
    assert status == 200 and len(threads) == 2 and loop not in threads


def test_a_declared_length_over_the_limit_is_refused_before_the_body_arrives(toy_model):
    app, sent = make_app(Model.open(toy_model), Limits(bytes=100)), []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"101")]
    scope = dict(type="http", method="POST", path="/predict", raw_path=b"/predict", query_string=b"")

    async def receive():
        assert len(sent) == 2, "the body was asked for before the answer"
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope | {"headers": headers, "state": {}}, receive, send))
    assert sent[0]["status"] == 413 and b"100 bytes" in sent[1]["body"]


def test_large_headers_are_refused(toy_model):
    client = TestClient(make_app(Model.open(toy_model)), base_url=LOCAL)
    assert client.get("/health", headers={"x": "y" * (15 << 10)}).status_code == 200
    for much in ({"x": "y" * (16 << 10)}, {f"x{i}": "y" for i in range(4000)}):
        got = client.get("/health", headers=much)
        assert got.status_code == 431 and "16384 bytes" in got.json()["detail"]
    assert client.get("/health?" + "a" * (16 << 10)).status_code == 431
