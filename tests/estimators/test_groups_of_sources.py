"""Groups by a column: whole groups of a source, or of rows on several ranks, judge a
model that none of their rows trained.
"""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from cavity import GPClassifier, load
from cavity.errors import BadInput
from cavity.fitting.cases import choose_apart
from cavity.fitting.options import nest
from cavity.tables.array_sources import Arrays
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.pieces import JUDGES, TRAINS
from cavity.tables.table import GivenRows
from cli.running import SINGLE, SINGLE_FLAGS, fit_in_pieces, run
from distributed.ranks import run_ranks
from estimators.test_groups_of_rows import make_groups

OPTIONS = {
    "effort": "fast",
    "n_inducing": 20,
    "max_epochs": 20,
    "random_state": 0,
    "device": "cpu",
}
N_GROUPS = 100


def as_table(X, y, groups, n=None):
    columns = {f"x{j}": X[:n, j] for j in range(X.shape[1])}
    names = [f"patient {g}" for g in groups[:n]]
    return pa.table(
        columns | {"label": np.array(["no", "yes"])[y[:n]], "patient": names}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of several row groups, in a random order of rows, so that every group
    has rows in both.
    """
    folder = tmp_path_factory.mktemp("rows")
    X, y, groups = make_groups(N_GROUPS, 10)
    order = np.random.default_rng(1).permutation(len(y))
    table = as_table(X[order], y[order], groups[order])
    for i, part in enumerate((table.slice(0, 600), table.slice(600))):
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=150)
    return folder


def fit(X, *given, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GPClassifier(**OPTIONS).fit(X, *given, **more)


def check_estimate(clf, labels):
    new, y, _ = make_groups(2000, 1, seed=1)
    loss = -np.log(clf.predict_proba(new)[np.arange(2000), y]).mean()
    assert abs(clf.estimate_.log_loss - loss) < 2 * clf.estimate_.standard_error, (
        clf.estimate_,
        loss,
    )
    assert clf.classes_.tolist() == labels and clf.n_features_in_ == 5
    assert clf.estimate_.rows == 10 * N_GROUPS / 5 and not clf.estimate_.seen
    assert f"{N_GROUPS} groups kept together" in str(
        clf.plan_
    ) and "groups kept together" in str(clf.estimate_)


def test_groups_by_a_column_of_files_judge_the_model_by_new_groups(folder):
    alone = fit(folder, target="label")
    check_estimate(fit(folder, target="label", groups="patient"), ["no", "yes"])
    assert alone.n_features_in_ == 6  # without groups= the column is a feature


def test_near_copies_in_files_without_groups_raise_a_warning(folder):
    table = pq.read_table(folder).drop_columns("patient")
    with pytest.warns(UserWarning, match="copies"):
        GPClassifier(**OPTIONS).fit(table, target="label")


def test_groups_of_rows_by_number():
    X, y, groups = make_groups(N_GROUPS, 10)
    check_estimate(fit(Arrays(X, y, group=groups)), [0, 1])


def test_rows_that_are_set_apart_train_nothing(tmp_path):
    """The model of a source with groups is that of the source without those that judge
    it, whatever these rows say.
    """
    X, y, groups = make_groups(N_GROUPS, 10)
    options = nest(
        calibration="temperature", learn=(), n_inducing=9, max_epochs=2, random_state=0
    )
    clf = GPClassifier("sep", **options)
    models = []
    for shift in (0.0, 1.0, 2.0):
        judges = (
            choose(clf, Arrow(as_table(X, y, groups), "label", group="patient")).role
            == JUDGES
        )
        moved = X.copy()
        moved[judges] += shift
        models.append(
            clone(clf).fit(as_table(moved, y, groups), target="label", groups="patient")
        )
    assert judges.sum() == len(y) / 5 and len(set(groups[judges])) == N_GROUPS / 5
    first, *others = models
    for other in others:
        np.testing.assert_array_equal(
            first.predict_latent(X)[0], other.predict_latent(X)[0]
        )
        assert first.estimate_.log_loss != other.estimate_.log_loss


def choose(clf, source, **options):
    return choose_apart(clf._make_request(GivenRows(None)), source, **options)


def test_of_many_rows_some_judge_and_every_class_has_a_group_to_train_on():
    rng = np.random.default_rng(0)
    groups = rng.integers(30, size=3000)
    y = np.where(groups == 7, "rare", np.array(["a", "b"])[groups % 2])
    source = Arrays(np.zeros((3000, 1)), y, group=groups)
    found = choose(GPClassifier(random_state=0), source, most=50)
    apart = set(groups[found.role != TRAINS])
    judges = found.role == JUDGES
    assert 5 <= len(apart) <= 6 and 7 not in apart and found.n_groups == 30
    assert (
        np.array_equal(np.isin(groups, list(apart)), found.role != TRAINS)
        and judges.sum() == 50
    )
    assert len(found.group) == 50 and len(set(found.group)) == len(
        set(groups[judges])
    ) == len(apart)


def fit_on_a_rank(folder):
    """Fit models to files and to rows in memory on one rank or on several; return what
    they say.
    """
    X, y, groups = make_groups(N_GROUPS, 10)
    more = {"n_inducing": 9, "max_epochs": 3}
    small = GPClassifier(
        "sep", calibration="temperature", batch_size=100, random_state=0, **more
    )
    named = GPClassifier("ep", calibration="temperature", **OPTIONS | more)
    models = {
        "files": fit(folder, target="label", groups="patient"),
        "files, batches": small.fit(folder, target="label", groups="patient"),
        "memory": fit(X, y, groups=groups),
        "memory, no more fits": named.fit(X, y, groups=groups),
    }
    return {
        name: (m.estimate_, m.plan_.judging.how, m.predict_proba(X))
        for name, m in models.items()
    }


def test_several_ranks_keep_groups_together_as_one_does(folder):
    alone = fit_on_a_rank(folder)
    ranks = run_ranks(fit_on_a_rank, folder)
    assert alone["memory, no more fits"][1] == "leave-one-out"
    for name, (estimate, how, p) in alone.items():
        for found, also, q in (rank[name] for rank in ranks):
            assert (also, found.how) == (how, estimate.how)
            np.testing.assert_array_equal(q, ranks[0][name][2])
            np.testing.assert_allclose(q, p, atol=1e-6)
            np.testing.assert_allclose(found.log_loss, estimate.log_loss, atol=1e-6)


def test_a_large_table_on_the_command_line_keeps_groups_together(tmp_path, capsys):
    """Streamed as if it were larger than memory; rows without a label are in no group."""
    X, y, groups = make_groups(N_GROUPS, 10)
    frame = as_table(X, y, groups).to_pandas()
    frame.loc[::13, "label"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    flags = {"target": "label", "group": "patient", **SINGLE_FLAGS}
    fit_in_pieces(tmp_path / "t.csv", out=tmp_path / "m.cavity", **flags)
    assert "groups kept together" in capsys.readouterr().out
    model = load(tmp_path / "m.cavity")
    count = frame.dropna().patient.value_counts()
    assert not any("patient" in name for name in model.preparation_.names)
    assert 20 * count.min() <= model.estimate_.rows <= 20 * count.max()


def test_compare_counts_groups_once(tmp_path):
    X, y, groups = make_groups(60, 10)
    pq.write_table(as_table(X, y, groups), tmp_path / "t.parquet")
    for name, columns in (("a", ()), ("b", ("--ignore", "x1", "--ignore", "x2"))):
        options = ("--target", "label", "--group", "patient", *columns, *SINGLE)
        assert (
            run(
                "fit", tmp_path / "t.parquet", *options, "--out", tmp_path / name
            ).exit_code
            == 0
        )
    files = tmp_path / "a", tmp_path / "b", tmp_path / "t.parquet"
    done = run("compare", *files)  # the column of groups is that of the training
    assert "60 groups" in done.output
    found = json.loads(run("compare", *files, "--json").stdout)
    others = json.loads(run("compare", *files, "--group", "label", "--json").stdout)
    assert found["nll"]["difference"] == others["nll"]["difference"]
    assert found["nll"]["standard_error"] != others["nll"]["standard_error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": "nobody"}, "groups='nobody' is not a column"),
        ({"groups": np.arange(10)}, "is not a column"),
        ({"groups": "label"}, "groups='label' is the target"),
        ({"groups": "kind"}, "names 2 groups, too few"),
    ],
)
def test_groups_that_a_source_cannot_have_are_refused(change, message, folder):
    table = pq.read_table(folder)
    table = table.append_column("kind", table["label"])
    with pytest.raises(BadInput, match=message):
        GPClassifier("sep", calibration="temperature").fit(
            table, target="label", **change
        )
