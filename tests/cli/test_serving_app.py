"""The prediction server, asked directly: answers, refusals, types, identity, metrics."""

import asyncio
import copy
import json

import httpx
import numpy as np
import pyarrow.csv
import pytest
from starlette.testclient import TestClient

import cavity
from cavity.cli.models import Model
from cavity.cli.serving.application import make_app
from cavity.cli.serving.server import make_served_app
from cavity.cli.serving.server_settings import Access, Limits, make_access
from cavity.errors import BadOption
from cavity.tables.validation import Prepared
from cli.running import run
from support import toy

JSON = {"content-type": "application/json"}
LOCAL = "http://localhost"
BIRD = {"bill": 45.1, "mass": 4300, "island": "Biscoe", "sex": None}


@pytest.fixture(scope="module")
def client(birds):
    return TestClient(
        make_app(Model.open(birds / "birds.cavity"), Limits(5, 2000)), base_url=LOCAL
    )


@pytest.fixture(scope="module")
def toy_client(toy_model):
    return TestClient(make_app(Model.open(toy_model)), base_url=LOCAL)


def post(client, body, headers=JSON):
    return client.post("/predict", content=body, headers=headers)


def test_served_predictions_are_the_commands(birds, client):
    rows = pyarrow.csv.read_csv(birds / "penguins.csv").slice(0, 4).to_pylist()
    names = [column["name"] for column in client.get("/schema").json()["columns"]]
    sent = [{name: r[name] for name in names} for r in rows]
    got = client.post("/predict?uncertainty=true", json={"rows": sent})
    assert got.status_code == 200, got.text
    model = Model.open(birds / "birds.cavity")
    X = model.prepare.encode({n: [r[n] for r in sent] for n in names})
    P = model.classifier.predict_proba(Prepared(X))
    np.testing.assert_array_equal(got.json()["probabilities"], P)
    assert got.json()["labels"] == list(model.classifier.classes_[P.argmax(1)])
    assert len(got.json()["epistemic"]) == 4


@pytest.mark.parametrize(
    "body, code, words",
    [
        (b"{", 422, "not valid JSON"),
        (b"[" * 1500, 422, "not valid JSON"),
        (b"[]", 422, "no rows"),
        (b'{"rows": []}', 422, "no rows"),
        (b'{"rows": [1]}', 422, "an object by column name"),
        (b'{"rows": [1], "columns": []}', 422, "unknown key 'columns'"),
        (b'{"rows": [{"wings": 2}]}', 422, "no column"),
        (b'{"rows": [{"\\ud800": 1}]}', 422, "not valid JSON"),  # half of a character
        (b'{"rows": [{"sex": "\\uD800"}]}', 422, "not valid JSON"),
        (b'{"rows": [{"\xed\xa0\x80": 1}]}', 422, "not valid JSON"),
        (b'{"rows": [1, 2, 3, 4, 5, 6]}', 422, "limit is 5"),
        (b'{"rows": "' + b"x" * 3000 + b'"}', 413, "2000 bytes"),
    ],
)
def test_bad_requests_get_words(client, body, code, words):
    got = post(client, body)
    assert got.status_code == code, got.text
    assert words in got.json()["detail"]


@pytest.mark.parametrize(
    "changed, column, words",
    [
        ({"mass": {"a": 1}}, "mass", "an object"),
        ({"mass": [1]}, "mass", "a list"),
        ({"mass": float("nan")}, "mass", "not a finite number"),
        ({"mass": 10**400}, "mass", "not a finite number"),
        ({"mas": 1}, "mas", "did you mean 'mass'"),
        ({"island": []}, "island", "a list"),
        ({"mass": ...}, "mass", "give null"),
    ],
)
def test_a_refusal_names_the_row_and_the_column(client, changed, column, words):
    row = {name: cell for name, cell in {**BIRD, **changed}.items() if cell is not ...}
    got = post(client, json.dumps({"rows": [BIRD, BIRD, row]}))
    assert got.status_code == 422, got.text
    (error,) = got.json()["errors"]
    assert (error["row"], error["column"]) == (3, column) and words in error["message"]
    assert f"row 3, column '{column}'" in got.json()["detail"]


