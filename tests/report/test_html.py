"""The report is one page that says what it should, escapes everything, needs no network, and works without a mouse."""

import re
import warnings
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from cavity import BadFile, BadInput, GPClassifier, export, load, methods, report
from cavity.kernels import RBF, Linear
from cavity.report.html import escape_text, render_page
from cavity.report.model_card import describe_model

BAD = "<script>alert(1)</script>"
WORSE = "\"'><img src=x onerror=alert(2)>&amp;\x00"
VOID = {"meta", "link", "img", "input", "br", "source"}


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

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict]:
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, *tags: str) -> str:
        return " ".join(part for tag in tags for part in self.words.get(tag, []))


def table(D: int = 3) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, D))
    names = [BAD, WORSE, "$\\frac{x}$", "plain"][:D]
    y = np.array([BAD, WORSE, "third"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    return pd.DataFrame(X, columns=names), y


def trained(X, y, **options) -> GPClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GPClassifier(n_inducing=6, max_epochs=4, random_state=3, effort="fast", **options).fit(X, y)


@pytest.fixture(scope="module")
def whole() -> tuple[GPClassifier, str]:
    X, y = table()
    clf = trained(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return clf, render_page(clf, X, y, title=f"About {BAD}")


def test_everything_is_there(whole) -> None:
    clf, text = whole
    found = Page(text)
    heads = found.text("h2")
    for head in (
        "Warnings",
        "Model card",
        "Data",
        "Learning curve",
        "Calibration",
        "Confusion",
        "certain rows",
    ):
        assert head in heads
    names = {f["id"] for f in found.all("figure")}
    assert names == {
        f"figure-{n}" for n in ("learning", "calibration", "rejection", "confusion", "relevance")
    }
    card = found.text("th", "td")
    for fact in (
        "Method",
        "auto",
        "Inducing points",
        "Kernel",
        "RBF(",
        "Size of the model",
        "Seed",
        "torch",
    ):
        assert fact in card
    assert "training stopped after 4 epochs" in found.text("li") and clf.fit_warnings_
    assert f"{clf.log_marginal_likelihood_:,.2f}" in card


def test_labels_and_names_cannot_become_code(whole) -> None:
    _, text = whole
    found = Page(text)
    assert len(found.all("script")) == 1 and not any("onerror" in attrs for _, attrs in found.tags)
    assert "<script>alert" not in text and "<img src=x" not in text and "\x00" not in text
    cells = found.text("th", "td")
    assert BAD in cells and "\"'><img src=x onerror=alert(2)>&amp;" in cells  # as text, each once escaped
    assert BAD in found.text("h1") and BAD in found.text("title")


def test_nothing_comes_from_outside(whole) -> None:
    _, text = whole
    found = Page(text)
    for tag, attrs in found.tags:
        for key in ("src", "href", "srcset", "action", "data"):
            if key in attrs:
                assert attrs[key].startswith(("data:", "#")), (tag, key)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest", text)
    (policy,) = [m["content"] for m in found.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_it_can_be_read_without_eyes_or_mouse(whole) -> None:
    _, text = whole
    found = Page(text)
    assert found.all("html")[0]["lang"] == "en"
    assert Counter(tag for tag, _ in found.tags) >= Counter(
        ["header", "nav", "main", "footer", "h1", "title"]
    )
    assert all(len(img["alt"]) > 20 for img in found.all("img"))
    assert all(th.get("scope") in ("col", "row") for th in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table")) > 3
    labelled = {label["for"] for label in found.all("label")}
    assert labelled == {field["id"] for field in found.all("input")}
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in found.tags:
        for key in ("aria-labelledby", "aria-controls", "for"):
            assert attrs.get(key, ids[0]) in ids
    anchors = [a["href"][1:] for a in found.all("a")]
    assert set(anchors) <= set(ids)
    assert all(box["tabindex"] == "0" for box in found.all("div") if box.get("role") == "region")
    assert "prefers-color-scheme:dark" in text and 'name="viewport"' in text
    assert all(s["media"] == "(prefers-color-scheme: dark)" for s in found.all("source"))


def test_the_table_has_the_least_and_the_most_certain_rows(whole) -> None:
    clf, text = whole
    X, y = table()
    P = clf.predict_proba(X).max(1)
    body = re.search(r'<table id="certain".*?<tbody>(.*?)</tbody>', text, re.DOTALL).group(1)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>") if row]
    numbers = [int(row[0]) for row in rows]
    assert numbers[0] == P.argmin() and numbers[15] == P.argmax() and len(set(numbers)) == 30
    for number, row in zip(numbers, rows, strict=True):
        assert row[3] == f"{P[number]:.4f}"
        assert row[5] == ("right" if clf.predict(X[number : number + 1])[0] == y[number] else "wrong")
    parts = clf.predict_uncertainty(X.iloc[numbers])
    assert [row[8] for row in rows] == [f"{value:.4f}" for value in parts.epistemic]


def test_without_rows_there_is_the_model_alone(whole) -> None:
    clf, _ = whole
    found = Page(render_page(clf))
    assert {f["id"] for f in found.all("figure")} == {"figure-learning", "figure-relevance"}
    assert "Data" not in found.text("h2") and not found.all("input")


def test_without_labels_there_are_rows_but_no_scores(whole) -> None:
    clf, _ = whole
    found = Page(render_page(clf, table()[0]))
    assert found.all("input") and "Accuracy" not in found.text("th")
    assert "figure-confusion" not in {f["id"] for f in found.all("figure")}


def test_two_columns_have_decision_regions_and_a_kernel_may_lack_relevance() -> None:
    X, y = table(2)
    clf = trained(X, y == "third", kernel=RBF() + Linear(), learn=())
    figures = {f["id"] for f in Page(render_page(clf, X.iloc[:1], (y == "third")[:1])).all("figure")}
    assert "figure-regions" in figures
    clf.feature_relevance_ = None
    assert "figure-relevance" not in render_page(clf)


def test_a_model_that_was_saved_and_loaded_has_the_same_page_and_the_same_graph(tmp_path) -> None:
    X, y = table(2)
    clf = trained(X, y)
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for before, after in zip(clf.predict_uncertainty(X), again.predict_uncertainty(X), strict=True):
        np.testing.assert_array_equal(before, after)
    figures = [Page(render_page(model, X, y)).all("figure") for model in (clf, again)]
    assert figures[0] == figures[1] and len(figures[0]) == 6
    assert again.fit_warnings_ == clf.fit_warnings_ and escape_text(clf.fit_warnings_[0]) in render_page(
        again
    )
    graphs = [export.onnx_model(model).graph.SerializeToString(deterministic=True) for model in (clf, again)]
    assert graphs[0] == graphs[1]


def test_it_is_written_whole_or_not_at_all(whole, tmp_path) -> None:
    clf, _ = whole
    path = tmp_path / "report.html"
    assert report.write_report(clf, path) == path
    assert path.read_text(encoding="utf-8").endswith("</html>\n") and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(BadFile, match="could not be written"):
        report.write_report(clf, tmp_path / "no" / "report.html")


def test_bad_input_is_told_in_words(whole) -> None:
    clf, _ = whole
    X, y = table()
    with pytest.raises(BadInput, match="without rows"):
        render_page(clf, y=y)
    with pytest.raises(BadInput, match="'unheard'"):
        render_page(clf, X, ["unheard"] * len(X))
    with pytest.raises(BadInput, match="one label per row"):
        render_page(clf, X, y[:-1])
    with pytest.raises(BadInput, match="text"):
        render_page(clf, X.astype(str).assign(**{BAD: "x"}), y)
    with pytest.raises(BadInput, match="3 columns"):
        render_page(clf, X, y, names=["a"])


@pytest.mark.parametrize("method", ["pep", "vi", methods.REP(epsilon=0.05), "laplace"], ids=str)
def test_the_page_names_any_method_and_its_options(method, tmp_path):
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(method, n_inducing=5, max_epochs=1, random_state=0, device="cpu").fit(X, y)
    assert dict(describe_model(clf))["Method"] == str(method)
