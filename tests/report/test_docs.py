"""Code blocks of the documents run, names and links exist, and the README works on
PyPI.
"""

import ast
import inspect
import re
import tomllib
import warnings
from itertools import chain
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier, Training
from cavity.common.removed import REMOVED
from cavity.common.terms import TERMS
from cavity.fitting.options.method import BOUND, EVIDENCE, OBJECTIVE
from cli import penguins
from support import slow

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ELSEWHERE = {
    "clusters.md"
}  # needs the engines that it names: tests/cluster runs it, section by section
LONG = (
    "coming-from deploy explanations extend labels methods scale tables "
    "uncertainty".split()
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


def write_own_table(folder: Path) -> None:
    """Write the table that a reader of the README has, and its new rows."""
    penguins.main(folder)
    table = (folder / "penguins.csv").read_text(encoding="utf-8")
    (folder / "table.csv").write_text(table.replace("species", "label", 1))
    new = (folder / "new.csv").read_text(encoding="utf-8").splitlines()
    (folder / "new.csv").write_text("\n".join(line.rpartition(",")[0] for line in new))


@pytest.mark.usefixtures("few_trees")
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
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_table(tmp_path)
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


def pages_of(section: str) -> list[Path]:
    """Return the pages of a section of the navigation."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    part = re.split(r"^  - (\w+):$", nav, flags=re.M)
    names = re.findall(r": (\S+\.md)$", part[part.index(section) + 1], re.M)
    places = {"index.md": ROOT / "README.md"}
    for name in names:
        places.setdefault(name, ROOT / "docs" / name)
    found = [places[name] for name in names]
    return [
        path if path.exists() else ROOT / path.relative_to(ROOT / "docs")
        for path in found
    ]


def test_every_page_is_in_the_navigation_and_in_an_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    levels = {
        name: pages_of(name) for name in ("Start", "Guides", "Reference", "Project")
    }
    listed = list(chain.from_iterable(levels.values()))
    assert len(listed) == len(set(listed)) and all(page.exists() for page in listed)
    assert {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md")} <= {*listed}
    for page in [*levels["Start"][1:], *levels["Guides"]]:
        assert f"({page.relative_to(ROOT).as_posix()})" in README, page
    assert [
        p.name for p in ROOT.glob("docs/decisions/0*.md") if p.name not in index
    ] == []


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


def test_start_and_guides_are_short_enough_to_be_read() -> None:
    prose = [
        FENCE.sub("", page.read_text(encoding="utf-8"))
        for page in [*pages_of("Start"), *pages_of("Guides")]
    ]
    assert sum(len(text.split()) for text in prose) <= 12_000, (
        "numbers belong into docs/results, reasons into docs/decisions"
    )


def test_lines_of_start_and_guides_fit_in_88_columns() -> None:
    """Tables, pictures and commands may be longer: nothing breaks them."""
    for page in [*pages_of("Start"), *pages_of("Guides")]:
        text = re.sub(
            r"^```sh\n.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
        )
        lines = [line for line in text.splitlines() if not line.startswith(("|", "!["))]
        assert [x for x in lines if len(x) > 88] == [], page


def test_the_changes_are_release_notes() -> None:
    """Three highlights and one link per version, and nothing given up twice."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 12_000
    parts = re.split(r"^## ", text, flags=re.M)[1:]
    versions = [re.match(r"\d+\.\d+\.\S+", part) for part in parts]
    assert all(versions) and len({v.group() for v in versions if v}) == len(parts) >= 4
    for part in parts:
        assert re.findall(r"^(\d)\. \*\*", part, re.M) == ["1", "2", "3"]
        assert len(re.findall(r"^More: \[", part, re.M)) == 1
        rows = [row for row in re.findall(r"^\| (.*?) \|", part, re.M) if row != "old"]
        assert len(rows) == len(set(rows))
    assert [name for name in REMOVED if name.split(".")[-1] not in text] == []


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
    rows = re.findall(r"^\|.*\|$", section, re.M)[2:]
    named = re.findall(r"`(\w+)`", "\n".join(rows))
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
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    parts = page.split("\n## Parameters of ")[1:]
    told = {}
    for part in parts:
        cells = re.findall(r"^\| (`.*?) \|", part, re.M)
        told[part.split("\n")[0]] = NAMED.findall("".join(cells))

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
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
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
