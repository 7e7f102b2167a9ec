"""Errors and a warning.

All errors derive from ValueError, and their messages say what to try.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class CavityError(ValueError):
    """Base class of the errors of this library."""


class BadInput(CavityError):
    """The data cannot be used."""


class BadInputType(BadInput, TypeError):
    """The data have a type that cannot be used."""


class BadOption(CavityError):
    """An argument has a value that is not allowed."""


class NotPositiveDefinite(CavityError):
    """A covariance matrix could not be factorised, even with more jitter."""


class BadFile(CavityError):
    """A file is missing, damaged, or of another kind."""


class LostRank(CavityError, RuntimeError):
    """A rank of a distributed run does not answer."""


class MissingExtra(ModuleNotFoundError, BadOption):
    """An optional package is not installed."""


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Return the error for an optional package that is not installed; its message names
    the extra that installs it.
    """
    from pathlib import Path

    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").exists():
        where = f"-e '{clone}[{extra}]'"
    else:
        where = f'"cavity[{extra}]"'
    return MissingExtra(
        f"{package} is not installed: pip install {where}", name=package
    )


@contextmanager
def as_bad_input() -> Iterator[None]:
    """Turn errors of NumPy and scikit-learn about data into BadInput, which also has
    the type that scikit-learn expects.
    """
    try:
        yield
    except CavityError:
        raise
    except TypeError as error:
        raise BadInputType(str(error)) from error
    except (ValueError, OverflowError) as error:
        raise BadInput(str(error)) from error


@contextmanager
def name_in_errors(name: object, kind: type[CavityError] = BadInput) -> Iterator[None]:
    """Let errors of a kind begin with the name of a file or an argument, unless they
    have it already.
    """
    try:
        yield
    except kind as error:
        raise error if str(name) in str(error) else kind(f"{name}: {error}") from error
