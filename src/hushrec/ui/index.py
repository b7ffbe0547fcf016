"""What is known of all runs below a folder."""

from pathlib import Path


class RunIndex:
    """The runs below a folder, kept in SQLite; rebuilt if it is lost."""

    def __init__(self, runs_folder: Path, state: Path) -> None:
        self._runs_folder, self._state = runs_folder, state
