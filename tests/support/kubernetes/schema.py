"""Whether an object is what Kubernetes' published schema asks for, with no field that it has not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "data" / "kubernetes" / "schema-1.32.json"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


@cache
def definitions() -> dict[str, Any]:
    return dict(json.loads(_FILE.read_text()))


def definition_of(item: dict[str, Any]) -> str:
    """The name of the definition of an object's kind; "" where there is none."""
    version, kind = item["apiVersion"], item["kind"]
    for name, schema in definitions().items():
        known = schema.get("properties", {})
        kinds = known.get("kind", {}).get("enum"), known.get("apiVersion", {}).get("enum")
        if kinds == ([kind], [version]):
            return name
    return ""


def errors(value: object, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """What is wrong with a value, as "path: what"."""
    if "$ref" in schema:
        yield from errors(value, definitions()[schema["$ref"].rpartition("/")[2]], at)
        return
    if "oneOf" in schema:
        if all([*errors(value, one, at)] for one in schema["oneOf"]):
            yield f"{at}: {value!r} fits none of the types"
        return
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    allowed = [_TYPES[name] for name in names if name != "null"]
    is_bool = isinstance(value, bool) and "boolean" not in names
    if allowed and (is_bool or not isinstance(value, tuple(_flat(allowed)))):
        yield f"{at}: {value!r} is no {'/'.join(names)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if isinstance(value, list):
        for i, one in enumerate(value):
            yield from errors(one, schema.get("items", {}), f"{at}[{i}]")
    elif isinstance(value, dict):
        yield from _fields(value, schema, at)


def _flat(types: list[Any]) -> Iterator[type]:
    for one in types:
        yield from one if isinstance(one, tuple) else (one,)


def _fields(value: dict[str, Any], schema: dict[str, Any], at: str) -> Iterator[str]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at}.{name}: is missing"
    for name, one in value.items():
        if name in known:
            yield from errors(one, known[name], f"{at}.{name}")
        elif isinstance(rest, dict):
            yield from errors(one, rest, f"{at}.{name}")
        elif known:
            yield f"{at}.{name}: there is no such field"
