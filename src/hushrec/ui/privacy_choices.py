"""What can be chosen on the page of one person's privacy: systems, their switches and protections, and data."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hushrec.data import Interactions
from hushrec.data.catalogue import CATALOGUE, SYNTHETIC, find_entry, load, locate
from hushrec.data.holdings import USERS
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem, Role
from hushrec.registry import SYSTEMS, system_named
from hushrec.serving.gate import Problem
from hushrec.settings import switches_of as typed
from hushrec.ui.site import Site

SMALL = f"{SYNTHETIC}:users=120,items=240,ratings=4800"
_KEPT_DATA = 3

LEAST_RATERS = "secure_least_raters"  # leaves rows that few have out of a sum
# What people would switch, in the order of the page; each system has some of it.
SWITCHES = (
    "rho", "filling", "resample", "denoisers", "shares", "secure_sums", LEAST_RATERS, "participation",
    "biases", "temperature", "flip", "defense", "uploads", "score_levels", "encryption", "variant",
    "epsilon_total",
)  # fmt: skip
# Where the published settings would show nothing of most people in a few rounds, or take minutes.
STARTS_AT: dict[str, dict[str, Any]] = {"fedncf": {"participation": 1.0}}
# Systems without secure sums, and the one that computes the same with them.
_SUMMED_IN = {"fedrec++": "fedrec", "sdcf-denoised": "sdcf"}


# --- Systems ---------------------------------------------------------------------------------------------------


def watchable(name: str) -> AnySystem:
    """A system in which people send something to a server, or a refusal."""
    if name not in watchable_names():
        raise HushrecError(f"there is no such system here; choose from {', '.join(watchable_names())}")
    return system_named(name)


def watchable_names() -> list[str]:
    """Systems whose clients are people, and upload."""
    return [name for name, system in SYSTEMS.items() if _is_watchable(system)]


def _is_watchable(system: AnySystem) -> bool:
    has_rounds = any(entry.name == "num_rounds" for entry in fields(system.config))
    uploads = any(kind.sender == Role.CLIENT and kind.receiver == Role.SERVER for kind in system.messages)
    return system.holders is USERS and has_rounds and uploads and not system.about.hands_over_data


def configured(system: AnySystem, switched: Mapping[str, Any], num_rounds: int) -> Any:
    """The settings of a run to watch. Nothing else can be chosen: much of it would take hours, or all memory."""
    declared = {entry.name for entry in fields(system.config)}
    for name in switched:
        if name in declared and name not in SWITCHES:
            raise HushrecError(f"{name} cannot be chosen here; leave it out")
    return system.configure({**STARTS_AT.get(system.name, {}), **switched, "num_rounds": num_rounds})


def switches_of(system: AnySystem) -> list[dict[str, Any]]:
    """The settings of a system that people would switch, with what they may be."""
    hints, start = get_type_hints(system.config), STARTS_AT.get(system.name, {})
    declared = {entry.name: entry for entry in fields(system.config)}
    found = []
    for name in SWITCHES:
        if name not in declared:
            continue
        entry, hint = declared[name], hints[name]
        is_choice = get_origin(hint) is Literal
        kind = "choice" if is_choice else {bool: "switch", int: "whole", float: "real"}[hint]
        about = {"name": name, "kind": kind, "help": entry.metadata.get("help", ""), "published": entry.default}
        about |= {"value": start.get(name, entry.default), "within": entry.metadata.get("within", "")}
        found.append({**about, "choices": list(get_args(hint)) if is_choice else []})
    return found


def ways_of(system: AnySystem) -> list[dict[str, Any]]:
    """As published, and with what its authors or we know against attacks; in another system, if it has none."""
    changed = typed(STARTS_AT.get(system.name, {}))
    found = [_way(system, {}, f"As published{f', with {changed}' if changed else ''}", is_repair=False)]
    if any(entry.name == "resample" for entry in fields(system.config)):
        found.append(_way(system, {"resample": "once"}, "Lists drawn once", is_repair=False))
    found += [_way(system, values, _name_of(values)) for values in system.about.repairs]
    if system.name in _SUMMED_IN:
        other = system_named(_SUMMED_IN[system.name])
        found += [_way(other, values, f"{_name_of(values)}, in {other.name}") for values in other.about.repairs]
    return found


def _way(system: AnySystem, values: Mapping[str, Any], name: str, is_repair: bool = True) -> dict[str, Any]:
    return {"name": name, "system": system.name, "settings": dict(values), "is_repair": is_repair}


def _name_of(repair: Mapping[str, Any]) -> str:
    if repair.get("secure_sums"):
        return "Secure sums"
    return f"Shares over {repair['shares']} denoisers" if repair.get("shares") else typed(repair)


def described(system: AnySystem) -> dict[str, Any]:
    """A system as the page has it."""
    about = system.about
    return {
        "name": system.name,
        "title": about.title,
        "paper": f"{about.paper.authors}: {about.paper.title}. {about.paper.venue} {about.paper.year}.",
        "reads_ratings": system.feedback.needs_ratings,
        "has_denoisers": any(kind.receiver == Role.DENOISER for kind in system.messages),
        "switches": switches_of(system),
        "ways": ways_of(system),
    }


# --- Data ------------------------------------------------------------------------------------------------------


class Sources:
    """Data that is on this machine: of the catalogue, made up, or files below the folder that is shown."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._opened: OrderedDict[str, Interactions] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Those that need not be fetched, smallest first."""
        present = [entry for entry in CATALOGUE.values() if locate(entry).kind in ("folder", "cache", "package")]
        present.sort(key=lambda entry: entry.num_interactions)
        return [SMALL, *(entry.name for entry in present)]

    def open(self, name: str) -> Interactions:
        """Load it, or have it from before."""
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._load(name)
            self._opened.move_to_end(name)
            while len(self._opened) > _KEPT_DATA:
                self._opened.popitem(last=False)
            return self._opened[name]

    def _load(self, name: str) -> Interactions:
        if find_entry(name) is not None or name in (SMALL, SYNTHETIC):
            return load(name, fetch=_refuse_to_fetch)
        path = self._site.inside(name)
        if not path.is_file():
            raise Problem(404, "no data of this name is on this machine; choose one from the list")
        try:
            return load(path)
        except HushrecError:
            raise Problem(
                422, "this file cannot be read as ratings; hushrec data describe FILE says why"
            ) from None


def _refuse_to_fetch(_address: str, _folder: Path) -> Path:
    raise HushrecError("nothing is fetched from here; fetch it with: hushrec data fetch NAME")
