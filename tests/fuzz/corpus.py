"""Where a harness begins: files to change, kept in build/fuzz with what it found interesting."""

import sys
from collections.abc import Callable
from pathlib import Path

import atheris

FOLDER = Path(__file__).parents[2] / "build" / "fuzz"


def folder_of(name: str, seeds: dict[str, bytes]) -> Path:
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed, content in seeds.items():
        (folder / seed).write_bytes(content)
    return folder


def start(once: Callable[[bytes], None], folder: Path) -> None:
    """Run until the time of -max_total_time is over, or something else than our own error comes out."""
    flags = [flag for flag in sys.argv[1:] if flag.startswith("-")]
    usual = ["-rss_limit_mb=8192", "-timeout=30", "-max_len=65536", f"-artifact_prefix={FOLDER}/"]
    atheris.Setup([sys.argv[0], str(folder), *usual, *flags], once)
    atheris.Fuzz()
