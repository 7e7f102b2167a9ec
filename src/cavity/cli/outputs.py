"""Checks of the files that commands write, before the work begins: a result must never
replace what it was made from.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from cavity.common.files import is_uri
from cavity.errors import BadInput, BadOption
from cavity.tables.files.arrow_source import FORMATS
from cavity.tables.files.table_files import FILE_KINDS

NOT_TABLES = (".cavity", ".html", ".onnx")


def check_out(
    out: str | Path,
    *inputs: str | Path | None,
    flag: str = "--out",
    example: str = "model.cavity",
) -> None:
    """Refuse an output that cannot be written, is of another kind than `example` by its
    name, or is one that the command reads.
    """
    path = Path(out)
    if is_uri(out):
        raise BadOption(
            f"{flag} {out}: only rows may be in a store: name a file, and copy it "
            f"there."
        )
    if path.is_dir():
        raise BadOption(
            f"{flag} {path} is a folder: name a file, such as {path / example}."
        )
    if not path.parent.is_dir():
        raise BadOption(
            f"{flag} {path}: the folder {str(path.parent)!r} does not exist."
        )
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"{flag} {path}: the folder is not writable.")
    wanted, found = (PurePath(str(name)).suffix.lower() for name in (example, out))
    for given in (Path(name) for name in inputs if name is not None):
        inside = given.resolve() in path.resolve().parents
        replaces = path.exists() and given.exists() and (inside or path.samefile(given))
        if replaces:
            raise BadOption(
                f"{flag} {path} would replace a file that is read: choose another name."
            )
        if inside and found in FORMATS:
            raise BadOption(
                f"{flag} {path} would be a part of {given} next time: choose another "
                f"folder."
            )
    if wanted not in FILE_KINDS and found in {*NOT_TABLES, *FILE_KINDS} - {wanted}:
        raise BadOption(f"{flag} {path}: the name must end in {wanted}.")
