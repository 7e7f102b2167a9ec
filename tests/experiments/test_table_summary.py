"""Tables and curve: every method has the same rows, and the arithmetic of the summaries
is what their words say.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import (
    row_curve,
    table_data,
    table_fits,
    table_runs,
    table_summary,
    table_text,
)
from experiments.table_summary import Result


def result(
    method: str, nll: float, table: str = "a", seed: int = 0, **more: object
) -> Result:
    facts = dict(
        collection="raw",
        use="report",
        rows=80,
        columns=3,
        classes=2,
        tested=20,
        error=0.1,
    )
    facts |= {"se": 0.03, "fit": 1.0, "predict": 0.1, "machine": "x", "code": ""}
    return Result(
        **facts | {"method": method, "nll": nll, "table": table, "seed": seed} | more
    )


def record(method: str, losses: list[float], **more: object) -> dict[str, object]:
    packed = table_fits.pack_losses(np.array(losses))
    facts = result(method, float(np.mean(losses)), **more)._asdict()
    return {k: v for k, v in facts.items() if not k.startswith(("se_", "estimate"))} | {
        "losses": packed
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A collection of one raw table: a noisy rule of a number and a text."""
    rng = np.random.default_rng(0)
    number, text = rng.normal(size=200), rng.choice(["x", "y", None], 200)
    target = np.where(
        number + (text == "x") + 0.5 * rng.normal(size=200) > 0, "yes", "no"
    )
    (tmp_path / "raw").mkdir()
    frame = pd.DataFrame({"a [1]": number, "text": text, "target": target})
    frame.to_csv(tmp_path / "raw" / "small.csv.gz", index=False)
    (tmp_path / "raw" / "index.json").write_text(
        json.dumps({"small": {"rows": 200, "use": "report"}})
    )
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    return tmp_path


def test_training_rows_of_a_smaller_split_are_the_first_of_the_larger_one() -> None:
    X, y = pd.DataFrame({"x": np.arange(100.0)}), np.arange(100) % 3
    whole, part = (table_data.split_table(X, y, 3, rows) for rows in (0, 30))
    assert len(whole.train) == 80 and not set(whole.train) & set(whole.test)
    np.testing.assert_array_equal(part.train, whole.train[:30])
    np.testing.assert_array_equal(part.test, whole.test)
    rare = table_data.split_table(X, np.where(np.arange(100) == whole.test[0], 9, y), 3)
    np.testing.assert_array_equal(
        rare.test, whole.test[1:]
    )  # no training row has that class


def test_losses_are_those_of_the_test_rows_and_survive_packing(folder) -> None:
    job = {"collection": "raw", "table": "small", "seed": 0}
    prior, lr = (
        table_fits.run_job(job | {"method": method}) for method in ("prior", "lr")
    )
    data = table_data.split_table(*table_data.read_table("raw", "small"), 0)
    share = np.bincount(data.y[data.train]) / len(data.train)
    assert prior["nll"] == pytest.approx(-np.log(share[data.y[data.test]]).mean())
    assert lr["nll"] < prior["nll"] and lr["tested"] == 40
    assert table_fits.unpack_losses(lr["losses"]).mean() == pytest.approx(
        lr["nll"], rel=1e-3
    )


def test_a_command_runs_what_is_missing_and_joins_it_with_the_rest(
    folder, capsys
) -> None:
    words = [
        "--methods",
        "prior,lr,hgb",
        "--seeds",
        "0",
        "--out",
        str(folder / "out.jsonl"),
    ]
    assert table_runs.main(words) == 0
    assert "| logistic regression | 1 | 1.00 |" in capsys.readouterr().out
    assert table_runs.main(words) == 0
    assert "0 fits to do, 3 done before" in capsys.readouterr().out


@pytest.mark.slow
def test_a_fit_that_fails_is_recorded_and_tried_again(folder, capsys) -> None:
    words = [
        "--methods",
        "nonsense",
        "--seeds",
        "0",
        "--out",
        str(folder / "out.jsonl"),
    ]
    table_runs.main(words)
    assert "nonsense" in table_runs.read_records([folder / "out.jsonl"])[0]["fail"]
    table_runs.main(words)
    assert capsys.readouterr().out.count("1 fits to do") == 2


