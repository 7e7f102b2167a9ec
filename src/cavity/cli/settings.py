"""Settings of a fit, from flags and a TOML file with the same names.

Flags override the file.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from cavity.errors import BadOption

NO_GROUPS = "--group is for classification only: remove it."
# arguments for Python only
NOT_HERE = ("random_state", "callbacks", "warm_start", "verbose")


class Settings(NamedTuple):
    """All settings of a fit except the data."""

    target: str
    out: Path
    weight: str | None
    group: str | None  # column of groups, whose rows stay together
    ignore: tuple[str, ...]
    columns: dict[str, str]  # kind of a column by name: number, category, ignore
    strict: bool  # refuse cells that may be errors
    validation: str | None
    time_limit: float | None  # seconds for the whole fit
    seed: int
    regression: bool  # predict a number, whatever the values suggest
    arguments: dict[str, Any]  # of the estimator and of its `training`


OWN = Settings._fields[:-1]  # all other settings are arguments


def read(flags: dict[str, Any], config: Path | None, data: str | Path) -> Settings:
    """Read the settings from the flags that were given, and the rest from the file.

    The model is named after the data by default.
    """
    given = {}
    for name, value in flags.items():
        if value not in (None, [], ()) and value is not False:
            given[name] = value
    stored = {} if config is None else _read_file(config)
    stem = PurePath(data).name.partition(".")[0]
    defaults = {
        "out": f"{stem or 'model'}.cavity",
        "seed": 0,
        "columns": {},
        "strict": False,
        "regression": False,
    }
    values = {**defaults, **stored, **given}
    values["ignore"] = (*stored.get("ignore", ()), *given.get("ignore", ()))
    _check(values)
    from cavity.fitting.options.value_checks import read_limit

    task = "regression" if values["regression"] else "classification"
    arguments = {"random_state": values["seed"]}
    for name, value in values.items():
        if name not in OWN:
            arguments[name] = _convert(name, value, task)
    own: dict[str, Any] = {name: values.get(name) for name in OWN}
    own["out"] = Path(values["out"])
    own["time_limit"] = read_limit(values.get("time_limit"))
    return Settings(**own, arguments=arguments)


def _check(values: dict[str, Any]) -> None:
    """Check the settings that are not arguments of an estimator."""
    target = values.get("target")
    if not target:
        raise BadOption(
            "--target is missing: give the flag, or set target = ... in the file of "
            "--config."
        )

    names = ("target", "out", "weight", "group", "validation")
    texts = [(name, values.get(name)) for name in names]
    texts += [("ignore", column) for column in values["ignore"]]
    for name, value in texts:
        if value is not None and not isinstance(value, str | Path):
            raise BadOption(f"{name} = {value!r} must be text.")
    seed = values["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise BadOption(
            f"seed = {seed!r} must be a whole number from 0 to {2**32 - 1}."
        )

    for switch in ("strict", "regression"):
        if not isinstance(values[switch], bool):
            raise BadOption(f"{switch} = {values[switch]!r} must be true or false.")
    for role in ("weight", "group"):
        if values.get(role) == target:
            raise BadOption(f"{role} = {target!r} is the target: name another column.")
    if values["regression"] and values.get("group") is not None:
        raise BadOption(NO_GROUPS)

    columns = values["columns"]
    if not isinstance(columns, dict) or not all(
        isinstance(kind, str) for kind in columns.values()
    ):
        raise BadOption(
            'columns must be a table of kinds, such as columns = { zip = "category" }.'
        )


def read_toml(path: Path, name: str) -> dict[str, Any]:
    """Return a TOML file by its keys, with "_" for "-"; `name`: of the file in errors."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadOption(f"{name} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadOption(f"{name} is not TOML: {error}.") from error

    return {key.replace("-", "_"): value for key, value in content.items()}


def _read_file(path: Path) -> dict[str, Any]:
    values = read_toml(path, str(path))
    from cavity.estimators import GPClassifier, GPRegressor

    arguments = [*list_arguments(GPClassifier), *list_arguments(GPRegressor)]
    known = [*OWN, *(name for name in dict.fromkeys(arguments) if name not in NOT_HERE)]
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        hint = f"known keys are {', '.join(known)}."
        near = " or ".join(map(repr, get_close_matches(unknown, known, 3)))
        if near:
            hint = f"did you mean {near}?"
        raise BadOption(f"{path}: unknown key {unknown!r}; {hint}")

    if not isinstance(values.get("ignore", []), list):
        raise BadOption(f'{path}: ignore must be a list of columns, ["a", "b"].')

    return values


def list_arguments(kind: Any) -> list[str]:
    """Return the arguments of an estimator and of its `training`."""
    from cavity.fitting.options.training import OF_CLASSIFIER, flatten

    names = list(flatten(kind().get_params(deep=False)))
    if kind.__name__ == "GPClassifier":
        return names

    return [name for name in names if name not in OF_CLASSIFIER]


def _convert(name: str, value: Any, task: str) -> Any:
    if name == "kernel" and isinstance(value, str):
        from cavity.fitting.options.library import parse_kernel

        return parse_kernel(value)
    if name == "method" and isinstance(value, dict):
        return make_method(value, task)
    if name == "batch_size" and value in ("full", "none"):
        return None

    if name == "order" and isinstance(value, str):
        return [label.strip() for label in value.split(",")]

    is_number = name in ("batch_size", "n_inducing")
    if is_number and isinstance(value, str) and value != "auto":
        return _parse_number(name, value)
    if name == "learn" and isinstance(value, list):
        return tuple(value)

    return value


def _parse_number(name: str, text: str) -> int | float:
    try:
        if text.strip().isdecimal():
            return int(text)

        return float(text)
    except ValueError:
        flag = name.replace("_", "-")
        raise BadOption(f"--{flag} {text!r} is not a number.") from None


def make_method(value: dict[str, Any], task: str = "classification") -> Any:
    """Make a method from a table: { name = "rep", epsilon = 0.1 }."""
    from cavity.fitting.options.library import method_names

    known = method_names(task)
    options = {key.replace("-", "_"): option for key, option in value.items()}
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in known:
        names = ", ".join(map(repr, known))
        raise BadOption(f"method = {value!r} needs a name: use one of {names}.")

    return known[name]().set_params(**options)
