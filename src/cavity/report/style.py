"""Style sheet of the report, and the matplotlib style of figures."""

from typing import Any

from cavity.report.colours import COLOURS, ON_DARK

FIGURE_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
}

_DARK = """--shade:#8a93a380;--paper:#14161a;--ink:#e4e6ea;--soft:#a3a9b4;--line:#343941;--accent:#7fb2ea;--card:#1b1e23;
 --good:#63c08f;--fair:#e0b04a;
 --bad:#f08a8a"""
_LIGHT = """--shade:#0003;--paper:#fff;--ink:#22252a;--soft:#5c6370;--line:#dfe2e6;--accent:#2f6db3;--card:#f6f7f9;--good:#1f7a4d;
 --fair:#946200;
 --bad:#b3261e"""
_SERIES = "\n".join(
    f".line.c{k},.whisker.c{k}{{stroke:var(--c{k})}} .dot.c{k},.band.c{k}{{fill:var(--c{k})}} "
    f".key.c{k}{{background:var(--c{k})}} .hollow.c{k}{{stroke:var(--c{k})}}"
    for k in range(len(COLOURS))
)


def _set_series(colours: tuple[str, ...]) -> str:
    return ";".join(f"--c{k}:{colour}" for k, colour in enumerate(colours))


# A table that is wider than the page has a shadow on the side where more columns are.
_SCROLL_SHADOWS = (
    "linear-gradient(90deg,var(--paper) 30%,transparent) 0 0/2.5rem 100% no-repeat local,"
    "linear-gradient(270deg,var(--paper) 30%,transparent) 100% 0/2.5rem 100% no-repeat local,"
    "linear-gradient(90deg,var(--shade),transparent) 0 0/.9rem 100% no-repeat scroll,"
    "linear-gradient(270deg,var(--shade),transparent) 100% 0/.9rem 100% no-repeat scroll"
)