@pytest.mark.parametrize("member", table_fits.MEMBERS)
def test_a_pool_without_a_member_has_all_others(member, monkeypatch) -> None:
    from cavity.fitting import planning
    from cavity.pool import members

    recipes = (
        members.Frequencies,
        members.Linear,
        members.Boosting,
        members.Networks,
        members.Forests,
    )
    monkeypatch.setattr(planning, "make_members", lambda: list(recipes))
    table_fits.Ours(f"default-{member}")
    left = [recipe.name for recipe in planning.make_members()]
    assert {recipe.name for recipe in recipes} - set(left) == {
        table_fits.MEMBERS[member]
    }
    assert len(left) == len(recipes) - 1


def test_ratios_are_geometric_means_over_tables_after_means_over_seeds() -> None:
    results = [result("hgb", 0.4), result("hgb", 0.4, seed=1), result("hgb", 1e-4, "b")]
    results += [
        result("default", 0.2),
        result("default", 0.8, seed=1),
        result("default", 0.04, "b"),
    ]
    logs = table_summary.compare(results, "default", "hgb", table_summary.floored_nll)
    assert logs == pytest.approx({"a": 0.0, "b": math.log(4)})  # 0.0001 counts as 0.01
    ratio = table_summary.geometric_mean(logs.values())
    assert ratio.mean == pytest.approx(2) and ratio.se == pytest.approx(
        2 * math.log(4) / 2
    )


def test_ranks_share_ties_and_need_every_table() -> None:
    results = []
    for t, values in (("a", (1, 2, 2)), ("b", (3, 1, 2))):
        results += [result(m, nll, t) for m, nll in zip("pqr", values, strict=True)]
    ranks = table_summary.find_ranks(
        [*results, result("p", 0.1, "only p")], list("pqr")
    )
    assert {m: cell.mean for m, cell in ranks.items()} == {
        "p": 2.0,
        "q": 1.75,
        "r": 2.25,
    }


def test_a_law_is_broken_beyond_two_paired_errors() -> None:
    base = [0.5, 1.5, 0.5, 1.5]
    records = [
        record("lr", base),
        record("default", [0.75, 1.75, 0.75, 1.75]),
        record("fast", [1.5, 1.5, 0.5, 1.5]),
    ]
    results = table_summary.make_results(records)
    worse = {
        m: table_summary.find_excess(results, m, "lr")[0] for m in ("default", "fast")
    }
    assert (
        worse["default"] == ("a", 0.25, 0.0) and worse["default"].is_worse
    )  # every row is worse
    assert (
        worse["fast"].mean == 0.25 and not worse["fast"].is_worse
    )  # one row of four is
    assert worse["fast"].se == pytest.approx(np.std([1, 0, 0, 0]) / 2)
    assert "logistic regression | 1 of 1 | a (+0.250 ± 0.000)" in table_text.law_table(
        results
    )


def test_an_estimate_covers_within_two_errors_of_its_own_and_the_test_rows() -> None:
    near, far = (
        result("default", 0.5, t, estimate=e, estimate_se=0.04)
        for t, e in (("a", 0.59), ("b", 0.61))
    )
    assert table_summary.find_coverage([near, far], "default") == (
        1,
        2,
        pytest.approx(2.0),
    )


# ---------------------------------------------------------------- the curve
def points() -> list[Result]:
    """Two tables with 300 rows, one of them with 3,000."""
    seconds = {
        ("a", 300): (0.5, 0.05),
        ("b", 300): (4.0, 1.0),
        ("a", 3000): (30.0, 2.0),
    }
    found = []
    for (table, rows), (default, hgb) in seconds.items():
        found.append(result("default", 0.3, table, rows=rows, fit=default))
        found.append(result("hgb", 0.4, table, rows=rows, fit=hgb))
    return found


def test_a_page_without_results_says_how_to_make_them_and_with_results_shows_all(
    tmp_path: Path,
) -> None:
    assert "python -m experiments curve" in row_curve.write_block(tmp_path)
    table_summary.write_results(tmp_path / row_curve.FILE, points())
    text = row_curve.write_block(tmp_path)
    assert "| a | 3,000 | 30 s, 0.300 | 2 s, 0.400 |" in text


def test_the_curve_shows_seconds_of_one_machine_and_marks_others() -> None:
    other = [
        result("hgb", 0.4, rows=300, fit=9.0, machine="y"),
        result("lgbm", 0.4, rows=300, fit=8.0, machine="y"),
    ]
    text = row_curve.full_table([*points(), *other])
    assert "| a | 300 | 0.5 s, 0.300 | 0.05 s, 0.400 | 8 s†, 0.400 |" in text
