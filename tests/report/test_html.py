"""The report is one page that says what it should, escapes everything, needs no
network, and works without a mouse.
"""

import math
import re
import warnings
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from sklearn.datasets import load_iris

from cavity import (
    BadInput,
    BadOption,
    GPClassifier,
    GPRegressor,
    export,
    load,
    methods,
    report,
)
from cavity.report.sections import describe_model
from cavity.report.svg import LETTER, WIDTH, Plot
from cavity.report.templates import format_number
from support import slow, with_few_trees, without_warnings

BAD = "<script>alert(1)</script>"
WORSE = "\"'><img src=x onerror=alert(2)>&amp;\x00"
VOID = {"meta", "link", "img", "input", "br", "source"}
EMPTY = {"line", "polyline", "polygon"}  # SVG elements that close themselves


def render_page(model, X=None, y=None, **options) -> str:
    with TemporaryDirectory() as folder:
        return report.write_report(
            model, Path(folder) / "r.html", X, y, **options
        ).read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags with their attributes, the text of each, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in EMPTY
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict]:
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, *tags: str) -> str:
        parts = (self.words.get(tag, []) for tag in tags)
        return " ".join(chain.from_iterable(parts))


def table(D: int = 3) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, D))
    names = [BAD, WORSE, "$\\frac{x}$", "plain"][:D]
    y = np.array([BAD, WORSE, "third"])[
        (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int) + (X[:, 1] > 0.5)
    ]
    return pd.DataFrame(X, columns=names), y


def trained(X, y, **options) -> GPClassifier:
    with without_warnings(), with_few_trees():
        return GPClassifier(
            n_inducing=6, max_epochs=4, random_state=3, effort="fast", **options
        ).fit(X, y)


