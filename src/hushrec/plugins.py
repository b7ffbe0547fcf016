"""Registries: what there is, by name. Ours is listed in a table; other packages add to it by entry points.

The groups are `hushrec.systems`, `hushrec.attacks` and `hushrec.datasets`. Nothing is imported before it is asked
for.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from hushrec.errors import HushrecError

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A mapping from names to things that are loaded when they are asked for."""

    def __init__(self, what: str, group: str, attribute: str, built_in: Mapping[str, str]) -> None:
        """`built_in`: modules by name, in each of which the thing is called `attribute`."""
        self.what, self.group = what, group
        self._places = {name: f"{module}:{attribute}" for name, module in built_in.items()}
        self._loaded: dict[str, Entry] = {}

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        own = {name: EntryPoint(name, place, self.group) for name, place in self._places.items()}
        found = {entry.name: entry for entry in sorted(entry_points(group=self.group)) if entry.name not in own}
        return {**own, **found}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._loaded:
            entry = self._entry_points[name]
            try:
                self._loaded[name] = entry.load()
            except Exception as error:
                if name in self._places:
                    raise
                package = entry.dist.name if entry.dist else entry.module
                raise HushrecError(
                    f"the {self.what} {name} of {package} cannot be loaded ({error}); update or remove it"
                ) from error
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry_points)

    def __len__(self) -> int:
        return len(self._entry_points)

    def __contains__(self, name: object) -> bool:
        return name in self._entry_points

    def is_built_in(self, name: str) -> bool:
        """Whether it comes with hushrec."""
        return name in self._places

    def named(self, name: str) -> Entry:
        """The thing of this name."""
        if name not in self:
            raise HushrecError(f"no {self.what} {name!r}; choose from {', '.join(self)}")
        return self[name]
