"""The transcripts of README.md and docs/cli.md are what the commands print, and
docs/cli.md names every flag.
"""

import re
from itertools import chain

import pytest
import typer

from cavity.cli.app import app
from cli.make_docs import BLOCK, PAGES, fill_transcripts
from support import slow

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def words(block):
    """Return the sorted lines without numbers and spacing, and the sorted numbers;
    times are dropped.
    """
    block = re.sub(r'in [\d.]+ s|"seconds": [\d.]+|; about .*', "", block)
    lines = sorted(
        " ".join(NUMBER.sub("#", line).split()) for line in block.splitlines()
    )
    return lines, sorted(float(n) for n in NUMBER.findall(block))


@pytest.mark.parametrize(
    "page", [slow(PAGES[0]), *PAGES[1:]], ids=lambda page: page.name
)
def test_the_transcripts_are_up_to_date(page):
    text = page.read_text(encoding="utf-8")
    told, given = BLOCK.findall(text), BLOCK.findall(fill_transcripts(text))
    assert len(told) == len(given) >= (5 if page.name == "cli.md" else 1)
    for old, new in zip(told, given, strict=True):
        (old_words, old_numbers), (new_words, new_numbers) = words(old), words(new)
        assert old_words == new_words, "run: python tests/cli/make_docs.py"
        for a, b in zip(old_numbers, new_numbers, strict=True):
            assert abs(a - b) <= 0.02 + 0.05 * abs(
                b
            )  # another machine rounds otherwise


def test_the_page_names_every_flag():
    """Those of fit and predict are in their help or above it, those of the others in a
    table.
    """
    text = PAGES[1].read_text(encoding="utf-8").split("\n## Flags\n")[1]
    rows = {
        row[1]: row[2]
        for row in re.finditer(r"^\| `(\w+)` \|(.*)$", text, re.MULTILINE)
    }
    commands = typer.main.get_command(app).commands
    assert {*rows} == {*commands} - {"fit", "info", "predict"}
    for name, command in commands.items():
        names = chain.from_iterable(parameter.opts for parameter in command.params)
        flags = {name for name in names if name.startswith("--")}
        told = {*re.findall(r"--[a-z-]+", rows.get(name, text))} | {
            "--device",
            "--json",
            "--quiet",
        }
        assert flags <= told, name
