"""The page /docs: the OpenAPI description as plain HTML. It loads nothing, so it works without a network."""

from __future__ import annotations

import json
from html import escape
from typing import Any

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre, td, th { overflow-wrap: anywhere } pre { white-space: pre-wrap; padding: 1rem; border: 1px solid #8888; border-radius: 6px }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884 }
"""


def make_page(openapi: dict[str, Any], example: dict[str, Any], with_token: bool) -> str:
    info = openapi["info"]
    token = ' \\\n  -H "authorization: Bearer $CAVITY_TOKEN"' if with_token else ""
    request = json.dumps(example, ensure_ascii=False).replace("'", "'\\''")
    curl = f"curl -s localhost:8000/predict -H 'content-type: application/json'{token} \\\n  -d '{request}'"
    paths = "".join(
        _make_path(path, method, operation)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    )
    types = "".join(_make_type(name, about) for name, about in openapi["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        f'<pre>{escape(curl)}</pre><p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"<h2>Paths</h2>{paths}<h2>Types</h2>{types}</html>"
    )


def _make_path(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}<td>{escape(about['description'])}<td>{_name_type(_get_content(about))}"
        for status, about in sorted(operation["responses"].items())
    )
    given = operation.get("requestBody")
    body = f"<p>Body: {_name_type(_get_content(given))}</p>" if given else ""
    query = "".join(
        f"<p>Query: {escape(p['name'])}, {_name_type(p['schema'])}</p>"
        for p in operation.get("parameters", ())
    )
    return (
        f"<h3><code>{escape(method.upper())} {escape(path)}</code></h3><p>{escape(operation.get('description', ''))}</p>"
        f"{body}{query}<table><tr><th>Status<th>Meaning<th>Answer{rows}</table>"
    )


def _make_type(name: str, about: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(key)}<td>{_name_type(value)}<td>{escape(value.get('description', ''))}"
        for key, value in about.get("properties", {}).items()
    )
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(about.get("description", ""))}</p><table>{rows}</table>'


def _get_content(about: dict[str, Any]) -> dict[str, Any]:
    return next((c.get("schema", {}) for c in about.get("content", {}).values()), {})


def _name_type(schema: dict[str, Any]) -> str:
    """Name a type of JSON schema in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_name_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_name_type(schema.get('items', {}))}"
    if "enum" in schema:
        few = ", ".join(escape(str(value)) for value in schema["enum"][:12])
        return few + (", …" if len(schema["enum"]) > 12 else "")
    return escape(schema.get("type", ""))
