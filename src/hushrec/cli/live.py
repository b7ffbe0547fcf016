"""What can be said to a system that learns from a stream: from data, or from events as they come."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer

from hushrec.cli.options import RunOptions, Source, complete_data
from hushrec.errors import HushrecError

_TAKEN = {"seed", "owners", "out", "resume"}  # options of any run that a live one takes


@dataclass(frozen=True, kw_only=True)
class MaybeSource(Source):
    """Where interactions come from, if not all of them come as events."""

    data: Annotated[
        str,
        typer.Option(help="A dataset's name (hushrec data list) or a file.", autocompletion=complete_data),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class LiveOptions(RunOptions):
    """Options of `hushrec run` for a system that learns from a stream: from data, or from events as they come."""

    source: MaybeSource
    live: Annotated[
        str, typer.Option(help="Learn from events as they come: - (standard input), or a file that grows.")
    ] = ""
    until_end: Annotated[bool, typer.Option("--until-end", help="With --live FILE: stop at its end.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="With --live: stop at a bad line.")] = False
    keep_every: Annotated[
        int, typer.Option(help="With --live and --out: lines after which the state is kept.", min=1)
    ] = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        of_live = {entry.name for entry in fields(self)} - {entry.name for entry in fields(RunOptions)}
        for entry in fields(self):
            is_given = entry.name not in ("source", "said") and getattr(self, entry.name) != entry.default
            flag = f"--{entry.name.removeprefix('as_').replace('_', '-')}"
            if is_given and self.live and entry.name not in of_live | _TAKEN:
                raise HushrecError(f"{flag} means nothing with --live; leave it out")
            if is_given and not self.live and entry.name in of_live:
                raise HushrecError(f"{flag} is for --live; leave it out")
        if not self.live and not self.source.data:
            raise HushrecError("say what to learn from: --data NAME-or-FILE, or --live with events as they come")
