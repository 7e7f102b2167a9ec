"""The Dockerfile agrees with the package: these tests read its text, since they cannot
build an image.
"""

import json
import re
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from cavity.cli import app as cli
from cavity.cli.serving import server

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
STEPS = [
    tuple(line.split(None, 1))
    for line in TEXT.splitlines()
    if line and not line.startswith("#")
]


def values(name):
    return [value for step, value in STEPS if step == name]


def test_the_extra_and_the_command_are_the_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    (extra,) = re.findall(r"\[(\w+)\]\"", TEXT)
    assert extra in project["optional-dependencies"]
    assert json.loads(values("ENTRYPOINT")[0])[0] in project["scripts"]
    (base,) = values("FROM")
    minor = int(re.fullmatch(r"python:3\.(\d+)-slim", base)[1])
    assert f"Programming Language :: Python :: 3.{minor}" in project["classifiers"]


def test_the_image_serves_what_it_checks(toy_model, monkeypatch):
    """The command line accepts the arguments of the entry point, and the health check
    asks the port that it opens.
    """
    asked = []
    monkeypatch.setattr(server, "serve", lambda **given: asked.append(given))
    arguments = json.loads(values("ENTRYPOINT")[0])[1:]
    arguments[1] = str(toy_model)
    done = CliRunner().invoke(
        cli.app, [*arguments, "--allowed-host", "models.example.org"]
    )
    assert done.exit_code == 0, done.output
    port = asked[0]["port"]
    assert asked[0]["host"] == "0.0.0.0" and [str(port)] == values("EXPOSE")
    assert f"http://localhost:{port}/health" in values("HEALTHCHECK")[0]


def test_the_process_is_not_root():
    (user,) = values("USER")
    assert user != "root"
