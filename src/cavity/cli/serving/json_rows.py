"""Rows of a JSON body, parsed one at a time: a body costs no more than the rows that the server accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cavity.errors import BadInput

ROW_CHARACTERS = 64 << 10  # parsed within a few milliseconds
SPACE = r"[ \t\n\r]*+"
STRING = r'"(?:[^"\\]++|\\.)*+"'
BEGIN = re.compile(rf'{SPACE}\{{{SPACE}"rows"{SPACE}:{SPACE}\[{SPACE}(?!\])')
KEY = re.compile(rf"{SPACE}[{{,]{SPACE}({STRING})", re.DOTALL)
FLAT_ROW = re.compile(rf'[\[{{](?:[^"\[\]{{}}]++|{STRING})*+[\]}}]', re.DOTALL)
NEXT = re.compile(rf"{SPACE}([,\]]){SPACE}")
END = re.compile(rf"\}}{SPACE}\Z")
DECODER = json.JSONDecoder()


def parse_rows(body: bytes, most_rows: int, most_characters: int = ROW_CHARACTERS) -> Iterator[Any]:
    """Parse the rows of `{"rows": [...]}`. Raises BadInput at the first row that is too much, too long, or not JSON.

    Other threads can run between rows, so no body stalls them for longer than one row takes.
    """
    try:
        text = body.decode(json.detect_encoding(body))
    except ValueError as error:
        raise BadInput(f"the request is not valid JSON ({error!s:.100}).") from None
    begin = BEGIN.match(text)
    if begin is None:
        raise _describe_keys(text, 0)
    at = begin.end()
    for number in range(1, most_rows + 1):
        row, at = _parse_row(text, at, number, most_characters)
        yield row
        after = NEXT.match(text, at)
        if after is None:
            raise BadInput(
                f"the request is not valid JSON after row {number}: a comma or bracket is missing."
            )
        at = after.end()
        if after[1] == "]":
            if END.match(text, at) is None:
                raise _describe_keys(text, at)
            return
    raise BadInput(f"the request has too many rows, the limit is {most_rows}: send fewer rows at a time.")


def _parse_row(text: str, at: int, number: int, most: int) -> tuple[Any, int]:
    """Parse the row that begins at a place; return it with the place where it ends."""
    flat = FLAT_ROW.match(text, at, at + most)
    try:
        part = text[at : at + most] if flat is None else flat[0]  # nested, or not a row: an error follows
        row, length = DECODER.raw_decode(part)
        if "\\u" in part:
            json.dumps(row, ensure_ascii=False).encode()  # half of a character cannot be written
    except (ValueError, RecursionError) as error:
        long = f" within {most} characters" if len(text) > at + most else ""
        raise BadInput(f"row {number} is not valid JSON{long} ({error!s:.100}).") from None
    return row, at + length


def _describe_keys(text: str, at: int) -> BadInput:
    """Describe a request with other keys than "rows", or without it."""
    key = KEY.match(text, at)
    if key is None or (key[1] == '"rows"' and not at):
        return BadInput(
            'the request has no rows, or is not valid JSON: send {"rows": [...]} with one object or list per row.'
        )
    return BadInput(f'the request has the unknown key {key[1][1:-1]!r:.60}: it may have "rows" only, once.')
