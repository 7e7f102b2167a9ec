"""The page on which people try a model: its files, what it knows of the columns, and
its work in a real browser.

The browser needs chromium; `make test-browser` installs it. Nothing is installed here.
"""

import contextlib
import csv
import io
import itertools
import json
import re
import shutil
import subprocess
import threading
import time
from itertools import product
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import uvicorn
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

import cavity
from cavity import BadFile, GPClassifier, GPRegressor, Preparation
from cavity.cli.models import Model
from cavity.cli.serving import application
from cavity.cli.serving.application import make_app
from cavity.cli.serving.server_settings import Access, Limits
from cavity.cli.serving.trial import (
    SECURITY_POLICY,
    _choose_cell,
    _describe_number,
    _find_typical,
    describe_model,
    read_page_file,
)
from cavity.report.colours import COLOURS, ON_DARK
from support import without_warnings

LOCAL = "http://localhost"
NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
TOKEN = "s3cret"
ASK = """
const wrong = [], note = (name, value) => document.body.setAttribute(`data-${name}`, value);
addEventListener("error", (event) => wrong.push(event.message));
addEventListener("unhandledrejection", (event) => wrong.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => wrong.push(event.violatedDirective));
const all = (selector) => [...document.querySelectorAll(selector)], text = (id) => document.getElementById(id).textContent;
async function until(test) { for (let i = 0; i < 400 && !test(); i++) await new Promise((done) => setTimeout(done, 25)); }
const put = (input, value, kind) => { input.value = value; input.dispatchEvent(new Event(kind, { bubbles: true })); };
const shown = () => text("bars") + text("label");
async function changed(act) { const old = shown(); act(); await until(() => shown() !== old); return shown(); }

async function run() {
  const door = document.getElementById("door"), asked = [];
  await until(() => !door.hidden || all("#columns > *").length);
  if (!door.hidden) for (const token of ["wrong", "s3cret"]) {
    document.getElementById("token").value = token; document.getElementById("trouble").textContent = ""; door.requestSubmit();
    await until(() => door.hidden || /token/.test(text("trouble"))); asked.push(door.hidden);
  }
  note("asked", asked.join());
  await until(() => all("#moves .bar").length);
  note("moves", all("#moves .bar").length); note("drawn", all("#plot path.line").length); note("first", shown());
  const slider = all("#columns input[type=range]")[0];
  note("low", await changed(() => put(slider, slider.min, "input")));
  note("high", await changed(() => put(slider, slider.max, "input")));
  note("field", all(".column > input")[0].value === String(Number(slider.max)));
  const list = all("select")[0];
  put(list, list.options[list.length - 1].value, "change");
  await until(() => all("#plot .bar").length); note("levels", all("#plot .bar").length);
  const data = new DataTransfer(), made = [], create = URL.createObjectURL;
  URL.createObjectURL = (blob) => { made.push(blob); return create(blob); };
  data.items.add(new File([FILE], "rows.csv"));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  await until(() => made.length || /rows.csv:/.test(text("progress")));
  note("file", made.length ? await made[0].text() : text("progress")); note("said", text("progress"));
  note("link", all("#progress a").map((a) => a.download).join());
  note("wide", document.documentElement.scrollWidth - innerWidth); note("wrong", wrong.join(";")); note("done", "yes");
}
run();
"""


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A regressor of a number, a date with and without time, a category, a truth value
    and missing cells; its table.
    """
    rng = np.random.default_rng(0)
    n = 80
    day = pd.to_datetime("2001-02-03") + pd.to_timedelta(rng.integers(0, 5000, n), "D")
    table = pd.DataFrame(
        {
            "area": rng.uniform(20, 200, n).round(1),
            "rooms": rng.integers(1, 7, n),
            "garden": rng.integers(0, 2, n),
            "share": np.r_[0.0, 1.0, rng.uniform(0, 1, n - 2)],
            "built": day,
            "seen": day + pd.to_timedelta(rng.integers(0, 1439, n), "min"),
            "district": rng.choice(
                ["north", "south, by the sea", '"east"'], n, p=(0.2, 0.5, 0.3)
            ),
        }
    )
    table.loc[3, "area"] = None
    y = table["rooms"] * 20 + (table["district"] == "north") * 60 + rng.normal(size=n)
    path = tmp_path_factory.mktemp("houses") / "houses.cavity"
    with without_warnings():
        GPRegressor(n_inducing=10, max_epochs=3, random_state=0).fit(table, y).save(
            path
        )
    return path, table


def make_client(path, **options):
    return TestClient(make_app(Model.open(path), **options), base_url=LOCAL)


def test_the_page_holds_nothing_of_the_model_and_loads_nothing_from_elsewhere(
    toy_model,
):
    client = make_client(toy_model, access=Access(token=TOKEN))
    for path, kind in {
        "/": "text/html",
        "/page.js": "text/javascript",
        "/page.css": "text/css",
    }.items():
        got = client.get(path)
        assert got.status_code == 200 and got.headers["content-type"].startswith(kind)
        assert (
            got.headers["content-security-policy"] == SECURITY_POLICY
            and "unsafe" not in SECURITY_POLICY
        )
        outside = got.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?:|@import|url\(|innerHTML|eval\(| on\w+=|style=\"|<style", outside
        )
    assert client.get("/schema").status_code == 401
    assert (
        client.get("/schema", headers={"authorization": f"Bearer {TOKEN}"}).status_code
        == 200
    )
    style = read_page_file("page.css").decode()
    assert all(colour in style for colour in (*COLOURS, *ON_DARK))


def test_columns_have_the_range_of_the_training_rows_and_typical_cells(houses):
    path, table = houses
    found = {c["name"]: c for c in make_client(path).get("/schema").json()["columns"]}
    assert list(found) == list(table)
    for name in ("area", "rooms", "garden", "share"):
        about = found[name]
        values = table[name].dropna()
        assert about["low"] <= values.min() <= about["low"] + about["step"]
        assert about["high"] - about["step"] <= values.max() <= about["high"]
        assert (
            values.min() <= about["typical"] <= values.max()
            and about["kind"] == "number"
        )
    assert [found[name]["step"] for name in ("area", "rooms", "garden", "share")] == [
        1,
        1,
        1,
        0.01,
    ]
    assert found["area"]["missing"] and not found["rooms"]["missing"]
    assert (
        found["district"]["typical"] in found["district"]["levels"]
        and len(found["district"]["levels"]) == 3
    )
    assert (
        found["built"]["form"] == "date" and found["seen"]["form"] == "datetime-local"
    )
    assert (
        str(table["built"].min())[:10]
        <= found["built"]["typical"]
        <= str(table["built"].max())[:10]
    )


def test_a_slider_reaches_every_whole_number_of_a_rare_flag_and_of_counts() -> None:
    """4 standard deviations of a flag that is nearly always 0 are less than 1."""
    rng = np.random.default_rng(0)
    flag = (np.arange(400) % 100 == 0).astype(float)
    counts = rng.poisson(1.0, 400).astype(float)
    counts[0] = 40
    table = pd.DataFrame({"flag": flag, "counts": counts})
    columns = Preparation().fit(table).columns_
    for column in columns:
        about = _describe_number(column, 0.0, np.zeros(1))
        assert about["step"] == 1 and about["low"] == 0
        assert about["high"] >= 1 and about["high"].is_integer()
    assert about["high"] < 40


def test_the_page_starts_from_cells_that_belong_together() -> None:
    """Two clusters: the mean of both is unlike any row."""
    rng = np.random.default_rng(0)
    old = rng.random(120) < 0.5
    table = pd.DataFrame(
        {
            "age": np.where(old, 70, 20) + rng.integers(-3, 4, 120),
            "status": np.where(old, "retired", "student"),
        }
    )
    clf = GPClassifier(n_inducing=10, effort="fast", random_state=0)
    with without_warnings():
        clf.fit(table, rng.random(120) < np.where(old, 0.8, 0.3))
    center = clf._result.model.center
    points = clf._result.model.inducing_points.reshape(-1, len(center))
    age, status = clf._result.features.preparation.columns_
    start = _find_typical(points, center, clf._result.model.spread)
    about = {"kind": "number", "low": 17, "high": 73, "step": 1.0, "typical": 45}
    found = _choose_cell(age, about, start[:1])
    assert found == int(found) and min(abs(found - 20), abs(found - 70)) < 10
    assert _choose_cell(status, {}, start[1:]) == (
        "retired" if found > 45 else "student"
    )


def test_the_server_predicts_every_cell_that_the_page_offers(houses, toy_model, birds):
    for path in (houses[0], toy_model, birds / "birds.cavity"):
        client = make_client(path)
        about = client.get("/schema").json()
        columns = about["columns"]
        typical = [column["typical"] for column in columns]
        rows = [typical]
        for j, column in enumerate(columns):
            cells = (*column["others"], *column.get("levels", ()))
            rows += [[*typical[:j], cell, *typical[j + 1 :]] for cell in cells]
        if about["named"]:
            rows = [
                dict(zip([c["name"] for c in columns], row, strict=True))
                for row in rows
            ]
        got = client.post("/predict", json={"rows": rows})
        assert got.status_code == 200 and not got.json()["notes"], got.text


@contextlib.contextmanager
def serve(path, rows, token=None):
    """Serve a model with a page that also runs ASK; yield its address."""
    app = make_app(Model.open(path), access=Access(token=token))
    script = f"const FILE = {json.dumps(rows)};{ASK}"
    page = read_page_file("page.html").replace(
        b"</head>", b'<script src="ask.js" type="module"></script></head>'
    )
    policy = {"content-security-policy": SECURITY_POLICY}
    app.router.routes.append(
        Route("/ask.js", Response(script, media_type="text/javascript"))
    )
    app.router.routes.append(
        Route("/ask", Response(page, media_type="text/html", headers=policy))
    )
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    opened = (*application.OPEN, "/ask", "/ask.js")
    try:
        with patch.object(application, "OPEN", opened):
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ask"
    finally:
        server.should_exit = True
        thread.join()


def browse(address, folder):
    """Open the page on a phone; return the notes that ASK made."""
    options = "--headless --no-sandbox --disable-gpu --window-size=400,800 --enable-logging=stderr --virtual-time-budget=60000"
    command = [
        BROWSER,
        *options.split(),
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        address,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        encoding="utf-8",
        cwd=folder,
    )
    console = [
        line
        for line in done.stderr.splitlines()
        if "CONSOLE" in line and "401" not in line
    ]
    assert done.returncode == 0 and not console, (console, done.stderr[-2000:])
    body = re.search(r"<body([^>]*)>", done.stdout, re.DOTALL).group(1)
    return dict(re.findall(r'data-(\w+)="([^"]*)"', body))


def write_csv(table):
    text = io.StringIO()
    table.to_csv(text, index=False)
    return text.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(
    BROWSER is None, reason="no browser found: make test-browser installs one"
)
def test_people_try_a_classifier_in_a_browser(birds, tmp_path):
    """Token, slider, list, dropped file, download; nothing is refused by the security
    policy.
    """
    table = pd.read_csv(birds / "penguins.csv").head(30)
    with serve(birds / "birds.cavity", write_csv(table), TOKEN) as address:
        seen = browse(address, tmp_path)
    assert (
        seen.get("done") == "yes"
        and seen["wrong"] == ""
        and seen["asked"] == "false,true"
    ), seen
    assert (
        seen["moves"] == "4"
        and seen["drawn"] == "3"
        and seen["levels"] in "23"
        and seen["field"] == "true"
    )
    assert (
        len({seen["first"], seen["low"], seen["high"]}) == 3 and int(seen["wide"]) <= 0
    )
    found = list(csv.DictReader(io.StringIO(seen["file"])))
    clf = cavity.load(birds / "birds.cavity")
    P = clf.predict_proba(table)
    np.testing.assert_allclose(
        [[float(r[f"p_{c}"]) for c in clf.classes_] for r in found], P, rtol=1e-9
    )
    assert [r["label"] for r in found] == list(clf.predict(table)) and [
        r["species"] for r in found
    ] == list(table["species"])
    assert "30 rows" in seen["said"] and seen["link"] == "rows-predictions.csv"


@pytest.mark.slow
@pytest.mark.skipif(
    BROWSER is None, reason="no browser found: make test-browser installs one"
)
def test_people_try_a_regressor_in_a_browser(houses, tmp_path):
    path, table = houses
    with serve(path, write_csv(table.head(10))) as address:
        seen = browse(address, tmp_path)
    assert seen.get("done") == "yes" and seen["wrong"] == "" and seen["asked"] == "", (
        seen
    )
    assert seen["moves"] == "7" and seen["drawn"] == "1" and seen["levels"] == "3"
    found = list(csv.DictReader(io.StringIO(seen["file"].replace("&quot;", '"'))))
    mean, std = cavity.load(path).predict(table.head(10), return_std=True)
    np.testing.assert_allclose([float(r["mean"]) for r in found], mean, rtol=1e-9)
    assert [r["district"] for r in found] == list(table["district"].head(10)) and (
        std > 0
    ).all()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_reads_tables_as_csv_readers_do():
    """Cells of 1 MB overflowed the stack, and files whose lines end in CR had one line."""
    script = read_page_file("page.js").decode()
    functions = script[
        script.index("function findStop") : script.index("function readCells")
    ]
    cells = ["", "1.5", "a b", 'say "yes", or\nno', 'x"\ry', "z" * 1_000_000]
    table = [
        ["first", 'se"cond'],
        *map(list, product(cells, ("2", cells[-3]))),
    ]
    texts = []
    for delimiter, end in ((",", "\n"), (";", "\r\n"), ("\t", "\r")):
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(table)
        texts += [file.getvalue(), file.getvalue().rstrip()]
    run = "const read = (text) => { const { header, rows } = parseTable(text); return [header, ...rows]; };"
    ask = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map(read)));"
    done = subprocess.run(
        ["node", "-e", functions + run + ask],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [table] * len(texts)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_reads_cells_of_ten_megabytes():
    script = read_page_file("page.js").decode()
    functions = script[
        script.index("function findStop") : script.index("function readCells")
    ]
    ask = """
