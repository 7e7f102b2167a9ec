"""The table on leave-one-out shows its rows, and the benchmark compares with refits."""

from pathlib import Path

import numpy as np

from experiments import leave_one_out
from support import load_script

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_leave_one_out_is_nearer_to_refits_than_the_fit_itself_and_pessimistic_where_a_row_counts_for_much():
    rows = leave_one_out.read_csv(RESULTS / "leave_one_out.csv")
    assert {row["classes"] for row in rows} >= {"2", "3", "6"} and {row["method"] for row in rows} >= {
        "ep",
        "sep",
        "vi",
    }
    drawn = [row for row in rows if row["table"].startswith("drawn")]
    assert all(float(row["mean_gap"]) < float(row["mean_gap_of_the_fit"]) for row in rows if row not in drawn)
    assert {row["method"] for row in drawn} >= {"ep", "exact"}
    assert all(
        float(row["nll"]) > float(row["nll_of_refits"]) > float(row["nll_of_the_fit"]) for row in drawn
    )
    assert leave_one_out.table(RESULTS).count("\n") == len(rows) + 1


def test_a_row_of_the_benchmark_is_the_difference_to_refits():
    script = load_script("benchmarks/leave_one_out.py")
    row = script.compare("breast cancer", "ep", 2)
    X, y = script.read_table("breast cancer")
    near = script.fit("ep", X, y, X[: script.POINTS]).loo_log_proba_
    gaps = [abs(near[i, y[i]] - script.log_p_without("ep", X, y, X[: script.POINTS], i)) for i in (0, 149)]
    np.testing.assert_allclose(float(row["largest_gap"]), max(gaps), atol=1e-5)
