"""Which rows judge a classifier, and which classifiers are pooled with it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import FitPlan, JudgingPlan, TableSize
from cavity.fitting.options.policy.training import plan_training
from cavity.fitting.options.policy.work import MOST_BUDGETS, count_points
from cavity.pool.plan import MembersPlan

# Rows that judge the model: folds that learn again, or a part of the rows. [48, 65]
# at least and at most; models of more folds differ less from that of all rows
FOLDS = {"fast": (3, 3), "balanced": (3, 5)}
SMALL_ROWS = 500  # over the number of folds
# up to which every fold judges. On more rows, folds share the work that they take here;
# when that is less than a short fit, a part of the rows judges [75]
FOLD_ROWS = {"fast": 150, "balanced": 500}
LEAST_SHARE = 0.6  # of the usual work, which a fold takes
LARGE_ROWS = 2000  # above, trees are limited, and effort="fast" pools boosting
# at most a fifth of the rows is held out, and at most 4,000
LEAST_PARTS = 5
HELD_MOST = 4000
LEAST_GROUPS = 10  # of rows that stay together, in a part that judges the model

# Members of the pool. [39, 65]
TREES = {"fast": 0, "balanced": 100}
# rows × trees of a forest, at most; but some trees always
TREE_ROWS = 1_000_000
LEAST_TREES = 25
# twice the rate needs half of the rounds
BOOSTING_RATE = {"fast": 0.2, "balanced": 0.1}
# of a class: a leaf of boosting has as many, and learns nothing of smaller classes
BOOSTED_ROWS = 20
# number of networks, and units of their hidden layers: a GPU trains larger ones in less
# time [78]
NETWORKS = {"cpu": (2, (100, 50)), "cuda": (8, (256, 128))}
NETWORK_STEPS = {"fast": 300, "balanced": 2400}
MOST_LEAVES = 4096  # of a tree of the forest


class Cases(NamedTuple):
    """What decides which rows judge a classifier, and what is pooled with it."""

    size: TableSize  # equal rows counted once
    in_memory: bool
    eval_set: bool  # the user gave rows to judge by
    groups: int = 0  # number of groups whose rows stay together
    most_of_a_class: int | None = None  # rows of the largest class, if known


def calibrates(config: ClassifierConfig) -> bool:
    """Return whether a temperature is fitted."""
    return config.calibration == "temperature" or (
        config.calibration == "auto" and config.method.recommended
    )


def pools(config: ClassifierConfig) -> bool:
    """Return whether other classifiers are pooled with the Gaussian process."""
    if config.ensemble != "auto":
        return config.ensemble is not None

    wanted = config.calibration is not None and bool(config.arguments["learn"])
    return config.method.recommended and wanted


def plan_judging(
    config: ClassifierConfig, cases: Cases, *, short: bool = False
) -> JudgingPlan:
    """Plan which rows judge the model; `short`: there is no time for folds."""
    how = "none"
    if calibrates(config) or (cases.in_memory and pools(config)):
        how = _choose_judges(config, cases, short)
    parts = _count_parts(config, cases, how)
    affordable = _count_fits(config, cases)
    folds = None
    share = 1.0
    if how == "folds" and config.method.recommended and affordable < parts:
        folds = min(parts, math.floor(affordable / LEAST_SHARE))
        share = min(1.0, affordable / folds)
    return JudgingPlan(
        how=how,
        temperature=calibrates(config),
        parts=parts,
        most_folds=folds,
        share=share,
        groups=cases.groups,
        why=_explain_judging(config, how, cases.in_memory),
    )


def _choose_judges(config: ClassifierConfig, cases: Cases, short: bool) -> str:
    """Return "eval_set", "folds", "part" or "leave-one-out"."""
    if cases.eval_set:
        return "eval_set"
    if not cases.in_memory:  # leave-one-out of a source cannot keep groups together
        return "part" if cases.groups else "leave-one-out"

    named = not config.method.recommended
    if named and config.effort == "fast" and not pools(config):
        return "leave-one-out"

    if not short and (named or _count_fits(config, cases) >= LEAST_SHARE):
        return "folds"

    return "part"


def _count_fits(config: ClassifierConfig, cases: Cases) -> float:
    """Return how many fits take as long as all folds of `FOLD_ROWS`."""
    # a fit of more latent functions takes longer
    counted = cases.size.rows * max(1.0, cases.size.latent / MOST_BUDGETS)
    least, most = FOLDS[config.effort]
    if counted <= FOLD_ROWS[config.effort]:
        return float(most)

    return least * FOLD_ROWS[config.effort] / counted


def _count_parts(config: ClassifierConfig, cases: Cases, how: str) -> int:
    """Return the number of parts that the rows are divided into."""
    rows = cases.size.rows
    if how == "folds":
        return int(np.clip(SMALL_ROWS // rows, *FOLDS[config.effort]))
    if how != "part":
        return 0

    parts = max(LEAST_PARTS, math.ceil(rows / HELD_MOST))
    if cases.groups:
        parts = min(parts, max(2, cases.groups // LEAST_GROUPS))
    return parts


def count_group_parts(rows: int, groups: int, most: int) -> int:
    """Return the parts of a source with groups: one part judges, with `most` rows."""
    wanted = min(math.ceil(rows / most), groups // LEAST_GROUPS)
    return max(LEAST_PARTS, wanted)


def plan_members(config: ClassifierConfig, cases: Cases) -> MembersPlan:
    """Plan which classifiers are pooled with the Gaussian process."""
    rows = cases.size.rows
    refits = config.effort != "fast"
    if not (cases.in_memory and pools(config)):
        return MembersPlan(refits=refits, why=_explain_pool(config))
    if not isinstance(config.ensemble, str):
        return MembersPlan(pools=True, refits=refits, why="given")

    leaves = 0
    if rows > LARGE_ROWS:
        leaves = MOST_LEAVES
    if config.ensemble == "trees":
        trees = _count_trees(TREES["balanced"], rows)
        return MembersPlan(
            pools=True,
            trees=trees,
            rate=BOOSTING_RATE[config.effort],
            leaves=leaves,
            refits=refits,
            why="given",
        )

    device = "cpu"
    if config.device.type in NETWORKS:
        device = str(config.device)
    networks, units = NETWORKS[torch.device(device).type]
    rate = 0.0
    if _takes_boosting(config, cases):
        rate = BOOSTING_RATE[config.effort]
    return MembersPlan(
        pools=True,
        linear=True,
        networks=networks,
        units=units,
        device=device,
        network_steps=NETWORK_STEPS[config.effort],
        trees=_count_trees(TREES[config.effort], rows),
        rate=rate,
        leaves=leaves,
        refits=refits,
        why=_explain_pool(config),
    )


def _takes_boosting(config: ClassifierConfig, cases: Cases) -> bool:
    """Return whether boosting is a member: a class has rows enough for its leaves."""
    most = cases.most_of_a_class
    if most is not None and most < BOOSTED_ROWS:
        return False

    return config.effort != "fast" or cases.size.rows > LARGE_ROWS


def _count_trees(most: int, rows: int) -> int:
    """Return the trees of a forest: fewer on large tables, where one tree says more."""
    return min(most, max(LEAST_TREES, TREE_ROWS // rows))


def plan_fast(
    config: ClassifierConfig, cases: Cases, trains: TableSize, most_points: int
) -> FitPlan | None:
    """Plan what effort="fast" would do, at most `most_points` inducing points.

    None if it changes nothing. `trains`: size of the rows to train on.
    """
    if config.effort == "fast" or not config.method.recommended:
        return None

    config = replace(config, effort="fast")
    M = min(most_points, count_points(config, trains))
    # groups and an eval_set take no time: rows decide
    cases = Cases(trains, cases.in_memory, eval_set=False)
    return FitPlan(
        training=plan_training(config, trains, M),
        judging=plan_judging(config, cases),
        members=plan_members(config, cases),
    )


def _explain_judging(config: ClassifierConfig, how: str, in_memory: bool) -> str:
    part = f"more work than folds may take, or a time limit: at most {HELD_MOST:,} rows"
    if not in_memory:
        part = f"groups that are not in memory: at most {HELD_MOST:,} of their rows"
    rows = {
        "folds": f"all up to {FOLD_ROWS[config.effort]:,} rows, fewer with more than "
        f"{MOST_BUDGETS} latent functions",
        "part": part,
        "leave-one-out": "rows that are not in memory",
        "none": "calibration=None, or a named method",
    }
    return rows.get(how, "given")


def _explain_pool(config: ClassifierConfig) -> str:
    if config.ensemble != "auto":
        return "given"
    if not config.method.recommended:
        return "only with method='auto'"

    return f"effort={config.effort!r}"
