"""Data sets by name, split into training rows and test rows."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from experiments.paper_tables import load

Array = NDArray[np.float64]

UCI = (
    "wine",
    "new_thyroid",
    "svmguide2",
    "glass",
    "waveform",
    "vowel6",
    "vehicle",
    "satellite",
)
FLIGHTS = (
    "flights_nyc2013",
    "flights_us2001",
    "flights_houston2011",
    "flights_pnw2014",
)
FURTHER = (
    "letter", "pendigits", "magic", "phoneme", "spambase", "contraceptive", "led7digit",
    "movement_libras", "titanic", "mammographic", "tic_tac_toe", "chess", "housevotes",
    "heart", "bands", "vowel",
)  # fmt: skip
DRAWS = {"gp_small": 400, "gp_medium": 1500, "gp_big": 8000}  # training rows
REGRESSION = (*DRAWS, "diabetes")
NAMES = (
    *UCI,
    "satellite90",
    "vehicle_folds",
    "digits",
    "five_digits",
    "five_digits_noisy",
    "mnist",
    "toy",
    *FLIGHTS,
    *FURTHER,
    *REGRESSION,
)

TRAIN_FRACTION = {
    "satellite": 0.2,
    "waveform": 0.3,
}  # 0.9 for the other tables, as in the papers
WAVEFORM_ROWS = 1000
FOLDS = 10
FURTHER_FRACTION, FURTHER_ROWS = (
    0.8,
    4000,
)  # training share of the further sets, and most training and test rows
FIVE_ROWS, NOISY_SHARE = (
    200,
    0.4,
)  # training rows of five digits, and share of their redrawn labels
TOY_ROWS = 1000
TOY_SEED = 7
DRAW_NOISE = 0.3  # standard deviation of the noise on a draw
DRAW_TEST_ROWS = 1000
BOX = 2.5  # rows of the toy problem are uniform in [−BOX, BOX]²
TEST_FLIGHTS = 10_000

# training rows, features, classes: enough to estimate the time of a fit before the
# table is read
SIZES = {
    "wine": (160, 13, 3),
    "new_thyroid": (194, 5, 3),
    "svmguide2": (352, 20, 3),
    "glass": (193, 9, 6),
    "waveform": (300, 21, 3),
    "vowel6": (486, 10, 6),
    "vehicle": (761, 18, 4),
    "vehicle_folds": (761, 18, 4),
    "satellite": (1287, 36, 6),
    "satellite90": (5792, 36, 6),
    "digits": (1617, 64, 10),
    "five_digits": (FIVE_ROWS, 64, 5),
    "five_digits_noisy": (FIVE_ROWS, 64, 5),
    "mnist": (60_000, 784, 10),
    "toy": (TOY_ROWS, 2, 3),
    "flights_nyc2013": (263_853, 8, 3),
    "flights_us2001": (2_990_000, 9, 3),
    "flights_houston2011": (201_187, 8, 3),
    "flights_pnw2014": (140_333, 8, 3),
    "letter": (4000, 16, 26),
    "pendigits": (4000, 16, 10),
    "magic": (4000, 10, 2),
    "phoneme": (4000, 5, 2),
    "spambase": (3678, 57, 2),
    "contraceptive": (1178, 9, 3),
    "led7digit": (400, 7, 10),
    "movement_libras": (288, 90, 15),
    "titanic": (1761, 3, 2),
    "mammographic": (664, 5, 2),
    "tic_tac_toe": (766, 27, 2),
    "chess": (2557, 73, 2),
    "housevotes": (186, 32, 2),
    "heart": (216, 13, 2),
    "bands": (292, 19, 2),
    "vowel": (792, 13, 11),
    "line": (5, 1, 1),
    "diabetes": (332, 10, 1),
    **{name: (rows, 2, 1) for name, rows in DRAWS.items()},
}


class Split(NamedTuple):
    """Training rows and test rows."""

    X: Array
    y: NDArray[Any]
    X_test: Array
    y_test: NDArray[Any]


def split(name: str, seed: int, data_home: str | None = None) -> Split:
    """One random split with the sizes of the papers; `seed` is its number."""
    if name not in NAMES:
        raise BadInput(f"unknown data set {name!r}: use one of {', '.join(NAMES)}.")
    if name == "mnist":
        return _mnist(data_home)
    if name == "toy":
        return make_toy()
    if name.startswith("five_digits"):
        return _five_digits(seed, NOISY_SHARE if name.endswith("noisy") else 0.0)
    if name in FLIGHTS:
        return _flights(name, seed, data_home)
    if name in FURTHER:
        return _further(name, seed, data_home)
    if name in REGRESSION:
        return _regression(name, seed)
    if name == "vehicle_folds":
        return _fold(*load("vehicle", data_home), seed)
    X, y = _digits() if name == "digits" else load(name.removesuffix("90"), data_home)
    order = np.random.default_rng(seed).permutation(len(y))[
        : WAVEFORM_ROWS if name == "waveform" else None
    ]
    cut = round(TRAIN_FRACTION.get(name, 0.9) * len(order))
    train = order[:cut]
    test = order[cut:]
    return Split(X[train], y[train], X[test], y[test])


def _fold(X: Array, y: NDArray[Any], number: int) -> Split:
    """One of ten stratified folds; every ten numbers are another shuffle."""
    from sklearn.model_selection import StratifiedKFold

    shuffle, fold = divmod(number, FOLDS)
    train, test = list(
        StratifiedKFold(FOLDS, shuffle=True, random_state=shuffle).split(X, y)
    )[fold]
    return Split(X[train], y[train], X[test], y[test])


def _further(name: str, seed: int, data_home: str | None) -> Split:
    """Four fifths of the rows to train on, at most 4,000; text columns become one
    column per level.
    """
    path = _find(f"{name}.csv", data_home) or _find(f"{name}.csv.gz", data_home)
    X, y = load(name, data_home) if path is None else _read_mixed(path)
    order = np.random.default_rng(seed).permutation(len(y))
    cut = round(FURTHER_FRACTION * len(order))
    train = order[:cut][:FURTHER_ROWS]
    test = order[cut:][:FURTHER_ROWS]
    return Split(X[train], y[train], X[test], y[test])


def _read_mixed(path: Path) -> tuple[Array, NDArray[Any]]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        _, *rows = csv.reader(file)
    *columns, labels = (np.array(column) for column in zip(*rows, strict=True))
    return np.column_stack([_encode(column) for column in columns]), labels


def _encode(column: NDArray[Any]) -> Array:
    """Return numbers as they are, and text as one column per level."""
    try:
        return column.astype(np.float64)[:, None]
    except ValueError:
        return np.asarray(column[:, None] == np.unique(column), dtype=np.float64)


def redraw_labels(data: Split, fraction: float, seed: int) -> Split:
    """Redraw a fraction of the training labels uniformly over all classes, including
    the true one: ε = fraction.
    """
    rng = np.random.default_rng([seed, 1])
    redrawn = rng.random(len(data.y)) < fraction
    return data._replace(
        y=np.where(redrawn, rng.choice(np.unique(data.y), len(data.y)), data.y)
    )


def standardize(name: str, data: Split) -> Split:
    """Scale features to mean 0 and standard deviation 1 over the training rows; divide
    the pixels of MNIST by 255.
    """
    if name == "mnist":
        return data._replace(X=data.X / 255, X_test=data.X_test / 255)
    center = data.X.mean(0)
    spread = data.X.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    return data._replace(
        X=(data.X - center) / spread, X_test=(data.X_test - center) / spread
    )


def _digits() -> tuple[Array, NDArray[Any]]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return np.asarray(X, dtype=np.float64), np.asarray(y)


def _five_digits(seed: int, noisy: float) -> Split:
    """The digits 0 to 4, with a share of all labels redrawn, those of test rows too."""
    X, y = _digits()
    X = X[y < 5]
    y = y[y < 5]
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(len(y)) < noisy, rng.integers(5, size=len(y)), y)
    order = rng.permutation(len(y))
    train = order[:FIVE_ROWS]
    test = order[FIVE_ROWS:]
    return Split(X[train], y[train], X[test], y[test])


def make_toy(rows: int = TOY_ROWS, seed: int = TOY_SEED) -> Split:
    """The papers' synthetic problem: y = argmax_c f_c(x), with three draws f_c from a
    GP prior; the same for every split. Half of the rows are test rows.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-BOX, BOX, (2 * rows, 2))
    y = draw_functions(X, 3, rng).argmax(1)
    return Split(X[:rows], y[:rows], X[rows:], y[rows:])


