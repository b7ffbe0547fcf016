"""Runs that the page starts: each a process of its own, which does not end with the page."""

from pathlib import Path
from typing import Protocol


class Commands(Protocol):
    """What the command line knows of `hushrec run`."""


class Jobs:
    """Starts, stops and resumes runs."""

    def __init__(self, runs_folder: Path, state: Path, commands: Commands | None) -> None:
        self._runs_folder, self._state, self._commands = runs_folder, state, commands
