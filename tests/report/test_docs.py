"""Code blocks of the documents run, names and links exist, and the README works on
PyPI.
"""

import ast
import inspect
import re
import tomllib
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier, Training
from cavity.common.terms import TERMS
from cavity.fitting.options.method import BOUND, EVIDENCE, OBJECTIVE
from support import slow

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ELSEWHERE = {
    "clusters.md"
}  # needs the engines that it names: tests/cluster runs it, section by section
LONG = (
    "coming-from deploy explanations extend methods scale tables uncertainty".split()
)  # seconds each
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


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
        slow(p) if p.stem in LONG else p
        for p in PAGES
        if BLOCK.search(p.read_text(encoding="utf-8")) and p.name not in ELSEWHERE
    ],
    ids=lambda p: p.name,
)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        exec(compile(code(page), str(page), "exec"), {"__name__": page.stem})


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    (block,) = BLOCK.findall(README)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    assert len(README.splitlines()) <= 120
    (path,) = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert (ROOT / path).stat().st_size < 300_000


def test_the_description_on_pypi_has_no_relative_link() -> None:
    """pyproject.toml says how the README becomes the description."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "hatch"
    ]["metadata"]
    shown = README
    for rule in hook["hooks"]["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    assert len(LINK.findall(README)) > 10 and not LINK.findall(shown)


def test_every_page_is_in_the_navigation_and_in_an_index() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [
        p.relative_to(ROOT / "docs").as_posix()
        for f in ("*.md", "results/*.md")
        for p in ROOT.glob(f"docs/{f}")
    ]
    missing = [p for p in pages if f": {p}\n" not in nav + "\n"]
    missing += [p for p in pages if f"]({p})" not in home and p != "index.md"]
    missing += [
        p.name for p in ROOT.glob("docs/decisions/0*.md") if p.name not in index
    ]
    assert missing == []


def notation() -> list[tuple[str, str]]:
    """Return (name, file) for every row of NOTATION.md that has a file."""
    rows = []
    for line in (ROOT / "NOTATION.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and cells[-1].endswith(".py"):
            rows += [(name, cells[-1]) for name in NAMED.findall(cells[-3])]
    return rows


def test_names_of_the_notation_are_in_their_files() -> None:
    assert len(notation()) > 40
    for name, file in notation():
        source = (ROOT / "src" / "cavity" / file).read_text(encoding="utf-8")
        *owner, last = name.split(".")
        if owner:
            found = re.search(
                rf"^class {owner[0]}\b.*?(?=^class |\Z)",
                source,
                re.MULTILINE | re.DOTALL,
            )
            assert found, f"{file} has no class {owner[0]}"
            source = found.group()
        assert re.search(rf"\b{last}\b", source), f"{file} has no {name}"


def test_guides_are_short_enough_to_be_read() -> None:
    prose = [
        FENCE.sub("", p.read_text(encoding="utf-8"))
        for p in ROOT.glob("docs/*.md")
        if p.name != "terms.md"
    ]
    assert sum(len(text.split()) for text in prose) <= 15_500, (
        "numbers belong into docs/results, reasons into docs/decisions"
    )


def find_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_lead_to_files_and_headings() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert [
            link for link in LINK.findall(text) if not (page.parent / link).exists()
        ] == [], page
        linked = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text)
        lost = [
            a
            for path, a in linked
            if a not in find_anchors(page.parent / path if path else page)
        ]
        assert lost == [], page


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_in_the_text_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for path in set(re.findall(r"`((?:src|tests)/[\w/.]+|[a-z]+/[a-z_]+\.py)`", text)):
        below = (
            ROOT
            if path.startswith(("src", "tests", "experiments"))
            else ROOT / "src" / "cavity"
        )
        assert (below / path).exists(), path


def test_every_argument_has_one_purpose() -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    section = text.split("## Arguments by purpose")[1].split("\n## ")[0]
    named = [
        name
        for row in re.findall(r"^\|.*\|$", section, re.M)[2:]
        for name in re.findall(r"`(\w+)`", row)
    ]
    known, inner = (
        [*inspect.signature(kind).parameters] for kind in (GPClassifier, Training)
    )
    assert len(known) <= 18 and f"{len(known)} arguments" in section
    assert sorted(named) == sorted([*known, *inner])


def test_the_page_of_terms_has_the_table_of_the_library() -> None:
    page = (ROOT / "docs" / "terms.md").read_text(encoding="utf-8")
    assert [f"| {' | '.join(term)} |" for term in TERMS.values()] == page.splitlines()[
        6:
    ]
    assert {EVIDENCE, OBJECTIVE, BOUND} < {
        *TERMS
    }  # what fit, info and summary print of training


def test_the_page_of_parameters_names_each_of_them() -> None:
    page = (
        (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8").split("\n## ")[1:]
    )
    told = {
        part.split("\n")[0]: NAMED.findall(
            "".join(re.findall(r"^\| (`.*?) \|", part, re.M))
        )
        for part in page
    }
    fit = [
        name
        for name in inspect.signature(GPClassifier.fit).parameters
        if name not in ("self", "X", "y")
    ]
    named = {
        "GPClassifier": GPClassifier().get_params(deep=False),
        "fit": fit,
        "Training": Training().get_params(),
    }
    assert {name: sorted(of) for name, of in told.items()} == {
        name: sorted(of) for name, of in named.items()
    }


LITERAL = re.compile(r"^\| `(\w+)` \| (?:`([^`]+)`|(\d[\d.e-]*)(?![\w%])|(none))", re.M)


def test_the_page_of_parameters_has_their_defaults() -> None:
    """A default that the page states as a value is that of the signature."""
    text = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    known = GPClassifier().get_params(deep=False) | Training().get_params()
    said = {}
    for name, literal, number, _ in LITERAL.findall(text):
        value = literal or number or "None"
        said[name] = Training() if value == "Training()" else ast.literal_eval(value)
    decided_by_the_plan = {"jitter"}
    assert len(said) > 12
    for name, value in said.items():
        if name == "training":
            assert known[name] is None and not value.changed()
        elif name not in decided_by_the_plan:
            assert known[name] == value or (name == "callbacks" and not known[name]), (
                name
            )
