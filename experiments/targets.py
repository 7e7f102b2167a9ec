"""What can be run: the jobs, the result file and the figure of each table or figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from cavity.errors import BadOption
from experiments import review
from experiments.jobs import (
    COLUMNS,
    CONFIDENCE_COLUMNS,
    CURVE_COLUMNS,
    DRAWS_COLUMNS,
    POINTS_COLUMNS,
    REGRESSION_COLUMNS,
    Job,
    ResultFile,
    Row,
    key_of,
)
from experiments.sets import FOLDS, UCI

BATCH: dict[str, Any] = {
    "batch_size": None,
    "max_epochs": 250,
    "tol": 0.0,
}  # 250 iterations, as in the papers
ALL_SPLITS = 20
SATELLITE_SPLITS = 5
FEW_SPLITS = 5
SHARES = ("5%", "10%", "20%")
TABLE_METHODS = ("gfitc", "ep", "ep_outer", "rep", "sep", "vi")
ON_ALL_SPLITS = ("auto", "ep", "sep")
FURTHER = ("pep", "vi_natural", "vi_softmax")  # not in the papers, M = 10 % only
SURE_METHODS = ("ep", "ep_temperature", "vi_natural", "vi_temperature")
SCHEDULES = ("inner-approx", "inner-exact", "outer")
TOY_METHODS = ("gfitc", "ep", "sep", "rep", "vi_rate")
TOY_SIZES = tuple(2**k for k in range(9))  # 1 … 256
TOY_NOISE = 1e-2  # the labels are noise-free; a little noise keeps the factors smooth
LONGEST_SECONDS = 1800  # limit of GFITC on the toy problem
THESIS_SECONDS = (
    300  # limit on 90 % of satellite: GFITC and VI with many points would take hours
)
EFFORTS = ("fast", "balanced")


@dataclass(frozen=True)
class Target:
    """A table or figure."""

    name: str
    title: str
    file: str
    jobs: Callable[[], list[Job]]
    columns: tuple[str, ...] = COLUMNS
    figure: str | None = None  # a function of `figures`

    def result_file(self, results: Path) -> ResultFile:
        """The file with the rows of this target."""
        return ResultFile(results / f"{self.file}.csv", self.columns)

    def select(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the jobs of this target wrote at its full settings."""
        keys = {job.key for job in self.jobs()}
        return [row for row in rows if key_of(row) in keys]


def _splits(dataset: str, method: str) -> range:
    if dataset == "satellite":
        return range(SATELLITE_SPLITS)
    return range(ALL_SPLITS if method in ON_ALL_SPLITS else FEW_SPLITS)


def table() -> list[Job]:
    """Tables 2 and 3 of the paper, 6.2 and 6.3 of the thesis, and `method="auto"` with
    default arguments.
    """
    cells = [(m, share) for share, m in product(SHARES, TABLE_METHODS)]
    cells += [(m, "10%") for m in FURTHER]
    papers = []
    for d, (m, share) in product(UCI, cells):
        papers += [Job("score", d, s, m, share, options=BATCH) for s in _splits(d, m)]
    default = []
    for d in UCI:
        default += [Job("score", d, s, "auto", "") for s in _splits(d, "auto")]
    return papers + default


def efforts() -> list[Job]:
    """`GPClassifier(effort=...)` on twenty splits of the sets of Table 2."""
    return [
        Job("score", d, s, m, "")
        for d, m, s in product(UCI, EFFORTS, range(ALL_SPLITS))
    ]


def vehicle_folds() -> list[Job]:
    """Ten stratified folds of vehicle in three shuffles, for a comparison with
    published results of AutoML libraries.
    """
    return [
        Job("score", "vehicle_folds", s, m, "")
        for m, s in product(EFFORTS, range(3 * FOLDS))
    ]


def flipped() -> list[Job]:
    """Robust EP with 10 % of the training labels redrawn."""
    grid = product(("20%", "30%", "40%"), ("ep", "sep", "rep_learnt"))
    cells = [(m, share) for share, m in grid]
    cells += [(m, "10%") for m in ("ep", "sep", "rep")]
    short = BATCH | {"max_epochs": 150}
    return [
        Job("score", d, s, m, share, 0.1, short if share == "40%" else BATCH)
        for d, (m, share), s in product(("vowel6", "vehicle"), cells, range(FEW_SPLITS))
    ]


def confidence() -> list[Job]:
    """How sure named methods are on clean and on noisy labels, as they are and with a
    temperature.
    """
    sets = ("five_digits", "five_digits_noisy")
    return [
        Job("score", d, s, m, "")
        for d, m, s in product(sets, SURE_METHODS, range(FEW_SPLITS))
    ]


def many_splits() -> list[Job]:
    """new_thyroid on 100 splits: how far the mean of 20 splits can be off."""
    return [
        Job("score", "new_thyroid", s, m, "10%", options=BATCH)
        for m, s in product(("ep", "sep"), range(100))
    ]