def draw_functions(X: Array, n: int, rng: np.random.Generator) -> Array:
    r"""Values of n functions at rows in the box, [N n].

        f(x) = α(x₁)ᵀ W α(x₂),   α(s) = L⁻¹ k(g, s),   W_ij ~ N(0, 1)

    This is a draw from the RBF prior with lengthscale 1, up to a negligible error: the
    kernel is a product over the two columns, and the grid g of each is much finer than
    a lengthscale.
    """
    g = np.linspace(-BOX, BOX, 25)
    k, *columns = (np.exp(-0.5 * (g[:, None] - s) ** 2) for s in (g, *X.T))
    L = np.linalg.cholesky(k + 1e-10 * np.eye(len(g)))
    a1, a2 = (np.linalg.solve(L, column) for column in columns)
    W = rng.standard_normal((n, len(g), len(g)))
    values: Array = np.einsum("in,cij,jn->nc", a1, W, a2, optimize=True)
    return values


def _regression(name: str, seed: int) -> Split:
    """A noisy draw from a Gaussian process, or diabetes of scikit-learn; features and
    target with mean 0 and standard deviation 1 over the training rows.
    """
    from sklearn.datasets import load_diabetes

    rng = np.random.default_rng(seed)
    if name in DRAWS:
        rows = DRAWS[name]
        X = rng.uniform(-BOX, BOX, (rows + DRAW_TEST_ROWS, 2))
        noise = rng.standard_normal(len(X))
        y = draw_functions(X, 1, rng)[:, 0] + DRAW_NOISE * noise
    else:
        X, y = load_diabetes(return_X_y=True)
        order = rng.permutation(len(y))
        X, y = X[order], y[order]
        rows = SIZES[name][0]
    center, spread = y[:rows].mean(), y[:rows].std()
    y = (y - center) / spread
    return standardize(name, Split(X[:rows], y[:rows], X[rows:], y[rows:]))


