"""Model files: one safetensors file with JSON, read without running anything in it."""
