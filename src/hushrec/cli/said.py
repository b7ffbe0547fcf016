"""What was said to a command, on the command line and in a file of options, and how to say it again."""

import difflib
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hushrec.errors import HushrecError
from hushrec.files import check_file_to_write, write_file

_OWN = ("config", "save_config", "help")
# What changes no number: where results go, how they are shown, how fast.
WITHOUT_EFFECT = (
    *_OWN,
    "out",
    "resume",
    "as_json",
    "threads",
    "cohort_size",
    "picture",
    "page",
    "keep",
    "strict",
    "track",
)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, or stands in the file of options."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _keys(option: Any) -> list[str]:
    """The names of an option in a file: its long flags, or the short one if it has no other."""
    flags = [flag for flag in option.opts if flag.startswith("-")]
    return [flag.lstrip("-") for flag in [flag for flag in flags if flag.startswith("--")] or flags]


def _options(context: typer.Context) -> dict[str, Any]:
    """The options of a command that a file may have, by their names there."""
    return {key: one for one in context.command.params if one.name not in _OWN for key in _keys(one)}


def _as_typed(value: object, option: Any, file: Path, key: str) -> object:
    """A value of a file as it would have been typed."""
    is_flag = bool(getattr(option, "is_flag", False))
    if isinstance(value, dict) or is_flag != isinstance(value, bool):
        wanted = f"{key} = true or {key} = false" if is_flag else f"{key} = a number, a text or a list of them"
        raise HushrecError(f"{file}: {key} has another kind of value; write {wanted}")
    if is_flag:
        return value
    if not isinstance(value, list):
        return str(value)
    texts = [str(one) for one in value]
    return texts if option.multiple or option.nargs != 1 else ",".join(texts)


def _read(context: typer.Context, config: Path | None) -> Path | None:
    """Take what a file says for what is not typed."""
    if config is None or context.resilient_parsing:
        return config
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise HushrecError(f"--config {config} cannot be read ({error.strerror}); give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HushrecError(f"--config {config} is no TOML ({error}); write lines such as: rounds = 50") from None
    options = _options(context)
    found: dict[str, object] = {}
    for name, value in values.items():
        key = name.replace("_", "-")
        if key not in options:
            near = difflib.get_close_matches(key, options, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(options)}"
            raise HushrecError(f"{config}: {context.command_path} has no option {name}; {hint}")
        found[options[key].name] = _as_typed(value, options[key], config, key)
    context.default_map = found
    return config


@dataclass(frozen=True, kw_only=True)
class Said:
    """What was said to a command, by whichever way; with `--save-config` it is kept before anything is done."""

    context: typer.Context
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Read options from a file, by their long names: rounds = 50. What is typed goes before it.",
            is_eager=True,
            callback=_read,
        ),
    ] = None
    save_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Write the options of this command into a file for --config."),
    ] = None

    def __post_init__(self) -> None:
        if self.save_config is not None:
            check_file_to_write(self.save_config, "--save-config")
            write_file(self.save_config, "".join(f"{line}\n" for line in self.lines()).encode(), "--save-config")

    def _given(self, left_out: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
        for one in self.context.command.params:
            name = str(one.name)
            if name not in left_out and is_given(self.context, name):
                yield one, self.context.params[name]

    def lines(self) -> Iterator[str]:
        """The options that were said, as a file has them."""
        for one, value in self._given((*_OWN, "out", "resume")):  # a folder takes one run
            if one.param_type_name == "option":
                yield f"{min(_keys(one), key=len)} = {_toml(value)}"

    @property
    def command(self) -> str:
        """The command that gives the same numbers again, without what changes none."""
        words = ["hushrec", *self.context.command_path.split()[1:]]
        for one, value in self._given(WITHOUT_EFFECT):
            words += _typed(one, value)
        return shlex.join(words)


def _typed(option: Any, value: Any) -> list[str]:
    """An option with its value, or an argument, as words of a command line."""
    values = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    if option.param_type_name != "option":
        return values
    flag = min((one for one in option.opts if one.startswith("--")), key=len, default=option.opts[0])
    if isinstance(value, bool):
        return [flag if value else option.secondary_opts[0]]
    return [word for one in values for word in (flag, one)] if option.multiple else [flag, *values]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\"} | {code: f"\\u{code:04x}" for code in (*range(32), 127)}
    return f'"{str(value).translate(escapes)}"'
