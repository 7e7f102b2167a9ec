"""Model files: one safetensors file with JSON, read without running anything in it."""

from cavity.modelfile.files import Record, describe, describe_rows_inside, load, read_record, register, save

__all__ = ["Record", "describe", "describe_rows_inside", "load", "read_record", "register", "save"]
