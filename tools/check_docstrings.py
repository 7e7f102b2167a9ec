"""Validate the docstrings of the public interface with numpydoc: python tools/check_docstrings.py.

The error codes are in pyproject.toml, `[tool.numpydoc_validation]`. Exit code 1 if a docstring fails.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from numpydoc.validate import ERROR_MSGS, Validator, get_doc_object, validate

ROOT = Path(__file__).parents[1]
MODULES = (
    "cavity",
    "cavity.methods",
    "cavity.kernels",
    "cavity.factors",
    "cavity.callbacks",
    "cavity.report",
    "cavity.export",
    "cavity.plots",
    "cavity.distributed",
)
NO_EXAMPLE = ("EX01",)  # methods, and classes that users receive but do not make
ONLY_SUMMARY = ("GL08", "SS")  # properties have neither parameters nor returns
TAG = re.compile(
    r"\.\s+\[METHOD [^]]+\]$"
)  # a summary may end with the section of docs/method.md that it implements


class Failure(NamedTuple):
    """One error of one docstring."""

    place: str
    name: str
    code: str
    message: str


def read_codes(path: Path = ROOT / "pyproject.toml") -> set[str]:
    """Return the codes that count: those listed, or after "all", every code but those listed."""
    listed = set(tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["numpydoc_validation"]["checks"])
    return set(ERROR_MSGS) - listed if "all" in listed else listed


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "cavity"


def public_names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    members = vars(module).items()
    return [
        n for n, v in members if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def public_members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield methods and properties that this package defines, inherited ones included."""
    bases = [base for base in owner.__mro__ if is_ours(base)]
    for name in sorted({name for base in bases for name in vars(base) if not name.startswith("_")}):
        member = inspect.getattr_static(owner, name)
        if isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        if (inspect.isfunction(member) and is_ours(member)) or isinstance(member, property):
            yield name, member


def walk() -> Iterator[tuple[str, Any]]:
    """Yield the name and the object of everything public."""
    for module_name in MODULES:
        if importlib.util.find_spec(module_name) is None:
            raise SystemExit(f"{module_name} is part of the public interface and does not exist.")
        module = importlib.import_module(module_name)
        for name in public_names(module):
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and is_ours(thing):
                yield f"{module_name}.{name}", thing
                if inspect.isclass(thing):
                    yield from (
                        (f"{module_name}.{name}.{inner}", member) for inner, member in public_members(thing)
                    )


def is_record(thing: Any) -> bool:
    return inspect.isclass(thing) and (dataclasses.is_dataclass(thing) or hasattr(thing, "_fields"))


def ignored_codes(name: str, thing: Any) -> tuple[str, ...]:
    """Return the codes that do not apply to this kind of object."""
    if isinstance(thing, property):
        return tuple(code for code in ERROR_MSGS if not code.startswith(ONLY_SUMMARY))
    if inspect.isfunction(thing):
        return NO_EXAMPLE if "." in thing.__qualname__ else ()
    if issubclass(thing, Exception):
        return ("PR01", *NO_EXAMPLE)
    if is_record(thing):  # its fields may stand under Attributes
        documented = {attribute.name for attribute in get_doc_object(thing)["Attributes"]}
        return ("PR01", *NO_EXAMPLE) if documented >= set(inspect.signature(thing).parameters) else NO_EXAMPLE
    return NO_EXAMPLE if inspect.isabstract(thing) or getattr(thing, "_is_protocol", False) else ()


def check(name: str, thing: Any, codes: set[str]) -> Iterator[Failure]:
    """Yield what is wrong with one docstring."""
    if not thing.__doc__ and inspect.isfunction(thing) and inspect.getdoc(Validator._load_obj(name)):
        return  # inherited, and checked where it is written
    found = validate(name)
    summary = (thing.__doc__ or "").strip().partition("\n")[0]
    path = Path(found["file"]).resolve() if found["file"] else ROOT
    place = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{found['file_line'] or 0}"
    for code, message in found["errors"]:
        if (
            code in codes
            and code not in ignored_codes(name, thing)
            and not (code == "SS03" and TAG.search(summary))
        ):
            yield Failure(place, name, code, message)


def main() -> int:
    """Print every failure once, sorted by file."""
    codes, seen, failures = read_codes(), set(), set()
    for name, thing in walk():
        if id(thing) not in seen:  # an inherited method is checked with the first class that has it
            seen.add(id(thing))
            failures |= set(check(name, thing, codes))
    for failure in sorted(failures):
        print(f"{failure.place}: {failure.name}: {failure.code} {failure.message}")
    print(f"{len(failures)} errors in {len(seen)} public docstrings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
