"""What the temperature does: scores of the same fits with and without it, from the rows of `temperature`."""

from __future__ import annotations

import numpy as np

from experiments.comparison import means
from experiments.jobs import Row
from experiments.sets import SIZES
from experiments.tables import markdown
from experiments.targets import WIDE_SETS

NOISE = 0.002  # of the NLL: sets with less than this without a temperature are not in the ratios
LARGE, MOST_ERROR = 2000, 0.02  # training rows from which the calibration error is to be at most this


SCORES = ("nll_before", "nll", "ece_before", "ece", "ece_chance", "temperature")


def table(rows: list[Row]) -> str:
    """Return NLL and calibration error before and after, per set, and a summary; means over the splits."""
    if not rows:
        return "No rows yet: `python -m experiments temperature`."
    found = {name: means(rows, name) for name in SCORES}
    sets = [d for d in WIDE_SETS if (d, "balanced") in found["nll"]]
    lines = []
    for d in sets:
        cell = {name: values[d, "balanced"] for name, values in found.items()}
        lines.append(
            [
                d,
                f"{SIZES[d][0]:,}",
                f"{cell['nll_before'].mean:.4f}",
                f"{cell['nll'].mean:.4f}",
                f"{cell['nll'].mean / cell['nll_before'].mean:.3f}",
                f"{1 / cell['temperature'].mean:.2f}",
                f"{cell['ece_before'].mean:.3f}, {cell['ece'].mean:.3f}",
                f"{cell['ece_chance'].mean:.3f}",
            ]
        )
    head = [
        "data set",
        "training rows",
        "NLL without",
        "NLL with",
        "ratio",
        "w",
        "ECE without, with",
        "ECE by chance",
    ]
    return f"{markdown(head, lines)}\n\n{_summary(found, sets)}"


def _summary(found: dict[str, dict], sets: list[str]) -> str:  # type: ignore[type-arg]
    pairs = {d: (found["nll_before"][d, "balanced"].mean, found["nll"][d, "balanced"].mean) for d in sets}
    ratio = {d: after / before for d, (before, after) in pairs.items() if before > NOISE}
    worst = max(ratio, key=lambda d: ratio[d])
    worse = [d for d, r in ratio.items() if r > 1.03]
    large = [d for d in sets if SIZES[d][0] >= LARGE]
    loose = [d for d in large if found["ece"][d, "balanced"].mean > MOST_ERROR]
    return (
        f"Geometric mean of the ratios {np.exp(np.mean(np.log(list(ratio.values())))):.3f} over {len(ratio)} sets, the largest "
        f"{ratio[worst]:.3f} ({worst}); more than 3 % worse on {_list(worse)}. Of the {len(large)} sets with "
        f"{LARGE:,} rows or more, the calibration error is above {MOST_ERROR} on {_list(loose)}."
    )


def _list(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "0"