STYLE = f"""
:root{{{_LIGHT};{_set_series(COLOURS)};color-scheme:light dark}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK};{_set_series(ON_DARK)}}}}}
*{{box-sizing:border-box}}
html{{scroll-behavior:smooth;-webkit-text-size-adjust:100%}}
body{{margin:0 auto;max-width:72rem;padding:1rem clamp(.75rem,3vw,2rem);background:var(--paper);color:var(--ink);
 font:1rem/1.55 system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK JP","Hiragino Sans","Yu Gothic",sans-serif;
 overflow-wrap:anywhere}}
h1{{font-size:1.5rem;line-height:1.25;margin:.5rem 0}}
h2{{font-size:1.25rem;margin:2.4rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}}
h3{{font-size:1rem;margin:0 0 .4rem}}
p,li{{max-width:46rem}}
a{{color:var(--accent)}}
:focus-visible{{outline:3px solid var(--accent);outline-offset:2px}}
.skip{{position:absolute;left:-999px}}
.skip:focus{{position:static}}
.verdict{{display:inline-block;margin:.2rem 0;padding:.2rem .75rem;border-radius:1rem;border:2px solid;font-weight:600}}
.verdict.good{{color:var(--good)}} .verdict.fair{{color:var(--fair)}} .verdict.bad{{color:var(--bad)}}
.lead p{{font-size:1.1rem;margin:.5rem 0}}
.note{{border-left:4px solid var(--fair);padding:.3rem .8rem;background:var(--card)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0}}
.tiles div{{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}}
.tiles dt{{color:var(--soft);font-size:.85rem}} .tiles dd{{margin:0}}
.tiles strong{{display:block;font-size:1.5rem;font-variant-numeric:tabular-nums}} .tiles span{{color:var(--soft);
 font-size:.85rem}}
nav ul{{display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;margin:.5rem 0;list-style:none;font-size:.95rem}}
.grid{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1rem;margin:1rem 0;
 align-items:start}}
figure{{margin:0;padding:.75rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem;min-width:0;
 break-inside:avoid}}
figcaption{{color:var(--soft);font-size:.85rem;margin-top:.4rem}}
svg{{display:block;width:100%;max-width:30rem;height:auto;margin:0 auto;font-size:12px}}
svg text{{fill:var(--soft)}} svg .axis{{fill:var(--ink)}} svg .grid{{stroke:var(--line);stroke-width:1}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}} .line.reference{{stroke:var(--soft);stroke-width:1.2;
 stroke-dasharray:4 3}}
.band{{opacity:.18}} .whisker{{stroke-width:2;opacity:.6}} .dot.pale{{opacity:.6}}
svg .dot{{stroke:var(--soft);stroke-width:.4}}
.dot[data-tip]:hover{{stroke:var(--ink);stroke-width:2}}
{_SERIES}
svg .dot.hollow{{fill:var(--card);stroke-width:2}}
.legend{{display:flex;flex-wrap:wrap;gap:.1rem .9rem;list-style:none;padding:0;margin:0 0 .4rem;font-size:.85rem}}
.key{{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin-right:.35em}}
.tip{{position:fixed;z-index:9;max-width:min(20rem,90vw);background:var(--ink);color:var(--paper);padding:.25rem .6rem;
 border-radius:.35rem;
 font-size:.85rem;pointer-events:none}}
.tip[hidden]{{display:none}}
.wide{{overflow-x:auto;margin:.8rem 0;max-width:100%;background:{_SCROLL_SHADOWS}}}
table{{border-collapse:collapse;font-size:.92rem}}
caption{{text-align:left;color:var(--soft);padding:.3rem 0}}
th,td{{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;
 overflow-wrap:normal;max-width:22rem}}
.short{{white-space:nowrap}} .sortable td:not(.short){{min-width:16rem}}
thead th{{color:var(--soft);font-weight:600;vertical-align:bottom}}
tbody th{{font-weight:600}}
thead button{{font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;margin:0;text-align:left;
 cursor:pointer}}
thead button:hover{{color:var(--accent)}}
th[aria-sort=ascending] button::after{{content:" ▲"}} th[aria-sort=descending] button::after{{content:" ▼"}}
.numbers td{{font-variant-numeric:tabular-nums}}
.facts td{{overflow-wrap:anywhere}}
.bars{{width:100%;max-width:46rem}} .bars td:last-child{{white-space:nowrap;width:1%}} .bars tbody th{{max-width:14rem;
 overflow-wrap:break-word}}
.bar{{width:50%;min-width:5rem;vertical-align:middle}} .bar span{{display:block;height:.9rem;min-width:1px;
 background:var(--c0);border-radius:2px}}
.confusion td{{text-align:center;padding:.35rem .6rem;min-width:2.6rem;border:1px solid var(--paper)}}
.confusion thead th{{padding-left:.6rem;text-align:center;max-width:9rem;overflow-wrap:break-word}}
.confusion .full{{color:#fff}}
.filter{{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center}}
.filter[hidden]{{display:none}}
input{{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);border-radius:.35rem;padding:.35rem .6rem;
 flex:1 1 14rem;min-width:0;max-width:24rem}}
output{{color:var(--soft)}}
details>summary{{cursor:pointer}} details>summary h2{{display:inline-block;border:0;margin:2rem 0 .4rem}}
.warnings li{{margin:.4rem 0}}
footer{{margin-top:3rem;color:var(--soft);font-size:.9rem}}
@media print{{
 nav,.filter,.skip,.tip{{display:none}} body{{max-width:none;padding:0;font-size:10pt}} h2{{break-after:avoid}}
 tr,.confusion{{break-inside:avoid}}
 .wide{{overflow:visible;background:none}} table{{font-size:8pt}} .short{{white-space:normal}} #rows{{font-size:6.5pt}}
 .sortable td:not(.short){{min-width:0}} th,td{{padding-right:.5em;overflow-wrap:break-word;word-break:keep-all}}
 .grid{{grid-template-columns:repeat(3,1fr)}} thead button{{color:inherit}}
 *{{-webkit-print-color-adjust:exact;print-color-adjust:exact}}}}
"""
