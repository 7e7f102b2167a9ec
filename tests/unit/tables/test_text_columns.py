"""Columns of many texts: used by their levels or by similarity if held-out rows say
that it pays, else ignored.
"""

import json
from collections import Counter
from itertools import chain

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity import GPClassifier, Preparation
from cavity.tables.columns.column_kinds import Category
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.columns.text_columns import _count_grams
from cavity.tables.columns.text_kind import (
    BLOCK,
    GRAM_SIZES,
    Text,
    find_grams,
    normalize_text,
)
from support import with_few_trees

FAMILIES = ("AB", "KT", "MX", "PR", "QZ", "TL")


def make_codes(n, seed=0):
    """Codes such as KT-0421, nearly all different; the family predicts the class."""
    rng = np.random.default_rng(seed)
    family = rng.integers(len(FAMILIES), size=n)
    codes = [f"{FAMILIES[f]}-{rng.integers(10_000):04d}" for f in family]
    y = np.where(
        rng.random(n) < np.array([0.05, 0.95, 0.1, 0.9, 0.05, 0.95])[family],
        "yes",
        "no",
    )
    return pd.DataFrame({"code": codes, "x": rng.normal(size=n)}), y


@pytest.fixture(scope="module")
def fitted():
    X, y = make_codes(400)
    with with_few_trees():
        return GPClassifier(effort="fast", max_epochs=20, random_state=0).fit(X, y)


def test_codes_with_informative_families_are_used_even_where_all_differ(fitted):
    X, y = make_codes(1000, seed=1)
    p = fitted.predict_proba(X)[np.arange(1000), (y == "yes").astype(int)]
    assert -np.log(p).mean() < 0.35  # class frequencies: .69; the rule itself: .25
    assert "code" in fitted.preparation_.inputs


