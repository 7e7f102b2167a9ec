"""Checks of the files that commands write, before the work begins.

A result must never replace a file that it was made from.
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
    """Check that an output can be written, and that the command does not read it.

    Its name must end as `example` does.
    """
    path = Path(out)
    if is_uri(out):
        raise BadOption(
            f"{flag} {out}: results cannot be written to a store: name a file, and "
            f"copy it there."
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

    wanted = PurePath(example).suffix.lower()
    found = path.suffix.lower()
    for name in inputs:
        if name is None:
            continue

        given = Path(name)
        inside = given.resolve() in path.resolve().parents
        if path.exists() and given.exists() and (inside or path.samefile(given)):
            raise BadOption(
                f"{flag} {path} would replace a file that is read: choose another name."
            )
        if inside and found in FORMATS:
            raise BadOption(
                f"{flag} {path} would become a part of the table {given}: choose "
                f"another folder."
            )

    others = {*NOT_TABLES, *FILE_KINDS} - {wanted}
    if wanted not in FILE_KINDS and found in others:
        raise BadOption(f"{flag} {path}: the name must end in {wanted}.")
