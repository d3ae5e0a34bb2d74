"""The JSON Schema of a configuration Struct, for editors that complete and check TOML.

It is derived from the same annotations that the loader obeys, so that the two agree: unknown keys are refused, a
`Duration` is text of a pattern, alternatives are told apart by their tag. Structs are written in place; a Struct does
not contain itself.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from tailrace.runtime.units import DURATION_PATTERN, SIZE_PATTERN, Duration, Size


def json_schema(kind: type[msgspec.Struct], *, title: str) -> dict[str, Any]:
    """The schema of a whole file; `title` is what an editor calls it."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_struct(kind)}


def _struct(kind: type[msgspec.Struct]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    tag = kind.__struct_config__.tag_field
    if tag is not None:
        properties[tag] = {"const": kind.__struct_config__.tag}
        required.append(tag)
    for field in msgspec.structs.fields(kind):
        properties[field.encode_name] = _of(field.type)
        if field.required:
            required.append(field.encode_name)
        elif field.default not in (msgspec.NODEFAULT, None):
            properties[field.encode_name]["default"] = msgspec.to_builtins(field.default, enc_hook=str)
    described = {"description": kind.__doc__.strip()} if kind.__doc__ else {}
    return {
        **described,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _of(annotation: Any) -> dict[str, Any]:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    origin, arguments = get_origin(bare), get_args(bare)
    if origin in (Union, types.UnionType):
        members = [_of(member) for member in arguments if member is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if origin in (list, tuple, frozenset):
        return {"type": "array", "items": _of(arguments[0])}
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _struct(bare)
    if isinstance(bare, type) and issubclass(bare, Duration):
        return {"type": "string", "pattern": DURATION_PATTERN}
    if isinstance(bare, type) and issubclass(bare, Size):
        return {"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}]}
    if isinstance(bare, type) and issubclass(bare, Path):
        return {"type": "string", "minLength": 1}
    return msgspec.json.schema(annotation)
