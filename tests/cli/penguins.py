"""Write two made-up tables with mixed columns and missing cells: python penguins.py
FOLDER.
"""

import csv
import sys
from pathlib import Path

import numpy as np

SPECIES = ("Adelie", "Chinstrap", "Gentoo")
ISLANDS = ("Biscoe", "Dream", "Torgersen")


def write(path, rows, seed):
    """Write a table of birds of three species; some bills are missing."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["id", "bill", "mass", "island", "sex", "species"])
        for number in range(rows):
            kind = rng.integers(3)
            bill, mass = (
                (38, 48, 47)[kind] + 2.5 * rng.normal(),
                (3700, 3750, 5050)[kind] + 400 * rng.normal(),
            )
            island = rng.choice(
                ISLANDS,
                p=[(0.3, 0.35, 0.35), (0.05, 0.9, 0.05), (0.95, 0.03, 0.02)][kind],
            )
            sex = rng.choice(["female", "male", ""], p=[0.45, 0.45, 0.1])
            measured = f"{bill:.1f}" if rng.random() > 0.05 else "NA"
            out.writerow([number, measured, f"{mass:.0f}", island, sex, SPECIES[kind]])


def main(folder):
    write(folder / "penguins.csv", 240, 0)
    write(folder / "new.csv", 60, 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
