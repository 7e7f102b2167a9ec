"""Made-up loans for tests of decisions: few defaults, which debt and delays make
likely."""

import numpy as np
import pyarrow as pa
import pyarrow.csv

COSTS = """\
positive = "default"
false_positive = 1
false_negative = 10
"""


def draw(n, seed):
    rng = np.random.default_rng(seed)
    debt, delays = rng.beta(2, 4, n), rng.poisson(0.5, n)
    home = rng.choice(["own", "rent", "parents"], n, p=[0.5, 0.4, 0.1])
    risk = -5 + 6 * debt + delays + 0.8 * (home == "rent")
    state = np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "default", "paid")
    return {"debt": debt, "delays": delays, "home": home, "state": state}


def write(folder):
    for name, n, seed in (("loans.csv", 400, 0), ("new.csv", 600, 1)):
        pyarrow.csv.write_csv(pa.table(draw(n, seed)), folder / name)
    (folder / "costs.toml").write_text(COSTS)
