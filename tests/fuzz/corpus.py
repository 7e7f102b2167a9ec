"""Seed files of the fuzz harnesses, in build/fuzz with the inputs that they found."""

import sys
from collections.abc import Callable
from pathlib import Path

import atheris

FOLDER = Path(__file__).parents[2] / "build" / "fuzz"


def make_folder(name: str, seeds: dict[str, bytes]) -> Path:
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed, content in seeds.items():
        (folder / seed).write_bytes(content)
    return folder


def start(once: Callable[[bytes], None], folder: Path) -> None:
    """Run for -max_total_time seconds, or until an error that is not ours."""
    flags = [flag for flag in sys.argv[1:] if flag.startswith("-")]
    usual = [
        "-rss_limit_mb=8192",
        "-timeout=30",
        "-max_len=65536",
        f"-artifact_prefix={FOLDER}/",
    ]
    atheris.Setup([sys.argv[0], str(folder), *usual, *flags], once)
    atheris.Fuzz()