def _mnist(data_home: str | None) -> Split:
    path = _find("mnist.npz", data_home)
    if path is None:
        X, y = load("mnist", data_home)
        return Split(X[:60_000], y[:60_000], X[60_000:], y[60_000:])
    with np.load(path, allow_pickle=False) as file:
        X, X_test = (
            file[f"x_{part}"].reshape(-1, 784).astype(np.float64)
            for part in ("train", "test")
        )
        return Split(
            X, file["y_train"].astype(np.int64), X_test, file["y_test"].astype(np.int64)
        )


def _flights(name: str, seed: int, data_home: str | None) -> Split:
    """Flights that are early, on time or late.

    For us2001 the coordinates of the airports are features, too.
    """
    path = _find(f"{name}.npz", data_home)
    if path is None:
        raise BadInput(
            f"{name}.npz not found: put it into the folder of --data or $CAVITY_DATA."
        )
    with np.load(path, allow_pickle=False) as file:
        X = file["x"].astype(np.float64)
        y = file["y"].astype(np.int64)
        if "origin" in file:
            places = np.stack(
                [file["airport_latitude"], file["airport_longitude"]], 1
            ).astype(np.float64)
            X = np.concatenate(
                [X, places[file["origin"]], places[file["destination"]]], 1
            )
    order = np.random.default_rng(seed).permutation(len(y))
    test = order[:TEST_FLIGHTS]
    train = order[TEST_FLIGHTS:]
    return Split(X[train], y[train], X[test], y[test])


def _find(file: str, data_home: str | None) -> Path | None:
    for folder in (data_home, os.environ.get("CAVITY_DATA")):
        if folder and (path := Path(folder) / file).is_file():
            return path
    return None