def schedules() -> list[Job]:
    """Figure 1."""
    return [
        Job("history", "vehicle", s, m, "20%", options=BATCH)
        for m, s in product(SCHEDULES, range(3))
    ]


def toy() -> list[Job]:
    """Figure 3: only the inducing points are learnt."""
    still = {"learn": ("inducing",), "noise": TOY_NOISE, "tol": 0.0}
    full = still | {"batch_size": None, "max_epochs": 2000}
    own = {"vi_rate": {"batch_size": 100}, "gfitc": {"max_seconds": LONGEST_SECONDS}}
    return [
        Job("points", "toy", 0, m, str(M), options=full | own.get(m, {}))
        for m, M in product(TOY_METHODS, TOY_SIZES)
    ]


def satellite() -> list[Job]:
    """Figures 4 and 6, and figure 6.2 of the thesis on 90 % of the rows."""
    limit = BATCH | {"max_seconds": THESIS_SECONDS}
    paper = product(["satellite"], ("gfitc", "ep", "sep", "vi"), (4, 20, 100), [BATCH])
    thesis = product(["satellite90"], ("gfitc", "ep", "vi"), (4, 50, 200), [limit])
    return [
        Job("curve", d, s, m, str(M), options=o)
        for (d, m, M, o), s in product([*paper, *thesis], range(10))
    ]


def mnist() -> list[Job]:
    """Figure 5, top: at our default rates, at Adam's default of 0.001, which needs more
    passes, and in longer runs.
    """
    ours: dict[str, Any] = {"batch_size": 200, "max_epochs": 30, "tol": 0.0}
    papers = ours | {"max_epochs": 100}
    long = (("sep_long", 500), ("ep_long", 500), ("vi_long", 150))
    return (
        [
            Job("curve", "mnist", 0, m, "200", options=ours)
            for m in ("ep", "sep", "rep", "vi", "vi_natural")
        ]
        + [
            Job("curve", "mnist", 0, m, "200", options=papers)
            for m in ("ep_rate", "sep_rate", "vi_rate")
        ]
        + [
            Job(
                "curve",
                "mnist",
                0,
                m,
                "200",
                options=ours | {"batch_size": 1000, "max_epochs": epochs},
            )
            for m, epochs in long
        ]
    )


def mnist_variants() -> list[Job]:
    """MNIST with M = 200 in other ways: the hyper-prior of "auto", longer runs, smaller
    batches.
    """
    runs = (
        ("sep_prior", 1000, 500),
        ("sep_prior_long", 1000, 1500),
        ("vi_prior", 1000, 300),
        ("vi_prior_long", 1000, 700),
        ("sep_prior_small", 200, 100),
        ("sep_small", 200, 150),
        ("vi_longer", 1000, 500),
    )
    return [
        Job(
            "curve",
            "mnist",
            0,
            m,
            "200",
            options={"batch_size": b, "max_epochs": e, "tol": 0.0},
        )
        for m, b, e in runs
    ]


def mnist_best() -> list[Job]:
    """The lowest NLL within ten minutes on one GPU; M and batch size are free."""
    runs = (
        ("ep", "1000", 2000, 150),
        ("ep", "2000", 4000, 100),
        ("ep_prior", "2000", 4000, 100),
        ("vi_large", "1000", 2000, 200),
    )
    limits = {"tol": 0.0, "max_seconds": 600}
    return [
        Job(
            "curve",
            "mnist",
            0,
            m,
            M,
            options={"batch_size": b, "max_epochs": e} | limits,
        )
        for m, M, b, e in runs
    ]


def airline() -> list[Job]:
    """Figure 5, bottom, and figure 7, on flights that are available."""
    jobs = []
    for dataset, passes in (("flights_nyc2013", 5), ("flights_us2001", 1)):
        options: dict[str, Any] = {"batch_size": 200, "max_epochs": passes, "tol": 0.0}
        jobs += [
            Job("curve", dataset, 0, m, "200", options=options)
            for m in ("ep_rate", "sep_rate", "vi_rate")
        ]
        jobs.append(Job("curve", dataset, 0, "logistic", ""))
    return jobs


def flights() -> list[Job]:
    """The same flights at our default rates, with M = 100 and batches of 1,000, for the
    page on scale.
    """
    options: dict[str, Any] = {"batch_size": 1000, "max_epochs": 2, "tol": 0.0}
    sets = ("flights_nyc2013", "flights_us2001")
    jobs = [
        Job("curve", d, 0, m, "100", options=options)
        for d, m in product(sets, ("ep", "sep", "vi_natural"))
    ]
    return jobs + [Job("curve", d, 0, "logistic", "") for d in sets]


