"""What a Gaussian process adds to an AutoGluon ensemble: test log loss without and with `CavityModel` among the members.

Each split has one run of `TabularPredictor` with five-fold bagging and the log loss as metric: LightGBM, random forest, extra
trees, logistic regression and nearest neighbours in AutoGluon's defaults, and CavityModel in its own. AutoGluon weighs the members
by their held-out predictions twice, once without CavityModel and once with it. There is no time limit, so a busy machine changes
nothing. `python -m experiments page` then writes the table of docs/results/comparison.md.

    python benchmarks/autogluon_ensemble.py --data FOLDER [--splits 3] [--sets glass vowel6 vehicle] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np

from experiments.paper_tables import load

SETS = ("glass", "vowel6", "vehicle")
FIRST_SEED = 1000  # no published split has such a number
PEERS: dict[Any, dict[str, Any]] = {"GBM": {}, "RF": {}, "XT": {}, "LR": {}, "KNN": {}}
MEMBER = "Cavity_BAG_L1"
RESULTS = Path(__file__).parent / "results" / "autogluon.csv"


class Row(NamedTuple):
    """One split."""

    set: str
    seed: int
    rows: int
    test_rows: int
    without: float  # test log loss of the ensembles
    with_cavity: float
    weight: float  # of CavityModel in its ensemble
    cavity: float  # test log loss of CavityModel alone
    best_peer: str  # the peer with the best held-out score
    peer: float
    cpu_seconds: float


def run_split(data: str | None, name: str, seed: int) -> Row:
    """Fit all members on 80 % of the rows, and both ensembles of them."""
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    from cavity.export.autogluon import CavityModel

    begun = time.process_time()
    X, y = load(name, data)[:2]
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(kind=y)
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = round(0.8 * len(frame))
    train, test = frame.iloc[order[:cut]], frame.iloc[order[cut:]]
    with tempfile.TemporaryDirectory() as folder:
        found = TabularPredictor("kind", path=folder, eval_metric="log_loss", verbosity=0).fit(
            train,
            hyperparameters={**PEERS, CavityModel: {}},
            num_bag_folds=5,
            num_bag_sets=1,
            num_stack_levels=0,
            dynamic_stacking=False,
            ag_args_fit={"num_cpus": 1},
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
        )
        peers = [m for m in found.model_names() if m.endswith("_BAG_L1") and m != MEMBER]
        [without] = found.fit_weighted_ensemble(base_models=peers, name_suffix="Without")
        [both] = found.fit_weighted_ensemble(base_models=[*peers, MEMBER], name_suffix="With")
        held = found.leaderboard().set_index("model")["score_val"]
        best = str(held[peers].idxmax())
        loss = {m: -found.evaluate(test, model=m)["log_loss"] for m in (without, both, MEMBER, best)}
        weights = found._trainer.load_model(both)._get_model_weights()
    return Row(
        name, seed, len(train), len(test), loss[without], loss[both], weights.get(MEMBER, 0.0), loss[MEMBER],
        best.removesuffix("_BAG_L1"), loss[best], time.process_time() - begun,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CAVITY_DATA"))
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=RESULTS)
    given = parser.parse_args()
    with given.csv.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        for seed in range(FIRST_SEED, FIRST_SEED + given.splits):
            for name in given.sets:
                row = run_split(given.data, name, seed)
                writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in row])
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
