"""Rows for the engine: batches with row numbers, from memory or from a source that is read in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.rows.batches.in_memory import Batch, Rows
    from cavity.rows.batches.iterables import Batches
    from cavity.rows.batches.memory_maps import Arrays
    from cavity.rows.batches.shard import Shard, shard_range
    from cavity.rows.batches.source import (
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
    from cavity.rows.batches.source_survey import Summary, Survey, survey, survey_section
    from cavity.rows.batches.stream import Stream
    from cavity.rows.batches.target_column import TargetColumn, TargetStream

__all__ = [
    "Arrays",
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
            "in_memory": ("Batch", "Rows"),
            "iterables": ("Batches",),
            "memory_maps": ("Arrays",),
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
            "source_survey": ("Summary", "Survey", "survey", "survey_section"),
            "target_column": ("TargetColumn", "TargetStream"),
        },
    )
