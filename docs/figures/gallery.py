"""Draw the pictures of docs/tutorial.md: plots, the examples, and pages as a browser
shows them.

    python docs/figures/gallery.py

Pages need chromium (`make test-browser` installs it); without it their pictures stay as
they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from cavity import GPClassifier, plots

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def draw_plots() -> None:
    """Draw every plot of the library for two moons."""
    X, y = make_moons(500, noise=0.25, random_state=0)
    clf = GPClassifier(random_state=0).fit(X[:200], y[:200])
    P = clf.predict_proba(X[200:])
    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.subplots(1, 2)
    plots.decision_regions(clf, X[:200], y[:200], axes[0])
    plots.reliability_diagram(P, y[200:], axes[1])
    figure.savefig(HERE / "plots.png", dpi=60, metadata={"Software": None})


def take_picture(url: str, name: str, height: int) -> None:
    """Save what a browser shows of a page."""
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        options += [
            "--virtual-time-budget=8000",
            f"--window-size=1240,{height}",
            f"--screenshot={HERE / name}",
        ]
        subprocess.run([str(BROWSER), *options, url], check=True, capture_output=True)


def main() -> None:
    draw_plots()
    with tempfile.TemporaryDirectory() as folder:
        run = {"cwd": folder, "check": True, "env": os.environ | {"TMPDIR": folder}}
        subprocess.run([sys.executable, ROOT / "examples/demo.py"], **run)
        shutil.copy(Path(folder) / "demo-output/demo.png", HERE / "demo.png")
        subprocess.run([sys.executable, ROOT / "examples/table_to_report.py"], **run)
        if BROWSER is None:
            return
        (report,) = Path(folder).glob("*/report.html")
        take_picture(report.as_uri(), "report.png", 1100)
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cavity",
                "serve",
                report.with_name("penguins.cavity"),
                "--port",
                "8765",
            ]
        )
        time.sleep(20)  # until it answers
        take_picture("http://localhost:8765", "serve.png", 920)
        server.terminate()


if __name__ == "__main__":
    main()