def test_without_names_rows_are_lists(toy_model, toy_client):
    X, _ = toy(3, 3, seed=1)
    got = toy_client.post("/predict", json={"rows": X.tolist()})
    np.testing.assert_array_equal(
        got.json()["probabilities"], cavity.load(toy_model).predict_proba(X)
    )
    width = X.shape[1]
    for bad in (
        [1.0],
        ["a"] * width,
        {"a": 1},
        [None] * width,
        [True] * width,
        [float("nan")] * width,
    ):
        assert post(toy_client, json.dumps({"rows": [bad]})).status_code == 422


def test_novelty_on_request(toy_model, toy_client, tmp_path):
    X, _ = toy(3, 3, seed=1)
    X[2] = 30.0
    got = toy_client.post("/predict?novelty=true", json={"rows": X.tolist()}).json()
    expected = cavity.load(toy_model).predict_novelty(X)
    np.testing.assert_array_equal(got["novelty"], expected)
    assert (
        got["novelty"][2] > 0.99
        and "novelty"
        not in toy_client.post("/predict", json={"rows": X.tolist()}).json()
    )
    rows = [
        ",".join(f"c{i}" for i in range(X.shape[1])),
        *(",".join(map(repr, r)) for r in X.tolist()),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    done = run(
        "predict",
        toy_model,
        tmp_path / "rows.csv",
        "--out",
        tmp_path / "p.csv",
        "--novelty",
    )
    assert done.exit_code == 0, done.output
    found = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True)["novelty"]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_cell_that_overflows_when_it_is_scaled_is_named(birds):
    model = Model.open(birds / "birds.cavity")
    stored = model.prepare.to_json()
    next(c for c in stored["columns"] if c["name"] == "mass")["scale"] = 1e-9
    model = copy.copy(model)
    model.prepare = cavity.Preparation.from_json(stored)
    client = TestClient(make_app(model), base_url=LOCAL)
    got = client.post("/predict", json={"rows": [BIRD, BIRD | {"mass": 1e305}]})
    assert got.status_code == 422
    assert [(e["row"], e["column"]) for e in got.json()["errors"]] == [(2, "mass")]


def test_a_row_without_a_finite_prediction_is_named(toy_model, monkeypatch):
    model = Model.open(toy_model)
    X, _ = toy(3, 3, seed=1)
    log_p = model.classifier.predict_log_proba(X)
    log_p[1] = np.nan
    monkeypatch.setattr("cavity.cli.models.predict_blocks", lambda *arguments: (log_p,))
    got = TestClient(make_app(model), base_url=LOCAL).post(
        "/predict", json={"rows": X.tolist()}
    )
    assert got.status_code == 422 and [e["row"] for e in got.json()["errors"]] == [2]


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"],
)
def test_only_json_is_read(client, kind):
    """A page of another origin can send these without asking the server first."""
    got = post(
        client, json.dumps({"rows": [BIRD]}), {"content-type": kind} if kind else {}
    )
    assert got.status_code == 415 and "application/json" in got.json()["detail"]
    json_too = {"content-type": "Application/JSON; charset=utf-8"}
    assert post(client, json.dumps({"rows": [BIRD]}), json_too).status_code == 200


@pytest.mark.parametrize(
    "host, code",
    [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("api.example.org", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
    ],
)
def test_only_known_hosts_are_answered(toy_model, host, code):
    app = make_app(
        Model.open(toy_model), access=make_access("0.0.0.0", ["*.example.org"])
    )
    assert (
        TestClient(app, base_url=LOCAL)
        .get("/health", headers={"host": host})
        .status_code
        == code
    )


def test_the_bound_address_is_a_known_host_and_patterns_are_checked():
    assert "192.0.2.7" in make_access("192.0.2.7", []).hosts
    assert "0.0.0.0" not in make_access("0.0.0.0", []).hosts
    assert make_access("localhost", ["*"]).hosts[-1] == "*"
    for bad in ("", "a*", "http://a", "a:80", "*.*"):
        with pytest.raises(BadOption, match="allowed-host"):
            make_access("localhost", [bad])


def test_a_token_opens_everything_but_health(toy_model, monkeypatch):
    monkeypatch.setenv("CAVITY_TOKEN", "s3cret")
    client = TestClient(
        make_app(Model.open(toy_model), access=make_access("localhost", [])),
        base_url=LOCAL,
    )
    assert client.get("/health").status_code == 200
    for path in ("/schema", "/metrics", "/predict"):
        method = client.post if path == "/predict" else client.get
        for wrong in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic s3cret"},
        ):
            got = method(path, headers=JSON | wrong)
            assert (
                got.status_code == 401 and got.headers["www-authenticate"] == "Bearer"
            ), path
        assert (
            method(path, headers=JSON | {"authorization": "Bearer s3cret"}).status_code
            != 401
        )
    for bad in ("", " ", "é", "a\n"):
        monkeypatch.setenv("CAVITY_TOKEN", bad)
        with pytest.raises(BadOption, match="CAVITY_TOKEN"):
            make_access("localhost", [])


