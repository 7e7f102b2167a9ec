"""Model files: one safetensors file with JSON, read without running anything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.saving.model_file import (
        Record,
        describe,
        describe_rows_inside,
        load,
        read_record,
        register,
        save,
    )

__all__ = ["Record", "describe", "describe_rows_inside", "load", "read_record", "register", "save"]


if not TYPE_CHECKING:  # torch is loaded with the first name
    __getattr__ = load_names(__name__, {"model_file": tuple(__all__)})
