"""The report in a real browser: no complaints on its console, figures are drawn, tables filter and sort.

Needs chromium; `make test-browser` installs it. Nothing is installed here.
"""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cavity import GPClassifier, report
from support import without_warnings

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None,
        reason=f"no browser found (looked for {', '.join(NAMES)}): make test-browser installs one",
    ),
]
ASK = """<script>
var wrong = []; window.onerror = function (message) { wrong.push(message); };
window.addEventListener("load", function () {
  var field = document.getElementById("rows-filter"), seen = [];
  var all = function (selector) { return Array.from(document.querySelectorAll(selector)); };
  function rows() { return all("#rows tbody tr").filter(function (r) { return r.offsetHeight > 0; }); }
  ["", "wrong", "hardest", "HARDEST wrong", "no such row"].forEach(function (words) {
    field.value = words; field.dispatchEvent(new Event("input"));
    seen.push(rows().length + "|" + document.getElementById("rows-count").textContent);
  });
  field.value = ""; field.dispatchEvent(new Event("input"));
  var numbers = function () { return rows().map(function (r) { return +r.cells[0].textContent; }).join(","); };
  var head = document.querySelector("#rows thead button"), sorted = [];
  head.click(); sorted.push(numbers()); head.click(); sorted.push(numbers());
  var dot = document.querySelector("circle.dot");
  dot.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  var tip = document.querySelector(".tip"), body = document.body;
  body.setAttribute("data-seen", seen.join(";"));
  body.setAttribute("data-sorted", sorted.join(";"));
  body.setAttribute("data-tip-text", tip.hidden ? "" : tip.textContent);
  body.setAttribute("data-drawn", all("svg").filter(function (s) { return s.getBoundingClientRect().width > 100; }).length);
  body.setAttribute("data-folded", all("details").filter(function (d) { return !d.open; }).length);
  body.setAttribute("data-wide", document.documentElement.scrollWidth - window.innerWidth);
  body.setAttribute("data-wrong", wrong.join(";"));
});
</script></body>"""


def opened(path: Path, profile: Path, after: str = "") -> tuple[str, str]:
    """The page's elements after loading, and what the browser wrote about it."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=400,800",
        "--enable-logging=stderr",
    ]
    command = [str(BROWSER), *options, f"--user-data-dir={profile}", "--dump-dom", path.as_uri() + after]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Path, int]:
    """The report, a folder for the browser, and how many of the least certain rows are wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.array(["<b>a</b>", "b", "c"])[(X[:, 0] + rng.normal(size=90) > 0).astype(int) + (X[:, 1] > 0.5)]
    with without_warnings():
        clf = GPClassifier(effort="fast", n_inducing=6, max_epochs=4, random_state=0).fit(X, y)
    folder = tmp_path_factory.mktemp("browser")
    path = report.write_report(clf, folder / "report.html", X, y)
    P = clf.predict_proba(X)
    hard = np.argsort(P[np.arange(90), np.searchsorted(clf.classes_, y)], kind="stable")[:15]
    return path, folder / "profile", int((clf.predict(X) != y)[hard].sum())


def find(dom: str, name: str) -> str:
    return re.search(rf'data-{name}="([^"]*)"', dom).group(1)


def test_it_opens_without_complaints_and_with_its_filter(written) -> None:
    path, profile, wrong = written
    dom, console = opened(path, profile, "#filter=hardest%20wrong")
    assert "CONSOLE" not in console, [line for line in console.splitlines() if "CONSOLE" in line]
    body = re.search(r'id="rows".*?<tbody>(.*?)</tbody>', dom, re.DOTALL).group(1)
    total = body.count("<tr")
    assert f"{wrong} of {total} rows" in dom and 0 < wrong <= 15 < total
    assert body.count("<tr>") == wrong and body.count('<tr hidden="">') == total - wrong


def test_tables_filter_and_sort_marks_have_tooltips_and_a_phone_needs_no_scrolling(written) -> None:
    path, profile, wrong = written
    text = path.read_text(encoding="utf-8")
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    asked = path.with_name("asked.html")
    asked.write_text(without_policy.replace("</body>", ASK), encoding="utf-8")
    dom, console = opened(asked, profile)
    assert "CONSOLE" not in console and 'data-wrong=""' in dom
    seen = find(dom, "seen").split(";")
    total = seen[0].split(" ")[2]
    assert [s.split("|")[0] + f" of {total} rows" for s in seen] == [s.split("|")[1] for s in seen]
    counts = [int(s.split("|")[0]) for s in seen]
    assert counts[0] == int(total) > counts[2] == 15 and counts[3:] == [wrong, 0] and counts[1] >= wrong
    up, down = ([int(n) for n in part.split(",")] for part in find(dom, "sorted").split(";"))
    assert up == sorted(up) == down[::-1] and len(up) == int(total)
    assert re.search(r"rows: says \d+%, right \d+%", find(dom, "tip-text"))
    assert int(find(dom, "folded")) == text.count("<details>") == 4
    assert int(find(dom, "drawn")) == text.count("<svg") > 4
    assert int(find(dom, "wide")) <= 0
