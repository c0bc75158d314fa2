"""Options as typed dataclasses: one declaration gives the YAML key, the flag, its help line and its
check.

A section is a dataclass whose fields are made by `option`. `parse` turns a YAML mapping and a
command line into sections; whatever it does not know it refuses, with the nearest name it knows.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class ConfigError(ValueError):
    """A configuration that cannot be meant; the message names the flag and what to change."""


def is_number(text: str) -> bool:
    """Whether `int` reads it: `str.isdigit` also says yes to digits that it refuses."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def option(
    default: Any,
    help: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: Sequence = (),
) -> Any:
    """A dataclass field with what --help and the range check need.

    `low` and `high` are inclusive.
    """
    meta = {"help": help, "unit": unit, "low": low, "high": high, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=meta)


def _number(text: str, kind: type, flag: str) -> int | float:
    plain = text.replace("_", "")
    try:
        return int(plain) if kind is int else float(plain)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{flag} takes {what}, got '{text}'") from None


def convert(value: Any, default: Any, flag: str) -> Any:
    """`value`, from YAML or the command line, in the type of the field's default.

    Raises:
        ConfigError: it has no such reading.
    """
    kind = type(default)
    if kind is bool:
        words = {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }
        word = str(value).lower()
        if word not in words:
            raise ConfigError(f"{flag} takes true or false, got '{value}'")
        return words[word]
    if kind in (int, float):
        if isinstance(value, bool) or value is None:
            raise ConfigError(f"{flag} takes a number, got '{value}'")
        return _number(str(value), kind, flag)
    return "" if value is None else str(value)


def check_range(field: dataclasses.Field, value: Any, flag: str) -> None:
    """Raises ConfigError: the value is none of the choices, or outside of the range; it names the
    flag.
    """
    meta = field.metadata
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(
            f"{flag} is '{value}'; it must be one of: {', '.join(map(str, meta['choices']))}"
        )
    below = meta["low"] is not None and value < meta["low"]
    above = meta["high"] is not None and value > meta["high"]
    if below or above or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{flag} is {value}; its valid range is {valid_range(field)}")


def valid_range(field: dataclasses.Field) -> str:
    """The choices or the range of an option, as `--help` writes them."""
    meta = field.metadata
    if meta["choices"]:
        return " | ".join(map(str, meta["choices"]))
    if type(field.default) is bool:
        return "true | false"
    if meta["low"] is None and meta["high"] is None:
        return "any text" if isinstance(field.default, str) else "any number"
    low = "..." if meta["low"] is None else f"{meta['low']:g}"
    return f"{low} to {meta['high']:g}" if meta["high"] is not None else f"{low} or more"


BARE = "run."  # a section's name that options without one may have, too


def flags(sections: Mapping[str, Any]) -> Iterator[tuple[str, str, dataclasses.Field]]:
    """(flag without dashes, section name, field) of every option; section "" holds the bare flags."""
    for name, section in sections.items():
        for field in dataclasses.fields(section):
            yield (f"{name}.{field.name}" if name else field.name), name, field


def unknown(name: str, known: Sequence[str], where: str) -> ConfigError:
    """The error for an option that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    hint = (
        f"; did you mean '{near[0]}'?"
        if near
        else "; `python -m hangdoctor.train --help` lists them all"
    )
    return ConfigError(f"{where} has no option '{name}'{hint}")


def assign(sections: Mapping[str, Any], name: str, value: Any, where: str) -> None:
    """Set the option `name` ("model.hidden_size") from a raw value.

    Raises:
        ConfigError: no such option, no such value, or out of its range.
    """
    table = {flag: (section, field) for flag, section, field in flags(sections)}
    bare = name.removeprefix(BARE)
    if bare in table and "." not in bare:
        name = bare
    if name not in table:
        raise unknown(name, list(table), where)
    section, field = table[name]
    flag = f"--{name}"
    typed = convert(value, field.default, flag)
    check_range(field, typed, flag)
    setattr(sections[section], field.name, typed)


def assign_mapping(sections: Mapping[str, Any], data: Mapping[str, Any], where: str) -> None:
    """Set options from a nested mapping, as a YAML file gives it.

    Raises:
        ConfigError: see `assign`.
    """
    for key, value in data.items():
        if (key in sections and key) or f"{key}." == BARE:
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"{where}: '{key}' is a section; write its options under it, indented"
                )
            for inner, raw in value.items():
                assign(sections, f"{key}.{inner}", raw, where)
        elif isinstance(value, Mapping):
            raise unknown(str(key), list(sections), where)
        else:
            assign(sections, str(key), value, where)


def assign_arguments(sections: Mapping[str, Any], argv: Sequence[str]) -> None:
    """Set options from `--name value` and `--name=value` words.

    Raises:
        ConfigError: see `assign`; also for a word that is not a flag or a flag without a value.
    """
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"'{word}' is not a flag; options are written --section.name VALUE")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not words:
                raise ConfigError(f"{word} needs a value")
            value = words.pop(0)
        assign(sections, name, value, "the command line")


def help_lines(sections: Mapping[str, Any]) -> Iterator[str]:
    """One line per option: flag, help, unit, default, valid range."""
    previous = None
    for flag, section, field in flags(sections):
        if section != previous:
            title = type(sections[section]).__doc__ or section
            yield f"\n{title.splitlines()[0]}"
            previous = section
        unit = f" [{field.metadata['unit']}]" if field.metadata["unit"] else ""
        default = f"'{field.default}'" if isinstance(field.default, str) else str(field.default)
        yield f"  --{flag}{unit}: {field.metadata['help']} (default {default.lower()}; valid: {valid_range(field)})"