for (const cell of ["z".repeat(1e7), `"${'a""b,\\n'.repeat(2e6)}"`, `"${'""'.repeat(5e6)}"`])
  console.log(parseTable(`a,b\\r${cell},1\\r2,3\\r`).rows.map((row) => row.map((c) => c.length)).join());
for (const text of [`a,b\\n"${"z".repeat(1e7)}`]) try { parseTable(text); } catch (error) { console.log(error.message); }
"""
    command = ["node", "-e", functions + ask.replace("\\\\", "\\")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    *sizes, message = done.stdout.splitlines()
    assert sizes == ["10000000,1,1,1", "10000000,1,1,1", "5000000,1,1,1"]
    assert "row 1 below the header has a quotation mark" in message


SIZES = (0.0, 1.0, -3.0, 1e-170, 1e-300, 5e-324, 1e20, 1e150, 1e199, 1e304, 1e308)


@pytest.mark.parametrize("kind", ["columns", "arrays"])
def test_a_forged_column_is_refused_or_its_slider_is_finite(kind, tmp_path):
    """A mean of 1e308 ended the server with a math domain error."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=12), "y": ["a", "b"] * 6})
    model = cavity.GPClassifier("vi", n_inducing=3, max_epochs=1)
    with without_warnings():
        if kind == "columns":
            model.fit(frame.assign(c=["p", "q"] * 6)[["x", "c"]], frame["y"])
        else:
            model.fit(frame[["x"]].to_numpy(), frame["y"])
        model.save(tmp_path / "m.cavity")
    served = Model.open(tmp_path / "m.cavity")
    sound = served.prepare
    described = 0
    for mean, scale, low, high in itertools.product(SIZES, SIZES, SIZES, SIZES[::3]):
        try:
            if kind == "columns":
                stored = sound.to_json()
                stored["columns"][0] |= dict(mean=mean, scale=scale, low=low, high=high)
                served.prepare = Preparation.from_json(stored)
            else:
                fitted = served.result.model._replace(
                    center=np.array([mean]), spread=np.array([abs(scale) or 1.0])
                )
                served.result = served.result._replace(model=fitted)
            found = describe_model(served, Limits())["columns"][0]
        except BadFile:
            continue

        numbers = [found[name] for name in ("low", "high", "step", "typical")]
        assert np.isfinite([*numbers, *found["others"]]).all()
        assert found["low"] < found["high"]
        described += 1
    assert described > 100
