"""The pages that are staged for the site: links that work in the repository work there,
too.
"""

import re
from pathlib import Path

import pytest

from support import load_script

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    script = load_script("tools/site.py")
    script.STAGE = tmp_path_factory.mktemp("site")
    script.stage()
    return script


def test_every_link_of_a_staged_page_leads_to_a_staged_file(site) -> None:
    pages = sorted(site.STAGE.rglob("*.md"))
    links = []
    for page in pages:
        found = LINK.findall(page.read_text(encoding="utf-8"))
        links += [(page, link) for link in found]
    assert len(pages) > 50 and len(links) > 100
    assert [
        (page.name, link) for page, link in links if not (page.parent / link).is_file()
    ] == []


def test_every_page_of_the_navigation_is_staged(site) -> None:
    nav = (site.ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    assert [
        name
        for name in re.findall(r": (\S+\.md)$", nav, re.M)
        if not (site.STAGE / name).is_file()
    ] == []


def test_a_notebook_becomes_a_page_with_its_outputs(site) -> None:
    page = (site.STAGE / "examples/notebooks/digits.md").read_text(encoding="utf-8")
    assert page.startswith("# ") and "```text\naccuracy" in page
    pictures = re.findall(r"!\[figure\]\((\S+)\)", page)
    assert len(pictures) == 2
    for name in pictures:
        png = (site.STAGE / "examples/notebooks" / name).read_bytes()
        assert png.startswith(b"\x89PNG")


def test_links_are_turned_and_links_to_folders_become_text(site) -> None:
    linked: set[str] = set()
    text = "[a](../../README.md#how-it-works) [b](../../benchmarks/results) [c](../method.md) [d](nowhere.md)"
    turned = "[a](../index.md#how-it-works) b [c](../method.md) [d](nowhere.md)"
    assert site.turn_links(text, "docs/results/scale.md", linked) == turned
    assert linked == {"README.md", "docs/method.md"} and Path(
        site.place("docs/cli.md")
    ) == Path("cli.md")
