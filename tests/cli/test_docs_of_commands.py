"""The transcripts of docs/cli.md are what the commands print, and it names every flag."""

import re

import typer

from cavity.cli.app import app
from cli.make_docs import BLOCK, PAGE, fill_transcripts

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


def test_the_transcripts_are_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    told, given = BLOCK.findall(text), BLOCK.findall(fill_transcripts(text))
    assert len(told) == len(given) >= 5
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
    text = PAGE.read_text(encoding="utf-8").split("\n## Flags\n")[1]
    rows = {
        row[1]: row[2]
        for row in re.finditer(r"^\| `(\w+)` \|(.*)$", text, re.MULTILINE)
    }
    commands = typer.main.get_command(app).commands
    assert {*rows} == {*commands} - {"fit", "info", "predict"}
    for name, command in commands.items():
        flags = {
            flag
            for parameter in command.params
            for flag in parameter.opts
            if flag.startswith("--")
        }
        told = {*re.findall(r"--[a-z-]+", rows.get(name, text))} | {
            "--device",
            "--json",
            "--quiet",
        }
        assert flags <= told, name