def _list_targets() -> Iterable[Target]:
    curves = CURVE_COLUMNS
    yield Target("table2", "Table 2: test NLL on eight UCI sets", "table2", table)
    yield Target("table3", "Table 3: test error on the same fits", "table2", table)
    yield Target(
        "table2-efforts",
        "Table 2: the efforts of GPClassifier",
        "table2_efforts",
        efforts,
    )
    fig1 = "Figure 1: log Z_q against seconds for three schedules"
    yield Target("fig1", fig1, "fig1", schedules, curves, "schedules")
    yield Target(
        "fig3",
        "Figure 3: inducing points on a plane",
        "fig3",
        toy,
        POINTS_COLUMNS,
        "toy",
    )
    fig4, fig6 = (
        f"Figure {i}: satellite, {what} against seconds"
        for i, what in ((4, "NLL"), (6, "error"))
    )
    yield Target("fig4", fig4, "satellite", satellite, curves, "satellite_nll")
    yield Target("fig6", fig6, "satellite", satellite, curves, "satellite_error")
    yield Target("fig5-mnist", "Figure 5, top: MNIST", "mnist", mnist, curves, "mnist")
    yield Target(
        "fig5-airline",
        "Figure 5, bottom: flights",
        "airline",
        airline,
        curves,
        "airline",
    )
    yield Target(
        "fig7",
        "Figure 7: E log p and log E p of VI",
        "airline",
        airline,
        curves,
        "expected",
    )
    variants = "MNIST with 200 points, other settings"
    yield Target("mnist-variants", variants, "mnist_variants", mnist_variants, curves)
    yield Target(
        "mnist-best", "MNIST in ten minutes on a GPU", "mnist_best", mnist_best, curves
    )
    yield Target(
        "flights",
        "Flights with default settings",
        "flights",
        flights,
        curves,
        "flights",
    )
    yield Target("flipped", "Wrong labels", "flipped", flipped)
    sure = "How sure named methods are"
    yield Target("confidence", sure, "confidence", confidence, CONFIDENCE_COLUMNS)
    yield Target("new_thyroid", "new_thyroid on 100 splits", "new_thyroid", many_splits)
    yield Target(
        "vehicle-folds", "vehicle in ten folds", "vehicle_folds", vehicle_folds
    )
    yield from _list_review()


def _list_review() -> Iterable[Target]:
    """The draws of the thesis, and the review; figures share the rows of a fit."""
    title = "Thesis, figures 2.1 to 2.3: draws of a Gaussian process"
    yield Target("draws", title, "draws", review.draws, DRAWS_COLUMNS, "functions")
    figures = (
        ("svi", "figures 3 and 4: four ways to step q", review.svi_variants),
        ("collapsed", "figures 5 and 6: the collapsed bound", review.collapsed),
        ("big", "figure 7: mini-batches on many rows", review.big),
        ("newton", "figures 8 and 9: projected Newton and L-BFGS", review.newton),
    )
    for name, title, jobs in figures:
        yield Target(
            f"review-{name}",
            f"Review, {title}",
            "review",
            jobs,
            REGRESSION_COLUMNS,
            "review",
        )


TARGETS = {target.name: target for target in _list_targets()}
PAPER = (
    "table2",
    "table3",
    "fig1",
    "fig3",
    "fig4",
    "fig6",
    "fig5-mnist",
    "fig5-airline",
    "fig7",
    "draws",
    "review-svi",
    "review-collapsed",
    "review-big",
    "review-newton",
)


def find_target(name: str) -> Target:
    """Look up a target by name."""
    if name not in TARGETS:
        raise BadOption(f"unknown target {name!r}; use one of {', '.join(TARGETS)}.")
    return TARGETS[name]


@dataclass(frozen=True)
class Selection:
    """A part of a target; by default all of it."""

    sets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    inducing: tuple[str, ...] = ()
    splits: int | None = None
    epochs: int | None = None

    def apply(self, target: Target) -> list[Job]:
        """The selected jobs."""
        jobs = target.jobs()
        self.check(jobs)
        return self.pick(jobs)

    def check(self, jobs: list[Job]) -> None:
        """Raise BadOption if a name is in none of the jobs."""
        self._check("--sets", self.sets, (job.dataset for job in jobs))
        self._check("--methods", self.methods, (job.method for job in jobs))
        self._check("--inducing", self.inducing, (job.inducing for job in jobs))

    def pick(self, jobs: list[Job]) -> list[Job]:
        """The jobs of this selection; none for names that they do not have."""
        kept = [
            job
            for job in jobs
            if (not self.sets or job.dataset in self.sets)
            and (not self.methods or job.method in self.methods)
            and (not self.inducing or job.inducing in self.inducing)
            and (self.splits is None or job.split < self.splits)
        ]
        return (
            kept
            if self.epochs is None
            else [_shorten(job, self.epochs) for job in kept]
        )

    @staticmethod
    def _check(option: str, selected: tuple[str, ...], known: Iterable[str]) -> None:
        known = list(dict.fromkeys(known))
        for name in selected:
            if name not in known:
                raise BadOption(
                    f"{option} {name}: this target has "
                    f"{', '.join(k for k in known if k)}."
                )


def _shorten(job: Job, epochs: int) -> Job:
    """Fewer epochs are other settings, so these rows never count as results of the full
    job.
    """
    return replace(
        job,
        options=job.options
        | {"max_epochs": min(epochs, job.options.get("max_epochs", epochs))},
    )
