"""Settings of a fit, from flags and a TOML file with the same names; flags override the
file.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from cavity.errors import BadOption

NO_GROUPS = "--group is for classification: leave it out."
# arguments that only Python has
NOT_HERE = ("random_state", "callbacks", "warm_start", "verbose")


class Settings(NamedTuple):
    """All settings of a fit except the data."""

    target: str
    out: Path
    weight: str | None
    group: str | None  # column of labels of rows that stay together
    ignore: tuple[str, ...]
    columns: dict[str, str]  # kind of a column by name: number, category, ignore
    strict: bool  # refuse cells that may be errors
    validation: str | None
    time_limit: float | None  # seconds of the whole fit
    seed: int
    regression: bool  # predict a number, whatever the values suggest
    arguments: dict[
        str, Any
    ]  # arguments of GPClassifier or GPRegressor, those of `training` among them


OWN = Settings._fields[:-1]  # all other settings are arguments


def read(flags: dict[str, Any], config: Path | None, data: str | Path) -> Settings:
    """Read the settings: the flags that were given, and the file for the rest.

    The model is named after the data by default.
    """
    given = {
        k: v
        for k, v in flags.items()
        if v is not None and v is not False and v not in ([], ())
    }
    stored = {} if config is None else _read_file(config)
    values = (
        {"out": f"{PurePath(data).name.partition('.')[0] or 'model'}.cavity"}
        | stored
        | given
    )
    values["ignore"] = ignore = (*stored.get("ignore", ()), *given.get("ignore", ()))
    if not values.get("target"):
        raise BadOption(
            "--target is missing: give the flag, or set target = ... in the file of "
            "--config."
        )
    texts = {
        name: values.get(name)
        for name in ("target", "out", "weight", "group", "validation")
    }
    for name, value in [*texts.items(), *(("ignore", column) for column in ignore)]:
        if value is not None and not isinstance(value, str | Path):
            raise BadOption(f"{name} = {value!r} must be text.")
    seed = values.setdefault("seed", 0)
    columns = values.setdefault("columns", {})
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise BadOption(
            f"seed = {seed!r} must be a whole number from 0 to {2**32 - 1}."
        )
    for switch in ("strict", "regression"):
        if not isinstance(values.setdefault(switch, False), bool):
            raise BadOption(f"{switch} = {values[switch]!r} must be true or false.")
    for role in ("weight", "group"):
        if texts[role] == texts["target"]:
            raise BadOption(
                f"{role} = {texts[role]!r} is the target: name another column."
            )
    if values["regression"] and texts["group"] is not None:
        raise BadOption(NO_GROUPS)
    if not isinstance(columns, dict) or not all(
        isinstance(kind, str) for kind in columns.values()
    ):
        raise BadOption(
            'columns must be a table of kinds, such as columns = { zip = "category" }.'
        )
    from cavity.fitting.options.value_checks import read_limit

    task = "regression" if values["regression"] else "classification"
    arguments = {
        name: _convert(name, value, task)
        for name, value in values.items()
        if name not in OWN
    }
    own: dict[str, Any] = {name: values.get(name) for name in OWN} | {
        "out": Path(values["out"]),
        "time_limit": read_limit(values.get("time_limit")),
    }
    return Settings(**own, arguments={"random_state": seed} | arguments)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadOption(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadOption(f"{path} is not TOML: {error}.") from error
    from cavity.estimators import GPClassifier, GPRegressor

    arguments = [*list_arguments(GPClassifier), *list_arguments(GPRegressor)]
    known = [*OWN, *(name for name in dict.fromkeys(arguments) if name not in NOT_HERE)]
    values = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            near = " or ".join(map(repr, get_close_matches(name, known, 3)))
            if near:
                hint = f"did you mean {near}?"
            else:
                hint = f"known keys are {', '.join(known)}."
            raise BadOption(f"{path}: unknown key {key!r}; {hint}")
        values[name] = value
    if not isinstance(values.get("ignore", []), list):
        raise BadOption(f'{path}: ignore must be a list of columns, ["a", "b"].')
    return values


def list_arguments(kind: Any) -> list[str]:
    """Return the arguments of GPClassifier or GPRegressor, those of `training` among
    them.
    """
    from cavity.fitting.options.training import OF_CLASSIFIER, flatten

    names = flatten(kind().get_params(deep=False))
    return [
        name
        for name in names
        if kind.__name__ == "GPClassifier" or name not in OF_CLASSIFIER
    ]


def _convert(name: str, value: Any, task: str) -> Any:
    if name == "kernel" and isinstance(value, str):
        from cavity.fitting.options.library import parse_kernel

        return parse_kernel(value)
    if name == "method" and isinstance(value, dict):
        return make_method(value, task)
    if name == "batch_size" and value in ("full", "none"):
        return None
    if (
        name in ("batch_size", "n_inducing")
        and isinstance(value, str)
        and value != "auto"
    ):
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
        raise BadOption(
            f"--{name.replace('_', '-')} {text!r} is not a number."
        ) from None


def make_method(value: dict[str, Any], task: str = "classification") -> Any:
    """Make a method from a table of the file, such as method = { name = "rep", epsilon
    = 0.1 }.
    """
    from cavity.fitting.options.library import method_names

    known = method_names(task)
    options = {
        key.replace("-", "_"): option for key, option in value.items() if key != "name"
    }
    name = value.get("name")
    if not isinstance(name, str) or name not in known:
        raise BadOption(
            f"method = {value!r} needs a name: use one of "
            f"{', '.join(map(repr, known))}."
        )
    return known[name]().set_params(**options)
