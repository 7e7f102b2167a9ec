"""The report in a real browser: no complaints on its console, figures are drawn, tables
sort.

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

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None,
        reason=f"no browser found (looked for {', '.join(NAMES)}): make test-browser "
        f"installs one",
    ),
]
ASK = """<script>
var wrong = []; window.onerror = function (message) { wrong.push(message); };
window.addEventListener("load", function () {
  var all = function (selector) { return Array.from(document.querySelectorAll(selector)); };
  var rows = function () { return all("#rows tbody tr"); };
  var numbers = function () { return rows().map(function (r) { return +r.cells[0].textContent; }).join(","); };
  var head = document.querySelector("#rows thead button"), sorted = [];
  head.click(); sorted.push(numbers()); head.click(); sorted.push(numbers());
  var dot = document.querySelector("circle.dot");
  dot.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  var tip = document.querySelector(".tip"), body = document.body;
  body.setAttribute("data-sorted", sorted.join(";"));
  body.setAttribute("data-tip-text", tip.hidden ? "" : tip.textContent);
  body.setAttribute("data-drawn", all("svg").filter(function (s) { return s.getBoundingClientRect().width > 100; }).length);
  body.setAttribute("data-folded", all("details").filter(function (d) { return !d.open; }).length);
  body.setAttribute("data-wide", document.documentElement.scrollWidth - window.innerWidth);
  body.setAttribute("data-wrong", wrong.join(";"));
});
</script></body>"""


def opened(path: Path, profile: Path, width: int = 400) -> tuple[str, str]:
    """The page's elements after loading, and what the browser wrote about it."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},800",
        "--enable-logging=stderr",
    ]
    command = [
        str(BROWSER),
        *options,
        f"--user-data-dir={profile}",
        "--dump-dom",
        path.as_uri(),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Path]:
    """The report, and a folder for the browser."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.array(["<b>a</b>", "b", "c"])[
        (X[:, 0] + rng.normal(size=90) > 0).astype(int) + (X[:, 1] > 0.5)
    ]
    with without_warnings():
        clf = GPClassifier(
            effort="fast", n_inducing=6, max_epochs=4, random_state=0
        ).fit(X, y)
    folder = tmp_path_factory.mktemp("browser")
    path = report.write_report(clf, folder / "report.html", X, y)
    return path, folder / "profile"


MEASURE = """<script>
window.addEventListener("load", function () {
  var wide = Array.from(document.querySelectorAll(".half .wide")).filter(function (box) { return box.scrollWidth > box.clientWidth + 1; });
  document.body.setAttribute("data-scrolled", wide.length);
});
</script></body>"""


@pytest.mark.parametrize("width", [390, 1280])
def test_scores_and_confusions_of_nine_classes_need_no_scrolling(
    width: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 2))
    y = np.array([f"a class with a long name {k}" for k in range(9)])[
        np.arange(180) % 9
    ]
    with without_warnings():
        clf = GPClassifier(
            effort="fast", n_inducing=6, max_epochs=4, random_state=0
        ).fit(X, y)
    path = report.write_report(clf, tmp_path / "report.html", X, y)
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path.write_text(text.replace("</body>", MEASURE), encoding="utf-8")
    dom, _ = opened(path, tmp_path / "profile", width)
    assert find(dom, "scrolled") == "0"


def find(dom: str, name: str) -> str:
    return re.search(rf'data-{name}="([^"]*)"', dom).group(1)


def test_it_opens_without_complaints_tables_sort_marks_have_tooltips_and_a_phone_needs_no_scrolling(
    written,
) -> None:
    path, profile = written
    _, console = opened(path, profile)
    assert "CONSOLE" not in console, [
        line for line in console.splitlines() if "CONSOLE" in line
    ]
    text = path.read_text(encoding="utf-8")
    without_policy = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text
    )
    asked = path.with_name("asked.html")
    asked.write_text(without_policy.replace("</body>", ASK), encoding="utf-8")
    dom, console = opened(asked, profile)
    assert "CONSOLE" not in console and 'data-wrong=""' in dom
    up, down = (
        [int(n) for n in part.split(",")] for part in find(dom, "sorted").split(";")
    )
    assert up == sorted(up) == down[::-1] and len(up) > 15
    assert re.search(r"\d+ rows: .* \d+%, true \d+%", find(dom, "tip-text"))
    assert int(find(dom, "folded")) == text.count("<details>") == 5
    assert int(find(dom, "drawn")) == text.count("<svg") > 3
    assert int(find(dom, "wide")) <= 0
