"""Style sheet and script of the report, and the matplotlib style of its figures."""

from typing import Any

FIGURE_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
}

STYLE = """
:root{--paper:#fff;--ink:#22252a;--soft:#5c6370;--line:#dfe2e6;--accent:#2f6db3;--card:#f6f7f9;color-scheme:light dark}
@media (prefers-color-scheme:dark){
 :root{--paper:#14161a;--ink:#e4e6ea;--soft:#a3a9b4;--line:#343941;--accent:#7fb2ea;--card:#1b1e23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--paper);color:var(--ink);
 font:1rem/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
a{color:var(--accent)}
a:focus-visible,input:focus-visible,.wide:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-999px}
.skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;margin:.5rem 0;list-style:none}
figure{margin:1rem 0;padding:.75rem;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
img{display:block;max-width:100%;height:auto;margin:0 auto}
figcaption{color:var(--soft);font-size:.9rem;margin-top:.5rem}
.wide{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-size:.92rem;min-width:50%}
caption{text-align:left;color:var(--soft);padding:.3rem 0}
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:normal}
thead th{color:var(--soft);font-weight:600;white-space:nowrap}
tbody th{font-weight:600}
.numbers td{font-variant-numeric:tabular-nums}
.facts td{overflow-wrap:anywhere}
.filter{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center}
.filter[hidden]{display:none}
input{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);border-radius:.35rem;padding:.35rem .6rem;
 flex:1 1 14rem;min-width:0}
output{color:var(--soft)}
.warnings li{margin:.4rem 0}
footer{margin-top:3rem;color:var(--soft);font-size:.9rem}
@media print{nav,.filter,.skip{display:none}}
"""

# Filter of the table of rows: shows rows that contain all words.
SCRIPT = """
(function () {
  "use strict";
  var form = document.getElementById("filter-form"), table = document.getElementById("certain");
  if (!form || !table) { return; }
  var field = document.getElementById("filter"), count = document.getElementById("filter-count");
  var rows = Array.prototype.slice.call(table.tBodies[0].rows);
  var texts = rows.map(function (row) {
    return Array.prototype.map.call(row.cells, function (cell) { return cell.textContent; }).join(" ").toLowerCase();
  });
  function apply() {
    var words = field.value.toLowerCase().split(/\\s+/).filter(Boolean), shown = 0;
    rows.forEach(function (row, k) {
      var fits = words.every(function (word) { return texts[k].indexOf(word) >= 0; });
      row.hidden = !fits;
      if (fits) { shown += 1; }
    });
    count.textContent = shown + " of " + rows.length + " rows";
  }
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  field.addEventListener("input", apply);
  form.hidden = false;
  if (location.hash.indexOf("#filter=") === 0) {
    try { field.value = decodeURIComponent(location.hash.slice(8)); } catch (wrong) { field.value = ""; }
  }
  apply();
})();
"""
