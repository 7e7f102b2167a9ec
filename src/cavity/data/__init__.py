"""Rows for the engine: batches with row numbers, from memory or from a source that is read in pieces."""

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
