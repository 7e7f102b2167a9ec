"""Sixty generated tables with known laws, so that fresh rows are unlimited.

A table has one of ten kinds and one of six sizes. Its law is a linear function plus
waves per class, and labels follow a softmax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cavity.common.types import Flags, Floats, Ints

KINDS = (
    "numbers", "texts", "groups", "copies", "near copies",
    "integers", "noise", "imbalance", "many classes", "missing cells",
)  # fmt: skip
SIZES = (150, 300, 600, 1000, 2000, 3000)
TABLES = len(KINDS) * len(SIZES)
TOGETHER = {"groups": 5, "copies": 4, "near copies": 5}  # rows of a group
FLIPPED = 0.08  # share of wrong labels of the kind "noise"
WAVES = 32
TOWNS = ("Aachen", "Bonn", "Celle", "Dresden", "Emden", "Fulda", "Gera", "Halle")
WORDS = ("slow", "late", "fine", "broken", "new", "quick", "clean", "lost", "cheap")


class Case(NamedTuple):
    """A table to draw."""

    number: int
    kind: str
    rows: int
    columns: int
    classes: int
    effort: str


class Drawn(NamedTuple):
    """Rows of a law. Rows of a group have the same number."""

    X: Any
    y: Ints
    target: Floats
    group: Ints
    flipped: Flags

    def select(self, kept: Flags) -> Drawn:
        """Return some of the rows."""
        return Drawn(
            X=self.X[kept],
            y=self.y[kept],
            target=self.target[kept],
            group=self.group[kept],
            flipped=self.flipped[kept],
        )


def list_cases(tables: range = range(TABLES)) -> list[Case]:
    """Return the tables. Ten in a row have all kinds, and most sizes."""
    return [_make_case(number) for number in tables]


def _make_case(number: int) -> Case:
    rng = np.random.default_rng([840_000, number])
    kind = KINDS[number % len(KINDS)]
    size = (number + number // len(KINDS)) % len(SIZES)
    classes = int(rng.choice([2, 2, 3, 4]))
    if kind == "many classes":
        classes = int(rng.choice([8, 12]))
    return Case(
        number,
        kind,
        SIZES[size],
        int(rng.choice([3, 5, 8, 16])),
        classes,
        ("balanced", "fast")[(number + size // 2) % 2],
    )


class Law:
    """The law of a table: everything about its rows that is not drawn per row."""

    def __init__(self, case: Case) -> None:
        rng = np.random.default_rng([850_000, case.number])
        self.case = case
        D, C = case.columns, case.classes
        self.linear = rng.normal(size=(D, C)) * rng.uniform(0.5, 2.5) / np.sqrt(D)
        self.frequency = rng.normal(size=(D, WAVES)) * rng.uniform(0.5, 1.5)
        self.frequency /= np.sqrt(D)
        self.phase = rng.uniform(0, 2 * np.pi, WAVES)
        self.height = rng.normal(size=(WAVES, C)) * rng.uniform(0, 3) / np.sqrt(WAVES)
        self.offset = np.zeros(C)
        if case.kind == "imbalance":
            self.offset[1:] = -rng.uniform(2, 4)
        self.near = float(rng.choice([0.01, 0.1]))  # distance of near copies

    def draw(self, n: int, rng: np.random.Generator, size: int = 1) -> Drawn:
        """Draw rows, `size` of a group; groups are independent."""
        case = self.case
        kind = case.kind
        group = np.arange(n // size).repeat(size)
        centre = rng.normal(size=(n // size, case.columns))
        own = rng.normal(size=(len(group), case.columns))
        Z = centre[group]
        effect = np.zeros((n // size, case.classes))
        if kind == "groups":
            Z = 0.8 * Z + 0.6 * own
            effect = 0.7 * rng.normal(size=effect.shape)

        f = np.cos(Z @ self.frequency + self.phase) @ self.height
        f += Z @ self.linear + self.offset + effect[group]
        luck = rng.gumbel(size=f.shape)
        spread = 0.4 * np.exp(0.4 * Z[:, 0])
        target = 10 + f[:, 0] + spread * rng.normal(size=len(f))
        if kind in ("copies", "near copies"):
            luck = luck[::size].repeat(size, 0)
            target = target[::size].repeat(size)
        y = (f + luck).argmax(1)
        flipped = np.zeros(len(y), dtype=bool)
        if kind == "noise":
            flipped = rng.random(len(y)) < FLIPPED
            step = rng.integers(1, case.classes, len(y))
            y = np.where(flipped, (y + step) % case.classes, y)
        if kind == "near copies":
            Z = Z + self.near * own
        return Drawn(self._show(Z, rng), y, target, group, flipped)

    def draw_table(self) -> Drawn:
        """Draw the training rows, until two classes have two groups each."""
        case = self.case
        rng = np.random.default_rng([860_000, case.number])
        while True:
            drawn = self.draw(case.rows, rng, TOGETHER.get(case.kind, 1))
            counts = [
                len(np.unique(drawn.group[drawn.y == c])) for c in range(case.classes)
            ]
            if sum(count > 1 for count in counts) > 1:
                return drawn

    def draw_fresh(self, n: int) -> Drawn:
        """Draw independent new rows."""
        return self.draw(n, np.random.default_rng([870_000, self.case.number]))

    def _show(self, Z: Floats, rng: np.random.Generator) -> Any:
        """Return the columns that a user sees."""
        kind = self.case.kind
        if kind == "integers":
            return np.round(1.5 * Z) + 0.0
        if kind == "missing cells":
            lost = rng.random(Z.shape) < 0.15
            lost[:, 0] |= Z[:, 0] > 1.2  # that it is missing says something
            return np.where(lost, np.nan, Z)
        if kind != "texts":
            return Z

        frame = pd.DataFrame(Z, columns=[f"x{i}" for i in range(Z.shape[1])])
        edges = np.linspace(-1.6, 1.6, len(TOWNS) - 1)
        town = np.searchsorted(edges, Z[:, 0])
        word = np.searchsorted(np.linspace(-1.6, 1.6, len(WORDS) - 1), Z[:, 1])
        other = rng.integers(0, len(WORDS), len(Z))
        frame["x0"] = np.array(TOWNS)[town]
        frame["x1"] = [
            f"{WORDS[i]} and {WORDS[j]}" for i, j in zip(word, other, strict=True)
        ]
        return frame
