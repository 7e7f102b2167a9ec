"""The page / to try the model: its files, and what it must know about the columns.

The files hold nothing of the model. /schema does, and asks for the token. The page
computes curves and contributions from answers of /predict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

import numpy as np

from cavity.cli.models import Model
from cavity.cli.serving.server_settings import Limits
from cavity.common.terms import TERMS
from cavity.errors import BadFile
from cavity.prediction.decisions import Costs
from cavity.prediction.model import as_array
from cavity.report.colours import COLOURS, ON_DARK
from cavity.tables.columns.column_kinds import Category, Column, Date, Number, Unchanged
from cavity.tables.columns.text_kind import Text

SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {"content-security-policy": SECURITY_POLICY, "cache-control": "no-cache"}
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
# standard deviations; a slider ends there, so that one large value does not spoil it
SPREAD = 4.0
MINUTE = 1 / 1440  # of a day
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the cells that a contribution compares with
OTHERS = (-1.28, -0.52, 0.0, 0.52, 1.28)  # their standard normal quantiles
WORDS = ("aleatoric", "epistemic", "contribution")  # terms that the page explains
LARGEST = 1e305  # of centres and spreads; a fit takes ranges up to 1e304
MOST_DIGITS = 300  # 10**300 is a float
MOST_LEVELS = 8  # that a contribution compares with


def read_page_file(name: str) -> bytes:
    """Return a file of the page; the style sheet begins with the colours of classes."""
    text = files("cavity.cli.serving").joinpath("static", name).read_bytes()
    if name != "page.css":
        return text

    light = _list_colours(COLOURS)
    dark = _list_colours(ON_DARK)
    head = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
    return head.encode() + text


def _list_colours(colours: Sequence[str]) -> str:
    return "".join(f"--c{k}:{colour};" for k, colour in enumerate(colours))


def describe_model(
    model: Model, limits: Limits, costs: Costs | None = None
) -> dict[str, Any]:
    """Describe the model for its page and for programs.

    Each column has its range, a typical cell and other cells.
    """
    fitted = model.result.model
    center = as_array(fitted.center)
    points = fitted.inducing_points.reshape(-1, len(center))
    spread = as_array(fitted.spread)
    typical = _find_typical(points, center, spread)
    with np.errstate(over="ignore"):
        most = 3 * spread
    low = center - most
    high = center + most
    if not (max(abs(low).max(), abs(high).max()) < LARGEST):
        raise BadFile("the file's columns are too large: fit again, in other units.")
    if len(points):
        points = np.clip(points, low, high)  # learnt points may be far from all rows
    else:
        points = np.stack([low, high])

    columns = list[dict[str, Any]]()
    place = 0
    for column in model.prepare.columns_:
        end = place + len(column.features)
        about = _describe_column(column, center[place:end], points[:, place])
        about["typical"] = _choose_cell(column, about, typical[place:end])
        columns.append(about)
        place = end

    return {
        "target": model.target,
        "classes": model.labels or None,
        "decisions": None if costs is None else _describe_costs(costs, model.labels),
        "columns": columns,
        "named": model.has_names,
        "novelty": model.result.novelty is not None,
        "terms": {word: TERMS[word].meaning for word in WORDS},
        "most_rows": limits.rows,
        "most_bytes": limits.bytes,
    }


def _find_typical(points: Any, center: Any, spread: Any) -> Any:
    """Return the inducing point nearest to the centre.

    Its cells belong together, as in a training row, unlike the mean or the most
    frequent cell of each column.
    """
    if not len(points):
        return center

    distance = (((points - center) / spread) ** 2).sum(1)
    return points[distance.argmin()]


def _choose_cell(column: Column, about: dict[str, Any], features: Any) -> Any:
    """Return the cell whose features are nearest, on the steps of the column."""
    if isinstance(column, Category):
        return column.levels[int(features[: len(column.levels)].argmax())]
    if about["kind"] != "number":
        return about["typical"]

    value = float(features[0])
    if isinstance(column, Number):
        value = column.mean + column.scale * value
    value = min(max(value, about["low"]), about["high"])
    digits = round(-math.log10(about["step"]))
    return round(value, digits)


def _describe_costs(costs: Costs, labels: list[str]) -> dict[str, Any]:
    """Describe the costs by true class and action; null is the action of refusing."""
    actions: list[str | None] = [*labels]
    if costs.refuses:
        actions.append(None)
    threshold = None
    if len(labels) == 2:
        threshold = costs.threshold(labels)._asdict()
    return {
        "actions": actions,
        "costs": costs.matrix(labels).tolist(),
        "threshold": threshold,
    }


def _describe_column(column: Column, center: Any, points: Any) -> dict[str, Any]:
    """Describe a column, given its features' means and the first one's inducing points."""
    missing = getattr(column, "missing", False)
    about: dict[str, Any] = {"name": column.name, "missing": missing}
    if isinstance(column, Category):
        order = np.argsort(-center[: len(column.levels)], kind="stable")
        frequent = [column.levels[k] for k in order[:MOST_LEVELS]]
        return about | _describe_levels(column.levels, frequent)
    if isinstance(column, Text):
        levels = _describe_levels(column.examples, column.examples)
        return about | levels | {"free": True}
    if isinstance(column, Date):
        return about | _describe_date(column)

    return about | _describe_number(column, float(center[0]), points)


def _describe_levels(levels: Sequence[str], frequent: Sequence[str]) -> dict[str, Any]:
    return {
        "kind": "category",
        "levels": levels,
        "typical": frequent[0],
        "others": frequent,
    }


def _describe_number(
    column: Number | Unchanged, center: float, points: Any
) -> dict[str, Any]:
    if isinstance(column, Unchanged):
        # the file has only inducing points, which are near the training rows
        mean = center
        size = float(abs(points).max()) or 1.0  # squares may overflow
        scale = size * float((points / size).std()) or 1.0
        low = float(points.min())
        high = float(points.max())
    else:
        mean = column.mean
        scale = column.scale
        low = mean - 3 * scale if column.low is None else column.low
        high = mean + 3 * scale if column.high is None else column.high

    variance = mean * (1 - mean)  # of a column with only 0 and 1
    isclose = math.isclose(scale * scale, variance, abs_tol=1e-9)
    binary = (low, high) == (0, 1) and isclose
    whole = float(low).is_integer() and float(high).is_integer()
    low = max(low, mean - SPREAD * scale)
    high = min(high, mean + SPREAD * scale)
    if whole and low < high:
        low = float(math.floor(low))
        high = float(math.ceil(high))
    if not low < high:
        unit = max(scale, 2 * float(np.spacing(abs(mean))))  # 1e20 + 1 is 1e20
        low = mean - unit
        high = mean + unit

    digits = 0
    if not binary and not (whole and 1 < high - low <= 100):
        digits = 2 - math.floor(math.log10(high - low))
        digits = min(max(digits, -MOST_DIGITS), MOST_DIGITS)
    others = [round(min(max(mean + q * scale, low), high), digits) for q in OTHERS]
    low = math.floor(low * 10**digits) / 10**digits
    high = math.ceil(high * 10**digits) / 10**digits
    return {
        "kind": "number",
        "low": low,
        "high": high,
        "step": 10.0**-digits,
        "typical": round(mean, digits),
        "others": others,
    }


def _describe_date(column: Date) -> dict[str, Any]:
    """Describe dates: low, high and step are days since 1970, cells are texts."""
    if column.parts == ("clock",):
        form = "time"
    elif "clock" in column.parts:
        form = "datetime-local"
    else:
        form = "date"

    low = column.low
    high = column.high
    if form == "time":
        low = 0.0
        high = 1.0 - MINUTE
    high = max(high, low + 1 / 24)
    typical = min(max(column.days[0], low), high)
    return {
        "kind": "date",
        "form": form,
        "low": low,
        "high": high,
        "step": 1.0 if form == "date" else MINUTE,
        "typical": _format_date(typical, form),
        "others": [_format_date(low + share * (high - low), form) for share in SHARES],
    }


def _format_date(days: float, form: str) -> str:
    moment = datetime(1970, 1, 1) + timedelta(minutes=round(days / MINUTE))
    text = moment.isoformat(timespec="minutes")
    day, _, clock = text.partition("T")
    return {"date": day, "time": clock, "datetime-local": text}[form]
