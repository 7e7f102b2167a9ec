"""Rows for the engine: batches that carry their row numbers, from memory or from a source that is read in pieces."""

from cavity.data.arrays import Batch, Rows
from cavity.data.arrow import Arrow
from cavity.data.beside import Beside, TargetStream
from cavity.data.iterables import Batches
from cavity.data.mapped import Arrays
from cavity.data.shard import Shard, share
from cavity.data.source import Data, Divided, Divisible, Piece, Source, Whole, place, regroup, sound
from cavity.data.stream import Stream
from cavity.data.summary import Summary, Survey, look, survey

__all__ = [
    "Arrays",
    "Arrow",
    "Batch",
    "Batches",
    "Beside",
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
    "TargetStream",
    "Whole",
    "look",
    "place",
    "regroup",
    "share",
    "sound",
    "survey",
]