def test_an_onnx_graph_reads_texts_as_the_model_does(fitted, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    path = cavity.export.onnx(fitted, tmp_path / "m.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    X = make_codes(20, seed=2)[0]
    X.loc[:2, "code"] = ["kt-0421", "new.*", "AB  17"]
    inputs = {"code": X[["code"]].to_numpy(dtype=object), "x": X[["x"]].to_numpy()}
    found = session.run(["probabilities"], inputs)[0]
    np.testing.assert_allclose(found, fitted.predict_proba(X), rtol=1e-8)


def learn(n=400, **columns):
    """Return the preparation of texts, with labels that depend on nothing."""
    return Preparation().fit(
        {**columns, "x": np.arange(n) / 7}, np.random.default_rng(9).integers(2, size=n)
    )


def test_identifiers_that_tell_nothing_stay_ignored():
    rng = np.random.default_rng(0)
    numbers = [f"{rng.integers(2**62):016x}" for _ in range(400)]
    with pytest.warns(UserWarning, match=r"'code'.*identifiers"):
        clf = GPClassifier("sep", n_inducing=5, max_epochs=1, random_state=0).fit(
            pd.DataFrame({"code": numbers, "x": np.arange(400.0)}), np.arange(400) % 2
        )
    assert clf.preparation_.inputs == ("x",)
    prepare = learn(
        code=numbers,
        large=[f"7e{i}" if i % 3 == 0 else f"q{i}" for i in range(4000, 4400)],
        names=[f"u{i}q" for i in rng.integers(400, size=400)],
    )
    assert {"code", "large", "names"} <= {c.name for c in prepare.ignored_}


def test_without_labels_for_all_rows_nothing_chooses():
    X, y = make_codes(400)
    assert Preparation().fit(X, y).inputs == ("code", "x")
    for wrong in (
        None,
        y[:-1],
        [[1], [1, 2]] * 200,
        np.ones((400, 2)),
    ):  # the fit itself refuses these
        assert Preparation().fit(X, wrong).inputs == ("x",)


def test_a_text_has_the_same_bits_in_any_block():
    """A pass over a file is compared with the first one, whatever its pieces; products
    of two threads had other last bits.
    """
    X, y = make_codes(600)
    text = Preparation().fit(X, y).columns_[0]
    cells = [*X["code"], "", "Z"]
    alone = np.concatenate([text.encode_texts([cell]) for cell in cells])
    np.testing.assert_array_equal(text.encode_texts(cells), alone)


def cut(text, n):
    """Return the n-grams of a text."""
    return {text[i : i + n] for i in range(len(text) - n + 1)}


def test_n_grams_of_all_texts_at_once_are_those_of_each():
    rng = np.random.default_rng(0)
    drawn = rng.choice([*"abc  \n\tÄß𝔸"], (3000, 60))
    texts = ["".join(letters[: rng.integers(60)]) for letters in drawn]
    assert sum(map(len, texts)) > BLOCK  # several blocks are encoded
    lines = [normalize_text(text) for text in texts]
    sets = [{x}.union(*(cut(x, n) for n in GRAM_SIZES)) for x in lines]
    grams = sorted(set().union(*sets))
    number = Counter(chain.from_iterable(sets))
    assert {g: n for g, n in _count_grams(lines).items() if n > 1} == {
        g: n for g, n in number.items() if n > 1
    }
    grams = [*grams[::30], "\n", "a\n", "q", ""]  # also what no text has
    expected = [[gram in one for gram in grams] for one in sets]
    np.testing.assert_array_equal(np.concatenate([*find_grams(texts, grams)]), expected)


@pytest.mark.parametrize("kind", ["number", "label"])
def test_the_choice_is_the_same_for_a_frame_its_batches_a_target_column_and_a_file(
    tmp_path, kind
):
    X, y = make_codes(600)
    y = np.where(y == "yes", 5.0, 0.0) + np.arange(600) / 600 if kind == "number" else y
    table = X.assign(y=y)
    parts = [(X[:250], y[:250]), (X[250:], y[250:])]
    made = Preparation().fit(X, y).columns_[0]
    assert isinstance(made, Text)
    assert Preparation().fit_batches(parts).columns_[0] == made
    kinds = {"y": "auto"}
    assert (
        Preparation("y", kinds=kinds)
        .fit_batches([table[:100], table[100:]])
        .columns_[0]
        == made
    )
    table.to_parquet(tmp_path / "t.parquet")
    options = {"n_inducing": 5, "max_epochs": 1}
    model = (
        GPClassifier("sep", **options)
        if kind == "label"
        else cavity.GPRegressor("svi", **options)
    )
    assert (
        model.fit(str(tmp_path / "t.parquet"), target="y").preparation_.columns_[0]
        == made
    )


def test_a_category_stays_one_unless_similarity_is_clearly_better():
    X, y = make_codes(1200)
    X["code"] = X["code"].str[:5]  # a family and two digits, each about twice
    assert isinstance(Preparation().fit(X).columns_[0], Category)
    assert isinstance(Preparation().fit(X, y).columns_[0], Text)
    X = X[:600]
    rng = np.random.default_rng(0)
    X["code"] = np.array([f"{i:x}" for i in rng.integers(2**40, size=60)])[
        np.arange(600) % 60
    ]
    assert isinstance(
        Preparation().fit(X, rng.integers(2, size=60)[np.arange(600) % 60]).columns_[0],
        Category,
    )


def test_missing_cells_and_new_texts_are_encoded():
    X, y = make_codes(400)
    X.loc[::10, "code"] = None
    prepare = Preparation().fit(X, y)
    code = prepare.columns_[0]
    assert (
        code.missing
        and "some missing" in code.describe()
        and prepare.names[-2] == "code missing"
    )
    rows = prepare.transform(
        pd.DataFrame({"code": [None, "KT-77777", "kt-77777", "KT-0000", "§"], "x": 0.0})
    )
    width = len(code.features) - 1
    assert (
        not rows[0, :width].any() and rows[0, width] == 1 and not rows[4, :width].any()
    )
    np.testing.assert_array_equal(rows[1], rows[2])
    near, far = (
        np.linalg.norm(rows[1] - prepare.transform({"code": [t], "x": [0.0]}))
        for t in ("KT-7001", "AB-1200")
    )
    assert near < far


def test_a_model_file_keeps_the_texts_and_rejects_damage(fitted, tmp_path):
    fitted.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity")
    X = make_codes(50, seed=3)[0]
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.preparation_.columns_ == fitted.preparation_.columns_
    stored = fitted.preparation_.to_json()
    assert len(json.dumps(stored)) < 100_000
    for damage in (
        {"weights": "AAAA"},
        {"weights": "AAA"},
        {"grams": []},
        {"examples": [3]},
        {"examples": []},
    ):
        broken = json.loads(json.dumps(stored))
        broken["columns"][0] |= damage
        with pytest.raises(cavity.BadFile):
            ColumnEncoder.from_json(broken)


def test_a_quarter_of_the_targets_with_a_single_row_has_no_fold():
    """The loss of such a row was whatever the memory held."""
    targets = np.r_[-np.arange(1.0, 25.0), np.zeros(100), 1.0]
    texts = [
        f"{'left' if target > 0 else 'right'} {i}" for i, target in enumerate(targets)
    ]
    found = Preparation().fit({"text": texts, "x": np.arange(125.0) ** 2}, targets)
    assert found.inputs == ("x",) and found.ignored_[0].name == "text"