@pytest.fixture(scope="module")
def whole() -> tuple[GPClassifier, str]:
    X, y = table()
    clf = trained(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return clf, render_page(clf, X, y, title=f"About {BAD}", note=WORSE)


def test_everything_is_there(whole) -> None:
    clf, text = whole
    found = Page(text)
    heads = found.text("h2")
    for head in (
        "Warnings",
        "Classes",
        "How far to trust it",
        "Which columns matter",
        "How predictions depend on columns",
        "Rows to check",
        "Data quality",
        "About the model",
    ):
        assert head in heads
    names = {f["id"] for f in found.all("figure")}
    assert {
        f"figure-{n}" for n in ("calibration", "rejection", "dependence-0")
    } <= names
    card = found.text("th", "td")
    for fact in (
        "Method",
        "auto",
        "inducing points",
        "Kernel",
        "RBF(",
        "Seed",
        "torch",
    ):
        assert fact in card
    assert "training stopped after 4 epochs" in found.text("li") and clf.fit_warnings_
    assert f"{clf.log_marginal_likelihood_:.2f}" in card
    share = (clf.predict_novelty(table()[0]) > 0.95).mean()
    assert (
        f"{share:.1%} of these rows are more unusual than 95%" in found.text("p")
        and "Novelty" in card
    )


def test_the_headline_says_how_well_against_what_and_where_it_fails(whole) -> None:
    """The model's facts come last, folded away."""
    clf, text = whole
    X, y = table()
    right = clf.predict(X) == y
    lead = re.search(r'<div class="lead">(.*?)</div>', text, re.DOTALL).group(1)
    assert (
        f"right for {right.mean():.1%}" in lead
        and f"is right for {(y == 'third').mean():.1%}" not in lead
    )
    frequent = clf.classes_[clf.class_prior_.argmax()]
    assert (
        f"is right for {(y == frequent).mean():.1%}" in lead
        and escape(frequent) in lead
    )
    assert "the label" in lead and "fails most often on" in lead and "guessing" in lead
    missed = {c: int((~right[y == c]).sum()) for c in clf.classes_}
    assert any(
        f"{n} of {(y == c).sum()} rows are missed" in lead for c, n in missed.items()
    )
    places = [
        text.index(f'<section id="{name}"')
        for name in ("classes", "calibration", "hard", "data", "model")
    ]
    assert text.index('class="lead"') < places[0] and places == sorted(places)
    assert (
        "<details><summary>" in text[places[-1] :]
        and "Kernel" not in text[: places[-1]]
    )


def test_nine_classes_have_all_columns_and_upright_names(whole) -> None:
    """The browser's test measures that nothing needs to be scrolled sideways."""
    X, _ = table()
    names = np.array([f"a class with a long name {k}" for k in range(9)])
    labels = names[np.arange(80) % 9]
    found = Page(render_page(trained(X, labels), X, labels))
    tables = found.all("table")
    assert any(attrs.get("id") == "class-scores" for attrs in tables)
    assert any(attrs["class"] == "confusion numbers many" for attrs in tables)
    heads = [attrs.get("data-head") for attrs in found.all("td")]
    for head in ("Rows", "Predicted", "Precision", "Recall", "F1", "AUC"):
        assert heads.count(head) >= 9
    few = Page(whole[1])
    assert not any("many" in attrs["class"] for attrs in few.all("table"))


def test_warnings_of_the_fit_come_after_what_they_are_about(whole) -> None:
    _, text = whole
    order = re.findall(r'<section id="(\w+)"', text)
    assert order.index("data") < order.index("warnings") < order.index("model")


def test_numbers_of_one_page_agree(whole) -> None:
    clf, text = whole
    X, y = table()
    words = unescape(re.sub("<[^>]+>", " ", text))
    P = clf.predict_proba(X)
    place = np.searchsorted(clf.classes_, y)
    ece = report.reliability(P, place).error
    error = (P.argmax(1) != place).mean()
    assert re.search(rf"Calibration error\s+{ece:.3f}", words)
    assert f"expected calibration error {ece:.3f}" in text
    assert re.search(rf"Calibration error\s+{ece:.4g}\s", words)
    low, high = re.search(
        rf"Accuracy\s+{1 - error:.4g}\s+(\S+) to (\S+)", words
    ).groups()
    said = re.search(r"95% interval (\S+)% to (\S+)%\)", words).groups()
    np.testing.assert_allclose(
        np.float64(said), 100 * np.float64((low, high)), atol=0.06
    )


def test_labels_and_names_cannot_become_code(whole) -> None:
    _, text = whole
    found = Page(text)
    assert len(found.all("script")) == 1 and not any(
        "onerror" in attrs for _, attrs in found.tags
    )
    assert (
        "<script>alert" not in text and "<img src=x" not in text and "\x00" not in text
    )
    cells = found.text("th", "td", "span", "button")
    assert (
        BAD in cells and "\"'><img src=x onerror=alert(2)>&amp;" in cells
    )  # as text, each once escaped
    assert BAD in found.text("h1") and BAD in found.text("title")


def test_nothing_comes_from_outside(whole) -> None:
    _, text = whole
    found = Page(text)
    for tag, attrs in found.tags:
        for key in ("src", "href", "srcset", "action", "data"):
            if key in attrs:
                assert attrs[key].startswith(("data:", "#")), (tag, key)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest", text)
    (policy,) = [
        m["content"]
        for m in found.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_it_can_be_read_without_eyes_or_mouse(whole) -> None:
    _, text = whole
    found = Page(text)
    assert found.all("html")[0]["lang"] == "en"
    assert Counter(tag for tag, _ in found.tags) >= Counter(
        ["header", "nav", "main", "footer", "h1", "title"]
    )
    assert all(
        len(svg["aria-label"]) > 20 and svg["role"] == "img" for svg in found.all("svg")
    )
    assert all(th.get("scope") in ("col", "row") for th in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table")) > 3
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in found.tags:
        for key in ("aria-labelledby",):
            assert attrs.get(key, ids[0]) in ids
    anchors = [a["href"][1:] for a in found.all("a")]
    assert set(anchors) <= set(ids)
    assert all(
        box["tabindex"] == "0"
        for box in found.all("div")
        if box.get("role") == "region"
    )
    assert (
        "prefers-color-scheme:dark" in text
        and 'name="viewport"' in text
        and "@media print" in text
    )


def read_rows(text: str) -> tuple[list[str], list[list[str]]]:
    inside = re.search(r'<table id="rows".*?</table>', text, re.DOTALL).group(0)
    head, body = inside.split("</thead>")
    cells = lambda part: [
        unescape(c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", part)
    ]
    return cells(head), [cells(row) for row in body.split("</tr>") if "<td" in row]


def test_the_table_has_the_hardest_and_the_most_uncertain_rows(whole) -> None:
    clf, text = whole
    X, y = table()
    P = clf.predict_proba(X)
    own = P[np.arange(len(y)), np.searchsorted(clf.classes_, y)]
    head, rows = read_rows(text)
    numbers = [int(row[0]) for row in rows]
    hard = [n for n, row in zip(numbers, rows, strict=True) if "hardest" in row[1]]
    unsure = [n for n, row in zip(numbers, rows, strict=True) if "uncertain" in row[1]]
    assert hard == np.argsort(own, kind="stable")[:15].tolist() and len(
        set(numbers)
    ) == len(numbers)
    assert set(unsure) == set(np.argsort(P.max(1), kind="stable")[:15].tolist())
    for number, row in zip(numbers, rows, strict=True):
        assert f"({P[number].max():.1%})" in row[2]
        right = clf.predict(X[number : number + 1])[0] == y[number]
        assert (
            row[3] == "right"
            if right
            else row[3].startswith("wrong") and f"({own[number]:.1%})" in row[3]
        )
        assert any(
            f" = {value:.6g} (" in row[head.index("Moved by")]
            for value in X.iloc[number]
        )


def test_without_rows_there_is_what_the_model_knows_of_itself(whole) -> None:
    clf, _ = whole
    text = render_page(clf)
    found = Page(text)
    assert not found.all("figure") and "Data quality" not in found.text("h2")
    assert str(clf.estimate_) in text
    assert f"{clf.feature_importance_.max():.3f}" in found.text("td")


def test_without_labels_there_are_rows_but_no_scores(whole) -> None:
    clf, _ = whole
    text = render_page(clf, table()[0])
    found = Page(text)
    assert found.all("table") and "Accuracy" not in found.text("dt")
    assert (
        "figure-calibration" not in {f["id"] for f in found.all("figure")}
        and "confusion" not in text[text.index("<body") :]
    )


def test_curves_show_the_class_that_is_asked_for(whole) -> None:
    clf, text = whole
    X, y = table()
    names = {f["id"] for f in Page(text).all("figure")}
    assert "figure-reliability" in names and "figure-gain" not in names
    shown = render_page(clf, X, y, positive="third")
    names = {f["id"] for f in Page(shown).all("figure")}
    assert {"figure-gain", "figure-precision"} <= names
    found = report.detection(clf.predict_proba(X), y, "third", clf.classes_)
    assert f"Average precision {found.average_precision:.2f}" in shown
    with pytest.raises(BadOption, match="'fourth'"):
        render_page(clf, X, y, positive="fourth")


def test_of_two_classes_the_rarer_one_is_drawn_unless_asked_for() -> None:
    X, y = table()
    rare = np.where(y == "third", "a rare one", "b")
    clf = trained(X, rare)
    for positive in (None, "b"):
        text = render_page(clf, X, rare, positive=positive)
        name = positive or "a rare one"
        assert f"probability of {name}" in Page(text).text("text")
        assert set(re.findall(r"</span>([^<]*)</li>", text)) == {name}


def test_a_raw_table_of_any_script_is_shown_as_it_is() -> None:
    """Original values, units and names; categories, dates and missing cells; columns
    that are set aside.
    """
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, 90)
    rows = pd.DataFrame(
        {
            "年齢": np.where(rng.random(90) < 0.2, np.nan, age),
            "都市": rng.choice(["東京", "大阪"], 90),
            "日付": pd.Timestamp("2021-04-01")
            + pd.to_timedelta(rng.integers(0, 500, 90), unit="D"),
            "番号": [f"A-{i}-{i * 7}" for i in range(90)],
        }
    )
    y = np.where(age > 45, "はい", "いいえ")
    clf = trained(rows, y)
    text = render_page(clf, rows, y, row_numbers=np.arange(90) + 1001)
    found = Page(text)
    head, cells = read_rows(text)
    moved = head.index("Moved by")
    assert not any("番号" in row[moved] for row in cells)
    for row in cells:
        original = rows.iloc[int(row[0]) - 1001]
        age = "(missing)" if np.isnan(original["年齢"]) else f"{original['年齢']:g}"
        known = {
            "都市": original["都市"],
            "日付": str(original["日付"].date()),
            "年齢": age,
        }
        assert {part.rsplit(" (", 1)[0] for part in row[moved].split("; ")} <= {
            f"{k} = {v}" for k, v in known.items()
        }
    assert f"{int(rows['年齢'].isna().sum())} (" in found.text(
        "td"
    ) and "identifiers" in found.text("td")
    assert (
        "2021-04-" in found.text("td")
        and min("はい", "いいえ", key=list(y).count) in found.text("li")  # the rarer
        and "東京" in found.text("text")
    )


def test_ticks_stay_inside_their_picture() -> None:
    drawn = Plot((0, 2_000_000), (-1_000_000, 1), labels=("x", "y")).render(
        "numbers of seven digits"
    )
    ticks = re.findall(
        r'<text x="([\d.]+)"[^>]*text-anchor="(middle|end)">([-\d,]+)<', drawn
    )
    assert {"2,000,000", "-1,000,000"} <= {text for *_, text in ticks}
    for x, anchor, text in ticks:
        width = 6 * len(text)  # of digits at 12 px
        low = float(x) - width * (0.5 if anchor == "middle" else 1)
        assert (0 if anchor == "middle" else 18) <= low and low + width <= WIDTH


def test_a_regressor_has_the_same_page() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"size [m²]": rng.normal(100, 20, 120), "kind": rng.choice(["flat", BAD], 120)}
    )
    y = (
        3 * rows["size [m²]"].to_numpy()
        + 50 * (rows["kind"] == "flat")
        + 10 * rng.normal(size=120)
    )
    with without_warnings():
        gp = GPRegressor("vi", n_inducing=15, max_epochs=10, random_state=0).fit(
            rows[:80], y[:80]
        )
    text = render_page(gp, rows[80:], y[80:])
    found = Page(text)
    head, cells = read_rows(text)
    mean, std = gp.predict(rows[80:], return_std=True)
    off = y[80:] - mean
    assert f"{np.sqrt((off**2).mean()):.4g}" in found.text("strong")
    assert f"{(np.abs(off) <= 1.959963984540054 * std).mean():.1%}" in found.text(
        "strong"
    )
    assert {"figure-scatter", "figure-coverage", "figure-dependence-1"} <= {
        f["id"] for f in found.all("figure")
    }
    assert (
        int(cells[0][0]) == np.argmax(np.abs(off / std)) and "<script>alert" not in text
    )
    size = rows["size [m²]"][80 + int(cells[0][0])]
    assert f"size [m²] = {size:.6g} (" in cells[0][head.index("Moved by")]
    assert "guessing the mean" in text and "Root mean squared error" in text


def test_a_model_that_was_saved_and_loaded_has_the_same_page_and_the_same_graph(
    tmp_path,
) -> None:
    X, y = table(2)
    clf = trained(X, y)
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for before, after in zip(
        clf.predict_uncertainty(X), again.predict_uncertainty(X), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert render_page(clf, X, y) == render_page(again, X, y)
    assert again.fit_warnings_ == clf.fit_warnings_ and escape(
        clf.fit_warnings_[0]
    ) in render_page(again)
    graphs = [
        export.make_model(model).graph.SerializeToString(deterministic=True)
        for model in (clf, again)
    ]
    assert graphs[0] == graphs[1]


def test_bad_input_is_told_in_words(whole) -> None:
    clf, _ = whole
    X, y = table()
    with pytest.raises(BadInput, match="without rows"):
        render_page(clf, y=y)
    with pytest.raises(BadInput, match="'unheard'"):
        render_page(clf, X, ["unheard"] * len(X))
    with pytest.raises(BadInput, match="label"):
        render_page(clf, X, y[:-1])


@pytest.mark.parametrize(
    "method",
    [slow("pep"), slow("vi"), methods.REP(epsilon=0.05), slow("laplace")],
    ids=str,
)
def test_the_page_names_any_method_and_its_options(method, tmp_path):
    X, y = load_iris(return_X_y=True)
    with without_warnings():
        clf = GPClassifier(
            method, n_inducing=5, max_epochs=1, random_state=0, device="cpu"
        ).fit(X, y)
    assert dict(describe_model(clf))["Method"].startswith(f"{method}, ")


def test_texts_of_ticks_do_not_meet() -> None:
    for left in (0, 130):  # 130: beside the names of levels
        for ends in (
            (175_000.0, 185_000.0),
            (0.0, 3_000_000.0),
            (0.0, 1.0),
            (-1e6, 1e6),
        ):
            plot = Plot(ends, (0.0, 1.0), labels=("x", "y"), left=left)
            found = [
                (plot.x(value), 0.5 * LETTER * len(text))
                for value, text in plot.ticks_across()
            ]
            assert len(found) > 1
            assert all(
                x + half < y - other for (x, half), (y, other) in pairwise(found)
            )


def test_numbers_have_separators_of_thousands_and_no_needless_exponents() -> None:
    given = {
        21_487.3: "21,490",
        1.804e5: "180,400",
        6.02e4: "60,200",
        4118.2: "4118",
        -0.00123456: "-0.001235",
    }
    assert {value: format_number(value, 4) for value in given} == given
    assert format_number(76_423.1) == "76,423.1" and format_number(math.nan) == "–"