def test_every_answer_names_the_model(birds):
    import hashlib

    expected = hashlib.sha256((birds / "birds.cavity").read_bytes()).hexdigest()
    app = make_served_app(str(birds / "birds.cavity"), "cpu", Limits(), Access())
    client = TestClient(app, base_url=LOCAL)
    health = client.get("/health").json()
    assert health["model"] == expected and health["version"] == cavity.__version__
    assert set(health["versions"]) == {"python", "torch", "numpy"}
    assert (asked := client.head("/health")).status_code == 200 and not asked.content
    assert client.post("/predict", json={"rows": [BIRD]}).json()["model"] == expected
    for got in (
        client.get("/schema"),
        client.get("/nowhere"),
        post(client, b"{"),
        post(client, b"", {}),
    ):
        assert got.headers["cavity-model"] == expected
        assert got.headers["cavity-version"] == cavity.__version__


def test_metrics_count_requests_rows_and_refusals(toy_model):
    client = TestClient(make_app(Model.open(toy_model), Limits(rows=3)), base_url=LOCAL)
    X, _ = toy(3, 3, seed=1)
    client.post("/predict", json={"rows": X.tolist()})
    client.post("/predict", json={"rows": []})
    client.get("/no/such/path")
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    for line in (
        'cavity_requests_total{path="/predict",status="200"} 1.0',
        'cavity_requests_total{path="other",status="404"} 1.0',
        'cavity_request_seconds_count{path="/predict"} 2.0',
        "cavity_rows_total 3.0",
        "cavity_waiting_rows 0.0",
    ):
        assert line in found.text


def test_a_full_queue_is_a_503_that_says_when_to_come_back(toy_model):
    """Ten requests of three rows at once, and a queue of six rows: some are answered,
    the rest refused; none is lost.
    """
    X, _ = toy(3, 3, seed=1)
    app = make_app(Model.open(toy_model), Limits(waiting=6))

    async def ask_ten():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=LOCAL
        ) as client:
            sent = (
                client.post("/predict", json={"rows": X.tolist()}) for _ in range(10)
            )
            return await asyncio.gather(*sent)

    found = asyncio.run(ask_ten())
    busy = [got for got in found if got.status_code == 503]
    assert busy and {got.status_code for got in found} == {200, 503}
    assert all(
        int(got.headers["retry-after"]) >= 1 and "busy" in got.json()["detail"]
        for got in busy
    )


def test_bytes_of_all_requests_are_bounded_while_they_arrive(toy_model):
    app = make_app(Model.open(toy_model), Limits(bytes=100))

    async def ask():
        arrive = asyncio.Event()

        async def half():
            yield b'{"rows": [[' + b" " * 80
            await arrive.wait()
            yield b"]]}"

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=LOCAL
        ) as client:
            held = [
                asyncio.ensure_future(
                    client.post("/predict", content=half(), headers=JSON)
                )
                for _ in range(6)
            ]
            await asyncio.wait(held, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            arrive.set()
            statuses = [got.status_code for got in await asyncio.gather(*held)]
            again = await client.post("/predict", content=b'{"rows": []}', headers=JSON)
        return statuses, again.status_code

    statuses, again = asyncio.run(ask())
    assert 503 in statuses and 422 in statuses and again == 422
