"""Errors of the library.

All of them derive from ValueError, and their messages say what to try.
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


class BadResult(CavityError, AssertionError):
    """A method of a kernel or a likelihood returned a wrong result."""


class NotPositiveDefinite(CavityError):
    """A covariance matrix could not be factorised, even with more jitter."""


class BadFile(CavityError):
    """A file is missing, damaged, or of another kind."""


class LostRank(CavityError, RuntimeError):
    """A rank of a distributed run does not answer."""


class MissingExtra(ModuleNotFoundError, BadOption):
    """An optional package is not installed."""


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Return the error for an optional package that is not installed.

    Its message names the extra that installs the package.
    """
    from pathlib import Path

    where = f'"cavity[{extra}]"'
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").exists():
        where = f"-e '{clone}[{extra}]'"
    message = f"{package} is not installed: pip install {where}"
    return MissingExtra(message, name=package)


@contextmanager
def as_bad_input() -> Iterator[None]:
    """Turn errors of NumPy and scikit-learn about data into BadInput.

    It also has the type that scikit-learn expects.
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
    """Let errors of a kind begin with the name of a file or an argument.

    Errors that have the name already stay as they are.
    """
    try:
        yield
    except kind as error:
        if str(name) in str(error):
            raise

        raise kind(f"{name}: {error}") from error
