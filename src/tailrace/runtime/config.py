"""TOML files into frozen msgspec Structs, with errors that name the key.

The loader walks the file and the Struct's annotations side by side, so that it always knows the full key path. An
unknown key fails with the nearest known name, a wrong type, a missing key or a value out of range with the path, a
newer `version` with `VersionTooNew`. A Struct's `__post_init__` may raise `ValueError` (about itself) or
`ConfigInvalid` (with a path below itself); it runs once all values of its table could be read. Whoever has to mend a
file wants to do it once: the first mistake is the error, and all others are its notes. What msgspec cannot read by
itself: `Duration` and `Size` from text, `Path`, and bounds on them by `Annotated[Duration, Within(...)]`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from tailrace.errors import ConfigInvalid, NotFound, VersionTooNew
from tailrace.runtime.units import Duration, Size

S = TypeVar("S", bound=msgspec.Struct)

MAX_CONFIG_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a `Duration` or `Size`, both inclusive: `Annotated[Duration, Within("1s", "1h")]`."""

    least: str | None = None
    most: str | None = None


class Mistakes:
    """Gathers what is wrong, part by part: `with mistakes:` around each. `tell` raises all of it, if there is any."""

    def __init__(self) -> None:
        self._first: ConfigInvalid | None = None

    def add(self, error: ConfigInvalid) -> None:
        if self._first is None:
            self._first = error
        else:
            for text in (str(error), *_others(error)):
                self._first.add_note(text)

    def tell(self) -> None:
        if self._first is not None:
            raise self._first

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, ConfigInvalid):
            self.add(error)
            return True
        return False


def load(file: Path, kind: type[S], *, known_version: int = 1) -> S:
    """Reads a configuration file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(
            what="configuration", name=str(file), remedy="`tailrace check --schema` says what one may hold"
        ) from error
    except OSError as error:
        raise ConfigInvalid(path=str(file), reason=f"cannot be read: {error.strerror}") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigInvalid(path=str(file), reason=f"is over {MAX_CONFIG_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(path=str(file), reason=f"is not UTF-8: {error.reason} at byte {error.start}") from error
    return parse(text, kind, name=str(file), known_version=known_version)


def parse(text: str, kind: type[S], *, name: str = "configuration", known_version: int = 1) -> S:
    """Reads a configuration's text; `name` is what errors call it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(path=name, reason=f"is not TOML: {error}") from error
    version = data.get("version")
    if version is None:
        raise ConfigInvalid(path="version", reason=f"is missing; write version = {known_version} at the top of {name}")
    if type(version) is not int or version < 1:
        raise ConfigInvalid(path="version", reason=f"{version!r} is no version; write version = {known_version}")
    if version > known_version:
        raise VersionTooNew(what=name, found=version, known=known_version)
    if not any(field.encode_name == "version" for field in msgspec.structs.fields(kind)):
        del data["version"]
    return _struct(data, kind, ())


