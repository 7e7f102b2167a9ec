"""Code blocks of the documents run, names and links exist, and the README works on PyPI."""

import inspect
import re
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier
from support import slow

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ELSEWHERE = {
    "autogluon.md",
    "clusters.md",
}  # need the engines that they name: tests/cluster runs them, section by section
LONG = {"coming-from.md", "scale.md", "selection.md", "uncertainty.md"}  # seconds each
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
HOME = "https://github.com/cavity-gp/cavity"
OURS = re.compile(rf"\]\({HOME}/(?:blob|raw)/main/([^)#]+)")
UNCLEAR = re.compile(r"\bis no [a-z]|\bare no [a-z]|numbers a row|, among (it|them)\b")


def code(page: Path) -> str:
    """Return the Python blocks of a page, each on its own line numbers."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        body = block.group(1).splitlines()
        lines[first : first + len(body)] = body
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page",
    [
        slow(p) if p.name in LONG else p
        for p in PAGES
        if BLOCK.search(p.read_text(encoding="utf-8")) and p.name not in ELSEWHERE
    ],
    ids=lambda p: p.name,
)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        exec(compile(code(page), str(page), "exec"), {"__name__": page.stem})


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_readme_is_ten_lines_or_fewer() -> None:
    (block,) = BLOCK.findall(README)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_the_readme_has_at_most_120_lines() -> None:
    assert len(README.splitlines()) <= 120


def test_links_of_the_readme_are_absolute_and_lead_to_files() -> None:
    assert not LINK.findall(README), "a relative link is broken on PyPI"
    targets = OURS.findall(README)
    assert len(targets) > 10
    assert [path for path in targets if not (ROOT / path).exists()] == []


def test_only_the_readme_says_how_to_install() -> None:
    pages = [p for p in PAGES if p.name not in ("README.md", "CHANGELOG.md", "cli.md")]
    assert [p.name for p in pages if "pip install" in p.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if UNCLEAR.search(line)] == []


def test_every_page_is_in_the_navigation_and_in_the_index_of_decisions() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    missing = [p.name for p in ROOT.glob("docs/*.md") if p.name not in nav]
    missing += [p.name for p in ROOT.glob("docs/decisions/0*.md") if p.name not in index]
    assert missing == []


def notation() -> list[tuple[str, str]]:
    """Return (name, file) for every row of NOTATION.md that has a file."""
    rows = []
    for line in (ROOT / "NOTATION.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and cells[-1].endswith(".py"):
            rows += [(name, cells[-1]) for name in NAMED.findall(cells[-3])]
    return rows


def test_the_notation_has_rows() -> None:
    assert len(notation()) > 40


@pytest.mark.parametrize("name, file", notation())
def test_a_name_of_the_notation_is_in_its_file(name: str, file: str) -> None:
    source = (ROOT / "src" / "cavity" / file).read_text(encoding="utf-8")
    *owner, last = name.split(".")
    if owner:
        found = re.search(rf"^class {owner[0]}\b.*?(?=^class |\Z)", source, re.MULTILINE | re.DOTALL)
        assert found, f"{file} has no class {owner[0]}"
        source = found.group()
    assert re.search(rf"\b{last}\b", source), f"{file} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


def test_the_picture_of_the_readme_is_small() -> None:
    (path,) = re.findall(rf"!\[[^]]*\]\({HOME}/raw/main/([^)]+)\)", README)
    assert (ROOT / path).stat().st_size < 300_000


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_in_the_text_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for path in set(re.findall(r"`((?:src|tests)/[\w/.]+|[a-z]+/[a-z_]+\.py)`", text)):
        below = ROOT if path.startswith(("src", "tests", "experiments")) else ROOT / "src" / "cavity"
        assert (below / path).exists(), path


def test_every_argument_has_one_purpose() -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    section = text.split("## Arguments by purpose")[1].split("\n## ")[0]
    named = [
        name for row in re.findall(r"^\|.*\|$", section, re.M)[2:] for name in re.findall(r"`(\w+)`", row)
    ]
    known = list(inspect.signature(GPClassifier).parameters)
    assert sorted(named) == sorted(known) and f"Of the {len(known)} arguments" in section
