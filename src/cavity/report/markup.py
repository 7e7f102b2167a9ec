"""HTML of the report: escaping, tables, and the page around them. All text is escaped here."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from cavity._version import __version__
from cavity.report.colours import COLOURS, ON_DARK, name_series

Facts = list[tuple[str, str]]
MAX_CELL = 80  # characters; a longer text has the rest in its tooltip
SHORT = 24  # characters that stay in one line
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def _read(name: str) -> str:
    return files("cavity.report").joinpath("static", name).read_text("utf-8")


SCRIPT = _read("report.js")
STYLE = (
    _read("report.css")
    .replace("/*light colours*/", ";".join(f"--c{k}:{colour}" for k, colour in enumerate(COLOURS)))
    .replace("/*dark colours*/", ";".join(f"--c{k}:{colour}" for k, colour in enumerate(ON_DARK)))
    .replace(
        "/*classes*/",
        "\n".join(
            f".line.c{k},.whisker.c{k}{{stroke:var(--c{k})}} .dot.c{k},.band.c{k}{{fill:var(--c{k})}} "
            f".key.c{k}{{background:var(--c{k})}} .hollow.c{k}{{stroke:var(--c{k})}}"
            for k in range(len(COLOURS))
        ),
    )
)


class Section(NamedTuple):
    """Section of the page; a folded one opens on a click."""

    name: str
    head: str
    inside: str  # HTML; a section without any is left out
    folded: bool = False


def escape_text(value: Any) -> str:
    """Convert a value to text and escape it for HTML."""
    return escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def render_document(title: str, sections: Iterable[Section], lead: str = "") -> str:
    """Render the page: a title, the headline in HTML, then sections."""
    present = [section for section in sections if section.inside]
    links = "".join(f'<li><a href="#{s.name}">{escape_text(s.head)}</a></li>' for s in present)
    body = "".join(map(_render_section, present))
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f'<a class="skip" href="#content">Skip to the content</a>\n<header><h1>{escape_text(title)}</h1></header>\n'
        f'<main id="content">\n{lead}<nav aria-label="Sections"><ul>{links}</ul></nav>\n{body}</main>\n'
        f"<footer><p>Written by cavity {escape_text(__version__)}. This page works offline and sends no data.</p></footer>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _render_section(section: Section) -> str:
    name, head = section.name, escape_text(section.head)
    title = f'<h2 id="{name}-head">{head}</h2>'
    inside = title + section.inside
    if section.folded:
        inside = f"<details><summary>{title}</summary>{section.inside}</details>"
    return f'<section id="{name}" aria-labelledby="{name}-head">{inside}</section>\n'


def render_paragraph(text: str) -> str:
    return f"<p>{escape_text(text)}</p>" if text else ""


def grid(figures: str) -> str:
    return f'<div class="grid">{figures}</div>'


def render_list(items: Sequence[str], kind: str = "") -> str:
    """Render a list of plain texts; nothing if there are none."""
    inside = "".join(f"<li>{escape_text(m)}</li>" for m in items)
    return f'<ul class="{kind}">{inside}</ul>' if items else ""


def render_facts(facts: Facts, caption: str) -> str:
    pairs = ((escape_text(name), escape_text(value)) for name, value in facts)
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in pairs)
    return scroll(caption, f"<tbody>{rows}</tbody>", "facts")


def scroll(caption: str, inside: str, kind: str = "", name: str = "") -> str:
    """Render a table that can be scrolled sideways on a narrow screen, also with the keyboard."""
    named = f' id="{name}"' if name else ""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape_text(caption)}"><table{named} class="{kind}">'
        f"<caption>{escape_text(caption)}</caption>{inside}</table></div>"
    )


def render_table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], total: int = 0, name: str = ""
) -> str:
    """Render a table that a click on its head sorts, and how many of `total` rows it leaves out.

    With a name, a field above it filters the rows; it is hidden if scripts are disabled.
    """
    names = "".join(f'<th scope="col"{_keep(cell)}>{escape_text(cell)}</th>' for cell in head)
    cells = "".join(
        f'<tr><th scope="row"{_keep(row[0])}>{_render_cell(row[0])}</th>'
        + "".join(f"<td{_keep(v)}>{_render_cell(v)}</td>" for v in row[1:])
        + "</tr>"
        for row in rows
    )
    more = f"<p>and {total - len(rows)} more.</p>" if total > len(rows) else ""
    inside = f"<thead><tr>{names}</tr></thead><tbody>{cells}</tbody>"
    table = scroll(caption, inside, "numbers sortable", name)
    return (_render_filter(name, len(rows)) if name else "") + table + more


def _keep(value: str) -> str:
    """Return a class that keeps a short text in one line."""
    return ' class="short"' if len(value) <= SHORT else ""


def _render_cell(value: str) -> str:
    if len(value) <= MAX_CELL:
        return escape_text(value)
    return f'<span title="{escape_text(value)}">{escape_text(value[: MAX_CELL - 1])}…</span>'


def _render_filter(name: str, rows: int) -> str:
    return (
        f'<form class="filter" data-table="{name}" hidden><label for="{name}-filter">Filter the rows</label>'
        f'<input type="search" id="{name}-filter" autocomplete="off" placeholder="a class, wrong, hardest …" '
        f'aria-controls="{name}"><output id="{name}-count" for="{name}-filter" role="status">{rows} of {rows} rows</output></form>'
    )


def render_tiles(tiles: Sequence[tuple[str, str, str]]) -> str:
    """Render the main numbers: what, how much, and what to compare it with."""
    inside = "".join(
        f"<div><dt>{escape_text(what)}</dt><dd><strong>{escape_text(value)}</strong>"
        f"<span>{escape_text(beside)}</span></dd></div>"
        for what, value, beside in tiles
    )
    return f'<dl class="tiles">{inside}</dl>'


def render_bars(
    caption: str, names: Sequence[str], values: Sequence[float], texts: Sequence[str], head: tuple[str, str]
) -> str:
    """Render a table of horizontal bars; negative values have none."""
    longest = max([*values, 1e-300])
    rows = "".join(
        f'<tr><th scope="row">{_render_cell(name)}</th><td class="bar"><span style="width:{100 * max(value, 0) / longest:.1f}%">'
        f"</span></td><td>{escape_text(text)}</td></tr>"
        for name, value, text in zip(names, values, texts, strict=True)
    )
    first, second = map(escape_text, head)
    columns = f'<th scope="col">{first}</th><th scope="col" colspan="2">{second}</th>'
    return scroll(caption, f"<thead><tr>{columns}</tr></thead><tbody>{rows}</tbody>", "bars numbers")


def render_figure(name: str, drawing: str, caption: str, head: str = "", legend: str = "") -> str:
    """Render a figure: a drawing in HTML with its title, its legend in HTML, and a caption."""
    title = f"<h3>{escape_text(head)}</h3>" if head else ""
    return (
        f'<figure id="figure-{name}">{title}{legend}{drawing}'
        f"<figcaption>{escape_text(caption)}</figcaption></figure>"
    )


def render_legend(names: Mapping[int, str]) -> str:
    """Render the colours of classes, given their numbers and names."""
    items = "".join(
        f'<li><span class="key {name_series(k)}"></span>{escape_text(n)}</li>' for k, n in names.items()
    )
    return f'<ul class="legend">{items}</ul>'
