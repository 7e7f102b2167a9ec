"""HTML from the templates in `static`.

Python computes the numbers; templates render them. Jinja, which torch installs, escapes
all text.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cavity.common.terms import TERMS, describe
from cavity.common.text_tables import list_names, name_column, shorten
from cavity.common.version import __version__
from cavity.prediction.estimate import format_loss
from cavity.report.colours import COLOURS, ON_DARK

MAX_NAMES = 6  # in a list of columns or classes
NAME_WIDTH = 40
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(value: Any) -> Any:
    """Convert a value to text without control characters; HTML stays as it is."""
    if isinstance(value, Markup):
        return value

    return CONTROL.sub("\ufffd", str(value))


def format_number(value: float, digits: int = 6) -> str:
    """Format a number with at most `digits` digits and separators of thousands.

    "–" stands for a number that is not finite.
    """
    if not math.isfinite(value):
        return "–"

    value = float(f"{value:.{digits}g}")
    if abs(value) < 1e-300:
        value = 0.0
    if 1e4 <= abs(value) < 1e9:
        return f"{value:,.12g}"

    return f"{value:g}"


def format_defined(value: float, form: str) -> str:
    if math.isfinite(value):
        return format(value, form)

    return "–"


def list_columns(names: list[str]) -> str:
    """Join names of columns or classes.

    Long names are cut, and names with a comma are quoted.
    """
    listed = []
    for name in names:
        short = shorten(name_column(name), NAME_WIDTH)
        listed.append(f"“{short}”" if "," in short else short)
    return list_names(listed, MAX_NAMES)


TEMPLATES = Environment(
    loader=PackageLoader("cavity.report", "static"),
    autoescape=True,
    extensions=["jinja2.ext.do"],
    finalize=clean,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "f": format_defined,
    "listed": list_columns,
    "loss": format_loss,
    "named": name_column,
    "number": format_number,
    "shorten": shorten,
    "term": describe,
}
STYLE = TEMPLATES.get_template("report.css").render(light=COLOURS, dark=ON_DARK)
SCRIPT = files("cavity.report").joinpath("static", "report.js").read_text("utf-8")


def render_report(**content: Any) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    content |= {
        "style": Markup(STYLE),
        "script": Markup(SCRIPT),
        "digest": digest,
        "colours": COLOURS,
        "version": __version__,
        "terms": TERMS.values(),
    }
    return TEMPLATES.get_template("report.html").render(content).strip() + "\n"
