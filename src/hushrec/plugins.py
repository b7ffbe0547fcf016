"""Registries: what there is, by name. Ours is listed in a table; other packages add to it by entry points.

The groups are `hushrec.systems`, `hushrec.attacks` and `hushrec.datasets`. Nothing is imported before it is asked
for. A part of another package that cannot be loaded, or whose name is taken, is left out, and one line says so.
"""

import logging
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from hushrec.errors import HushrecError

Entry = TypeVar("Entry")

_log = logging.getLogger("hushrec")


def _package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A mapping from names to things that are loaded when they are asked for."""

    def __init__(
        self,
        what: str,
        group: str,
        attribute: str = "",
        built_in: Mapping[str, str] | None = None,
        *,
        loaded: Mapping[str, Entry] | None = None,
        kind: str = "builtins:object",
    ) -> None:
        """`built_in`: modules by name, in each of which the thing is called `attribute`; `loaded`: what is here.

        What other packages bring is of this `kind`, a class as `module:name`, and has the name of its entry point.
        """
        self.what, self.group, self._kind = what, group, kind
        self._places = {name: f"{module}:{attribute}" for name, module in (built_in or {}).items()}
        self._loaded = dict(loaded or {})
        self._ours = {*self._places, *self._loaded}
        self._warned_of: set[str] = set()

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint | None]:
        own = {name: EntryPoint(name, place, self.group) for name, place in self._places.items()}
        ours: dict[str, EntryPoint | None] = {**dict.fromkeys(self._loaded), **own}
        others: dict[str, EntryPoint | None] = {}
        for entry in sorted(entry_points(group=self.group), key=lambda entry: (entry.name, _package_of(entry))):
            first = others.setdefault(entry.name, entry) if entry.name not in ours else None
            if first is not entry:
                taken_by, package = _package_of(first) if first else "hushrec", _package_of(entry)
                _log.warning(
                    "the %s %s of %s is left out: %s has one of that name; remove one of these packages",
                    self.what, entry.name, package, taken_by,
                )  # fmt: skip
        return ours | others

    def __getitem__(self, name: str) -> Entry:
        if name not in self._loaded:
            entry = self._entry_points[name]
            assert entry is not None
            self._loaded[name] = entry.load() if name in self._ours else self._of_others(name, entry)
        return self._loaded[name]

    def _of_others(self, name: str, entry: EntryPoint) -> Entry:
        """What another package brings."""
        try:
            found: Entry = entry.load()
            kind: type[Any] = EntryPoint(name, self._kind, self.group).load()
            if not isinstance(found, kind):
                raise TypeError(f"{entry.value} is no {kind.__name__}")
            if getattr(found, "name", name) != name:
                raise ValueError(f"{entry.value} calls itself {getattr(found, 'name', '')}")
        except (Exception, SystemExit) as error:
            reason = " ".join((repr(error) if isinstance(error, SystemExit) else str(error)).split())
            raise HushrecError(
                f"the {self.what} {name} of {_package_of(entry)} cannot be loaded ({reason}); "
                "update or remove that package"
            ) from error
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry_points)

    def __len__(self) -> int:
        return len(self._entry_points)

    def __contains__(self, name: object) -> bool:
        return name in self._entry_points

    def items(self) -> ItemsView[str, Entry]:
        """All that can be used; what cannot is left out, and told of once."""
        return self._usable(self).items()

    def values(self) -> ValuesView[Entry]:
        """All that can be used; what cannot is left out, and told of once."""
        return self._usable(self).values()

    def others(self) -> dict[str, Entry]:
        """What other packages bring and can be used."""
        return self._usable(name for name in self if not self.is_built_in(name))

    def _usable(self, names: Iterable[str]) -> dict[str, Entry]:
        usable = {}
        for name in names:
            try:
                usable[name] = self[name]
            except HushrecError as error:
                if name not in self._warned_of:
                    _log.warning("%s", error)
                self._warned_of.add(name)
        return usable

    def is_built_in(self, name: str) -> bool:
        """Whether it comes with hushrec."""
        return name in self._ours

    def named(self, name: str) -> Entry:
        """The thing of this name."""
        if name not in self:
            raise HushrecError(f"no {self.what} {name!r}; choose from {', '.join(self)}")
        return self[name]
