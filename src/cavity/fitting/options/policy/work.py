"""Budgets of work: inducing points, rows that the Gaussian process sees, the device.

A pass over N rows costs about W = N C M² multiplications, with C latent functions and M
inducing points. [METHOD 18] An effort has a budget of work, and the rest follows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import torch

from cavity.fitting.options import papers
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.value_checks import inducing_count

AnyConfig = TypeVar("AnyConfig", bound=Config)

# The budget of method="auto": multiplications of training per latent function, for at
# most MOST_BUDGETS of them. [65]
BUDGET = {"fast": 1.5e9, "balanced": 5e9}
MOST_BUDGETS = 8
GPU_BUDGET = 1000  # times that of a CPU
# measured multiplications of a step that learns, per row and latent function: 6 M² + M D
STEP_COST = 6
# what hyper-parameters need does not depend on the rows
STEPS = {"fast": 150, "balanced": 250}
STEP_ROWS = 300

# inducing points per square root of the rows, at most, if these are more than
# USUAL_POINTS
POINTS_PER_ROOT = 3.0
LEAST_POINTS = 20
USUAL_POINTS = 100

SMALL_WORK = 3e7  # W up to which one core of a CPU is as fast as a GPU
LEAST_M = 64  # below, a row's sites and moments take more than its projection


def count_budget(config: Config, latent: int) -> float:
    """Return the multiplications that training may take."""
    times = 1
    if config.device.type == "cuda":
        times = GPU_BUDGET
    return times * BUDGET[config.effort] * min(latent, MOST_BUDGETS)


def choose_device(config: AnyConfig, size: TableSize) -> AnyConfig:
    """Return the configuration with its device.

    With device="auto", small work runs on the CPU: a launch on a GPU would take longer.
    """
    if config.arguments["device"] != "auto" or config.device.type == "cpu":
        return config

    on_cpu = replace(config, device=torch.device("cpu"))
    every_row = config.method.inducing_from == "rows" or config.inducing is None
    if every_row:
        M = size.rows
    else:
        M = count_points(on_cpu, size)

    if size.rows * size.latent * M**2 <= SMALL_WORK:
        return on_cpu

    return config


def count_points(config: Config, size: TableSize) -> int:
    """Return the number of inducing points: as given, or by the budget of the effort.

    There are at most 3 √rows.
    """
    if config.n_inducing is not None:
        return inducing_count(config.n_inducing, size.total)
    if not config.method.recommended:
        return papers.POINTS

    # 6 M² + D M = affordable
    affordable = count_budget(config, size.latent) / (
        STEPS[config.effort] * STEP_ROWS * size.latent
    )
    root = math.sqrt(size.columns**2 + 4 * STEP_COST * affordable)
    points = int((root - size.columns) / (2 * STEP_COST))
    wanted = round(POINTS_PER_ROOT * math.sqrt(size.rows))
    return max(LEAST_POINTS, min(points, max(wanted, USUAL_POINTS)))


def count_visits(config: Config, size: TableSize, M: int) -> int:
    """Return how many row visits the steps of a budget can afford."""
    M = max(M, LEAST_M)
    return int(
        count_budget(config, size.latent)
        / (size.latent * M * (STEP_COST * M + size.columns))
    )


def count_seen(config: Config, size: TableSize) -> int:
    """Return how many rows the Gaussian process sees.

    It sees a sample if the budget does not allow a pass over all rows.
    """
    return min(size.rows, count_visits(config, size, count_points(config, size)))


def samples_rows(config: Config) -> bool:
    """Return whether the Gaussian process may see a sample of the rows only."""
    return config.method.recommended


def merges_equal_rows(config: Config) -> bool:
    """Return whether equal rows of equal labels are trained on as one."""
    return config.method.recommended


def places_points_between_rows(config: Config) -> bool:
    """Return whether no inducing point may be a row, nor depend on signs of columns."""
    return config.method.recommended


def fixes_rare_levels(config: Config) -> bool:
    """Return whether inducing inputs stay as they are along columns of rare levels."""
    return config.method.recommended