def show_path(path: Iterable[str | int]) -> str:
    """A key path as TOML writes it: `app."my app".servers[0]`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            bare = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            shown += f".{bare}" if shown else bare
    return shown


_Path = tuple[str | int, ...]


def _invalid(path: _Path, reason: str) -> ConfigInvalid:
    return ConfigInvalid(path=show_path(path) or "configuration", reason=reason)


def _others(error: ConfigInvalid) -> list[str]:
    """What else was wrong, each with its path."""
    return getattr(error, "__notes__", [])


def _struct(data: object, kind: type[S], path: _Path) -> S:
    if not isinstance(data, dict):
        raise _invalid(path, f"expected a table, got {_describe(data)}")
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag_field
    unknown, mistakes = Mistakes(), Mistakes()
    for key in data:
        if key not in fields and key != tag:
            unknown.add(_invalid((*path, key), _unknown(key, fields)))
    values = {}
    for key, field in fields.items():
        with mistakes:
            if key in data:
                values[field.name] = _value(data[key], field.type, (*path, key))
            elif field.required:
                raise _invalid((*path, key), "is missing")
    with unknown:
        mistakes.tell()
        made = _made(kind, values, path)
    unknown.tell()
    return made


def _made(kind: type[S], values: dict[str, Any], path: _Path) -> S:
    try:
        return kind(**values)
    except ConfigInvalid as error:
        if not path:
            raise
        moved = ConfigInvalid(path=f"{show_path(path)}.{error.path}", reason=error.reason)
        for other in _others(error):
            moved.add_note(f"{show_path(path)}.{other}")
        raise moved from error
    except ValueError as error:
        raise _invalid(path, str(error)) from error


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known are {', '.join(sorted(known))}"


def _value(data: object, annotation: Any, path: _Path) -> Any:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    origin, arguments = get_origin(bare), get_args(bare)
    if origin in (Union, types.UnionType):
        return _union(data, arguments, path)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _struct(data, bare, path)
    if isinstance(bare, type) and issubclass(bare, Duration | Size | Path):
        return _written(data, bare, annotation, path)
    if origin is dict:
        if not isinstance(data, dict):
            raise _invalid(path, f"expected a table, got {_describe(data)}")
        mistakes, checked = Mistakes(), {}
        for key, value in data.items():
            with mistakes:
                checked[_value(key, arguments[0], (*path, key))] = _value(value, arguments[1], (*path, key))
        mistakes.tell()
        return _leaf(checked, annotation, path) if bare is not annotation else checked
    if origin in (list, tuple, frozenset) and (origin is not tuple or arguments[-1] is Ellipsis):
        if not isinstance(data, list):
            raise _invalid(path, f"expected a list, got {_describe(data)}")
        mistakes, items = Mistakes(), []
        for place, item in enumerate(data):
            with mistakes:
                items.append(_value(item, arguments[0], (*path, place)))
        mistakes.tell()
        return origin(items)
    return _leaf(data, annotation, path)


def _union(data: object, members: tuple[Any, ...], path: _Path) -> Any:
    structs = [member for member in members if isinstance(member, type) and issubclass(member, msgspec.Struct)]
    if isinstance(data, dict) and len(structs) > 1:
        return _struct(data, _by_tag(data, structs, path), path)
    if isinstance(data, dict) and structs:
        return _struct(data, structs[0], path)
    reasons = []
    for member in members:
        if member in structs or member is type(None):
            continue
        try:
            return _value(data, member, path)
        except ConfigInvalid as error:
            reasons.append(error)
    if len(reasons) == 1:
        raise reasons[0]
    expected = "; or ".join(str(error.reason) for error in reasons) or f"expected a table, got {_describe(data)}"
    raise _invalid(path, expected)


def _by_tag(data: dict[str, Any], structs: list[type[msgspec.Struct]], path: _Path) -> type[msgspec.Struct]:
    tag_field = structs[0].__struct_config__.tag_field
    if tag_field is None:
        raise TypeError(f"{structs} are alternatives without a tag")
    by_tag = {str(struct.__struct_config__.tag): struct for struct in structs}
    tag = data.get(tag_field)
    if tag is None:
        raise _invalid((*path, tag_field), f"is missing; it is one of {', '.join(sorted(by_tag))}")
    if tag not in by_tag:
        near = difflib.get_close_matches(str(tag), by_tag, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(sorted(by_tag))}"
        raise _invalid((*path, tag_field), f"{tag!r} is unknown; {meant}")
    return by_tag[tag]


def _written(data: object, kind: type[Any], annotation: Any, path: _Path) -> Any:
    """What is written as text: a duration, a size, a path."""
    if issubclass(kind, Size) and type(data) is int and data >= 0:
        found: Any = Size(data)
    elif not isinstance(data, str):
        examples = {Duration: ' like "30s" or "5m"', Size: ' like "8MiB" or "1GB"'}
        raise _invalid(path, f"expected text{examples.get(kind, '')}, got {_describe(data)}")
    elif issubclass(kind, Path):
        if not data:
            raise _invalid(path, "expected a path, got empty text")
        return kind(data)
    else:
        try:
            found = kind.parse(data)
        except ValueError as error:
            raise _invalid(path, str(error)) from error
    for bounds in get_args(annotation)[1:]:
        if isinstance(bounds, Within):
            _require_within(found, bounds, kind, path)
    return found


def _require_within(found: Any, bounds: Within, kind: type[Any], path: _Path) -> None:
    if bounds.least is not None and found < kind.parse(bounds.least):
        raise _invalid(path, f"{found} is less than {bounds.least}, the least allowed")
    if bounds.most is not None and found > kind.parse(bounds.most):
        raise _invalid(path, f"{found} is more than {bounds.most}, the most allowed")


def _leaf(data: object, annotation: Any, path: _Path) -> Any:
    if get_origin(annotation) is Literal and isinstance(data, str) and data not in get_args(annotation):
        known = [str(known) for known in get_args(annotation)]
        near = difflib.get_close_matches(data, known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(known)}"
        raise _invalid(path, f"{data!r} is unknown; {meant}")
    try:
        return msgspec.convert(data, annotation)
    except msgspec.ValidationError as error:
        reason = re.sub(r" - at `.*`\Z", "", str(error))
        shown = "" if "got `" in reason else f", got {data!r:.80}"
        raise _invalid(path, reason[:1].lower() + reason[1:] + shown) from error


def _describe(data: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return f"{names.get(type(data), 'a date or time')} ({data!r:.80})"
