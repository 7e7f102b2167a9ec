"""The report in a real browser: no complaints on its console, every figure loads, the filter filters.

Needs chromium; `make test-browser` installs it. Nothing is installed here.
"""

import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from cavity import GPClassifier, report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason=f"no browser found (looked for {', '.join(NAMES)}): make test-browser installs one",
)
ASK = """<script>
var wrong = []; window.onerror = function (message) { wrong.push(message); };
window.addEventListener("load", function () {
  var field = document.getElementById("filter"), seen = [];
  function shown() {
    return Array.from(document.querySelectorAll("#certain tbody tr")).filter(function (r) { return r.offsetHeight > 0; }).length;
  }
  ["", "wrong", "least", "most", "LEAST wrong", "no such row"].forEach(function (words) {
    field.value = words; field.dispatchEvent(new Event("input"));
    seen.push(shown() + "|" + document.getElementById("filter-count").textContent);
  });
  var images = Array.from(document.images);
  document.body.setAttribute("data-seen", seen.join(";"));
  document.body.setAttribute("data-images", images.filter(function (i) { return i.naturalWidth > 100; }).length);
  document.body.setAttribute("data-wide", document.documentElement.scrollWidth - window.innerWidth);
  document.body.setAttribute("data-wrong", wrong.join(";"));
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(n_inducing=6, max_epochs=4, random_state=0).fit(X, y)
    folder = tmp_path_factory.mktemp("browser")
    path = report.write_report(clf, folder / "report.html", X, y)
    least = np.argsort(clf.predict_proba(X).max(1), kind="stable")[:15]
    return path, folder / "profile", int((clf.predict(X) != y)[least].sum())


def test_it_opens_without_complaints_and_with_its_filter(written) -> None:
    path, profile, wrong = written
    dom, console = opened(path, profile, "#filter=least%20wrong")
    assert "CONSOLE" not in console, [line for line in console.splitlines() if "CONSOLE" in line]
    assert f"{wrong} of 30 rows" in dom and 0 < wrong < 15
    body = re.search(r'id="certain".*?<tbody>(.*?)</tbody>', dom, re.DOTALL).group(1)
    assert body.count("<tr>") == wrong and body.count('<tr hidden="">') == 30 - wrong


def test_typing_filters_every_figure_is_drawn_and_a_phone_needs_no_scrolling(written) -> None:
    path, profile, wrong = written
    text = path.read_text(encoding="utf-8")
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    asked = path.with_name("asked.html")
    asked.write_text(without_policy.replace("</body>", ASK), encoding="utf-8")
    dom, console = opened(asked, profile)
    seen = re.search(r'data-seen="([^"]*)"', dom).group(1).split(";")
    assert "CONSOLE" not in console and 'data-wrong=""' in dom
    assert [s.split("|")[0] + " of 30 rows" for s in seen] == [s.split("|")[1] for s in seen]
    counts = [int(s.split("|")[0]) for s in seen]
    assert counts[0] == 30 and counts[2:] == [15, 15, wrong, 0] and counts[1] >= wrong
    assert f'data-images="{text.count("<figure")}"' in dom and text.count("<figure") == 6
    assert int(re.search(r'data-wide="(-?\d+)"', dom).group(1)) <= 0
