"""Model files: a safetensors file with JSON. Reading one runs no code from it."""
