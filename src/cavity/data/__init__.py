"""Rows for the engine: batches with row numbers, from memory or from a source that is read in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.lazy import load_names

if TYPE_CHECKING:
    from cavity.data.arrays import Batch, Rows
    from cavity.data.arrow import Arrow
    from cavity.data.iterables import Batches
    from cavity.data.mapped import Arrays
    from cavity.data.shard import Shard, shard_range
    from cavity.data.source import (
        Data,
        Divided,
        Divisible,
        Piece,
        Source,
        Whole,
        check_pieces,
        describe_place,
        regroup,
    )
    from cavity.data.stream import Stream
    from cavity.data.summary import Summary, Survey, survey, survey_section
    from cavity.data.target_column import TargetColumn, TargetStream

__all__ = [
    "Arrays",
    "Arrow",
    "Batch",
    "Batches",
    "Data",
    "Divided",
    "Divisible",
    "Piece",
    "Rows",
    "Shard",
    "Source",
    "Stream",
    "Summary",
    "Survey",
    "TargetColumn",
    "TargetStream",
    "Whole",
    "check_pieces",
    "describe_place",
    "regroup",
    "shard_range",
    "survey",
    "survey_section",
]


if not TYPE_CHECKING:  # torch is loaded with the first name
    __getattr__ = load_names(
        __name__,
        {
            "arrays": ("Batch", "Rows"),
            "arrow": ("Arrow",),
            "iterables": ("Batches",),
            "mapped": ("Arrays",),
            "shard": ("Shard", "shard_range"),
            "source": (
                "Data",
                "Divided",
                "Divisible",
                "Piece",
                "Source",
                "Whole",
                "check_pieces",
                "describe_place",
                "regroup",
            ),
            "stream": ("Stream",),
            "summary": ("Summary", "Survey", "survey", "survey_section"),
            "target_column": ("TargetColumn", "TargetStream"),
        },
    )
