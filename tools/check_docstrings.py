"""Validate the docstrings of the public interface with numpydoc: python
tools/check_docstrings.py.

The error codes are in pyproject.toml, `[tool.numpydoc_validation]`. Exit code 1 if a
docstring fails.

A method or property that overrides one that a base class of this package documents
inherits the contract: it needs no docstring, or only a summary. A base class documents
a method in its docstring, and an attribute there, under Attributes or where it declares
it. A class whose constructor takes what that of a base class takes documents only the
other parameters; it needs no example if a base class has one.

The methods of HOOKS are overridden by users and called by the library. Their docstrings
are prose, with the shapes of tensors.
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

from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import ERROR_MSGS, validate

ROOT = Path(__file__).parents[1]
MODULES = (
    "cavity",
    "cavity.methods",
    "cavity.kernels",
    "cavity.likelihoods",
    "cavity.callbacks",
    "cavity.report",
    "cavity.export",
    "cavity.report.plots",
    "cavity.explain.samples",
    "cavity.distributed",
    "cavity.cluster",
)
HOOKS = (
    "KernelLike",
    "Kernel",
    "Scaled",
    "Stationary",
    "Likelihood",
    "Method",
    "RegressionMethod",
    "Callback",
)
NO_EXAMPLE = ("EX01",)  # methods, and classes that users receive but do not make
ONLY_SUMMARY = (
    "GL08",
    "SS",
)  # properties, which have neither parameters nor returns, overrides and hooks
PASSED_ON = {
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
}  # *args, **kwargs of torch.nn.Module
TAG = re.compile(
    r"\.\s+\[(METHOD|review) [^]]+\]$"
)  # a summary may end with the section of docs/method.md or of the review that it implements


class Subject(NamedTuple):
    """One public object."""

    name: str
    thing: Any
    overrides: bool = False  # a base class of ours documents it


class Failure(NamedTuple):
    """One error of one docstring."""

    place: str
    name: str
    code: str
    message: str


def read_codes(path: Path = ROOT / "pyproject.toml") -> set[str]:
    """Return the codes that count: those listed, or after "all", every code but those
    listed.
    """
    listed = set(
        tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["numpydoc_validation"][
            "checks"
        ]
    )
    return set(ERROR_MSGS) - listed if "all" in listed else listed


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "cavity"


def public_names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    members = vars(module).items()
    return [
        n
        for n, v in members
        if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def unwrap(member: Any) -> Any:
    return (
        member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
    )


def is_member(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)


def listed_names(owner: type, section: str = "Attributes") -> set[str]:
    """Return the names in a section of the docstring of a class."""
    listed = NumpyDocString(inspect.cleandoc(owner.__doc__ or ""))[section]
    names = ",".join(entry.name for entry in listed)
    return {name.strip() for name in names.split(",")}


def overrides_documented(owner: type, name: str) -> bool:
    """Return whether a base class, beyond the class that defines the member, documents
    it.
    """
    bases = [base for base in owner.__mro__ if is_ours(base)]
    definer = next(i for i, base in enumerate(bases) if name in vars(base))
    for base in bases[definer + 1 :]:
        member = unwrap(vars(base).get(name))
        declared = name in inspect.get_annotations(base) or name in listed_names(base)
        if declared or (is_member(member) and member.__doc__):
            return True
    return False


def public_members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield methods and properties that this package defines, inherited ones included."""
    bases = [base for base in owner.__mro__ if is_ours(base)]
    names = set().union(*(vars(base) for base in bases))
    for name in sorted(name for name in names if not name.startswith("_")):
        member = unwrap(inspect.getattr_static(owner, name))
        if is_member(member) and (isinstance(member, property) or is_ours(member)):
            yield name, member


def walk() -> Iterator[Subject]:
    """Yield everything public."""
    for module_name in MODULES:
        if importlib.util.find_spec(module_name) is None:
            raise SystemExit(
                f"{module_name} is part of the public interface and does not exist."
            )
        module = importlib.import_module(module_name)
        for name in public_names(module):
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and is_ours(thing):
                yield Subject(f"{module_name}.{name}", thing)
                if inspect.isclass(thing):
                    for inner, member in public_members(thing):
                        known = overrides_documented(thing, inner)
                        yield Subject(f"{module_name}.{name}.{inner}", member, known)


def is_hook(member: Any) -> bool:
    return getattr(member, "__qualname__", "").partition(".")[0] in HOOKS


def is_record(thing: Any) -> bool:
    return inspect.isclass(thing) and (
        dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")
    )


def ignored_codes(subject: Subject) -> tuple[str, ...]:
    """Return the codes that do not apply to this kind of object."""
    thing = subject.thing
    if isinstance(thing, property) or subject.overrides or is_hook(thing):
        return tuple(code for code in ERROR_MSGS if not code.startswith(ONLY_SUMMARY))
    if inspect.isfunction(thing):
        return NO_EXAMPLE if "." in thing.__qualname__ else ()
    if issubclass(thing, Exception):
        return ("PR01", *NO_EXAMPLE)
    if is_record(
        thing
    ):  # its fields may stand under Attributes, those of a base class in its docstring
        documented = set().union(
            *(listed_names(base) for base in thing.__mro__ if is_ours(base))
        )
        complete = documented >= set(inspect.signature(thing).parameters)
        return ("PR01", *NO_EXAMPLE) if complete else NO_EXAMPLE
    bases = [base for base in thing.__mro__ if is_ours(base)]
    shown = any("Examples\n" in (base.__doc__ or "") for base in bases)
    codes = (
        NO_EXAMPLE
        if shown or inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)
        else ()
    )
    parameters = inspect.signature(thing).parameters
    documented = set().union(*(listed_names(base, "Parameters") for base in bases))
    passed_on = {parameter.kind for parameter in parameters.values()} <= PASSED_ON
    return ("PR01", *codes) if passed_on or documented >= set(parameters) else codes


def check(subject: Subject, codes: set[str]) -> Iterator[Failure]:
    """Yield what is wrong with one docstring."""
    if subject.overrides and not subject.thing.__doc__:
        return
    found = validate(subject.name)
    codes = codes - set(ignored_codes(subject))
    summary = (subject.thing.__doc__ or "").strip().partition("\n")[0]
    if TAG.search(summary):
        codes -= {"SS03"}
    path = Path(found["file"]).resolve() if found["file"] else ROOT
    if path.is_relative_to(ROOT):
        path = path.relative_to(ROOT)
    place = f"{path}:{found['file_line'] or 0}"
    for code, message in found["errors"]:
        if code in codes:
            yield Failure(place, subject.name, code, message)


def main() -> int:
    """Print every failure once, sorted by file."""
    codes = read_codes()
    seen = set()
    failures = set()
    for subject in walk():
        if (
            id(subject.thing) not in seen
        ):  # an inherited method is checked with the first class that has it
            seen.add(id(subject.thing))
            failures |= set(check(subject, codes))
    for failure in sorted(failures):
        print(f"{failure.place}: {failure.name}: {failure.code} {failure.message}")
    print(f"{len(failures)} errors in {len(seen)} public docstrings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
