"""One person's privacy: what is private, what left the device, what a curious server concludes, round by round.

What is computed here shows private ratings of data on this machine to whoever opens the page on it: that is what
it is for. Nothing of it is written anywhere, or logged. Results stay in memory, by their settings.
"""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hushrec.audit.scoreboard import Attack
from hushrec.audit.verdicts import known_repairs, repairs_of
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.runs.lists import title_of
from hushrec.serving.gate import Problem
from hushrec.ui.privacy_choices import LEAST_RATERS, Sources, configured, described, watchable, watchable_names
from hushrec.ui.privacy_sent import MOST_COLUMNS, told
from hushrec.ui.privacy_watch import Said, Scene, Watched, marked, scene_of, verdict, watch
from hushrec.ui.site import Site, query_number, taking

_log = logging.getLogger("hushrec")

MOST_ROUNDS, MOST_PEOPLE, LEAST_PEOPLE = 30, 1000, 4
_KEPT_WATCHES = 24
_WAITS_SECONDS = 1.5  # how long an answer waits for a round, so that it need not be asked again
_FORGOTTEN_SECONDS = 20.0  # after which a run that nobody asks for is ended
_MOST_USERS = 60


class Wanted(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What to watch."""

    data: str
    user: str
    system: str
    settings: dict[str, bool | int | float | str] = {}
    num_rounds: int = 5
    num_people: int = 100
    with_denoisers: bool = False
    seed: int = 0


class Named(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A watch that was started."""

    id: str


# --- Watches ---------------------------------------------------------------------------------------------------


class Watch:
    """A run under way, or done. Rounds come one after the other."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        self.id, self.wanted = name, wanted
        self.scene: Scene | None = None
        self.rounds: list[Watched] = []
        self.fault = ""
        self.is_done = False
        self.is_ended = threading.Event()  # somebody wants no more of it
        self.has_come = threading.Condition()
        self.asked_at = time.monotonic()

    def add(self, watched: Watched) -> None:
        """One more round."""
        with self.has_come:
            self.rounds.append(watched)
            self.has_come.notify_all()

    def end(self, fault: str = "") -> None:
        """No more rounds come."""
        with self.has_come:
            self.fault, self.is_done = fault, True
            self.has_come.notify_all()

    def wait(self, seconds: float, more_than: int) -> None:
        """Until it is done, or has more rounds than these, or the time is over."""
        self.asked_at = time.monotonic()
        with self.has_come:
            self.has_come.wait_for(lambda: self.is_done or len(self.rounds) > more_than, seconds)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still asks for it."""
        return not self.is_ended.is_set() and time.monotonic() - self.asked_at < _FORGOTTEN_SECONDS


class Watches:
    """All watches, by their settings; one is computed at a time."""

    def __init__(self, open_data: Callable[[str], Interactions], ending: threading.Event) -> None:
        self._open_data, self._ending = open_data, ending
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "privacy")

    def start(self, wanted: Wanted) -> Watch:
        """A watch with these settings: one that is there, or a new one."""
        name = hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()[:20]
        with self._lock:
            known = self._watches.get(name)
            if known is not None and not known.fault and (known.is_done or known.is_wanted):
                self._watches.move_to_end(name)
                known.asked_at = time.monotonic()
                return known
            scene = self._scene(wanted)
            found = self._watches[name] = Watch(name, wanted)
            found.scene = scene
            self._watches.move_to_end(name)
            while len(self._watches) > _KEPT_WATCHES:
                self._watches.popitem(last=False)[1].is_ended.set()
        self._worker.submit(self._work, found)
        return found

    def named(self, name: str) -> Watch:
        """A watch that was started."""
        with self._lock:
            if name not in self._watches:
                raise Problem(404, "this is no longer in memory; choose the settings again")
            return self._watches[name]

    def _scene(self, wanted: Wanted) -> Scene:
        _check(wanted)
        system = watchable(wanted.system)
        config = configured(system, wanted.settings, wanted.num_rounds)
        data = self._open_data(wanted.data)
        user = _user_number(data, wanted.user)
        return scene_of(system, config, data, user, wanted.num_people, wanted.seed, wanted.with_denoisers)

    def _work(self, found: Watch) -> None:
        def is_enough() -> bool:
            return not found.is_wanted or self._ending.is_set()

        try:
            if is_enough():
                found.end("ended before it began; choose the settings again")
                return
            assert found.scene is not None
            watch(found.scene, found.add, is_enough)
            is_whole = len(found.rounds) == found.wanted.num_rounds
            found.end("" if is_whole else "ended early; choose the settings again")
        except HushrecError as error:
            found.end(str(error))
        except Exception as error:
            _log.warning("a run for the privacy page failed: %s", type(error).__name__)
            found.end("this run failed; choose other settings")


def _check(wanted: Wanted) -> None:
    if not 1 <= wanted.num_rounds <= MOST_ROUNDS:
        raise HushrecError(f"{wanted.num_rounds} rounds; choose 1 to {MOST_ROUNDS}")
    if not LEAST_PEOPLE <= wanted.num_people <= MOST_PEOPLE:
        raise HushrecError(f"{wanted.num_people} people; choose {LEAST_PEOPLE} to {MOST_PEOPLE}")
    if not 0 <= wanted.seed < 2**31:
        raise HushrecError(f"the seed {wanted.seed}; choose 0 to {2**31 - 1}")


def _user_number(data: Interactions, user: str) -> int:
    """Errors do not repeat the id: it may be somebody's name."""
    try:
        number = data.user_number(user)
    except HushrecError:
        raise Problem(404, "nobody in this data has that id; choose one from the list") from None
    if not (data.users == number).any():
        raise Problem(404, "this person has no ratings in this data; choose another")
    return number


# --- What is told ----------------------------------------------------------------------------------------------


def _summary(watched: Watched, scene: Scene) -> dict[str, Any]:
    """A round in short, for the slider and its curve."""
    said = watched.said[0] if watched.said else None
    marks = marked(said, scene)
    sentence, tone = verdict(watched, scene)
    return {
        "round": watched.round_number,
        "sentence": sentence,
        "tone": tone,
        "attack": said.attack.name if said else None,
        "precision": marks.precision,
        "recall": marks.recall,
        "right": marks.num_right,
        "wrong": marks.num_wrong,
        "exact": marks.num_exact if said and said.has_ratings else None,
        "bytes": sum(one.num_bytes for one in watched.sent),
        "people_in_sum": watched.num_summed,
    }


def _status(found: Watch, known: int = 0) -> dict[str, Any]:
    scene, rounds = found.scene, list(found.rounds)
    assert scene is not None
    return {
        "id": found.id,
        "num_rounds": found.wanted.num_rounds,
        "is_done": found.is_done,
        "fault": found.fault,
        "rounds": [_summary(one, scene) for one in rounds[known:]],
    }


def _person(scene: Scene) -> dict[str, Any]:
    train, items, ratings = scene.job.train, scene.own_items, scene.own_ratings
    return {
        "num_people": train.num_users,
        "num_items": train.num_items,
        "scale": train.rating_range,
        "items": items.tolist(),
        "ratings": None if ratings is None else ratings.tolist(),
        "titles": _titles(train, items),
    }


def _titles(train: Interactions, items: Any) -> dict[int, str]:
    numbers = np.unique(np.asarray(items, np.int64)).tolist()
    return {number: title_of(train, number) or f"item {train.item_ids[number]}" for number in numbers}


def _attack(said: Said, scene: Scene) -> dict[str, Any]:
    marks = marked(said, scene)
    is_said = np.isfinite(said.ratings)
    return {
        "name": said.attack.name,
        "by": said.attack.role,
        "guesses": said.attack.guesses,
        "since": said.since_round,
        "f1_of_others": said.f1_of_others,
        "items": said.items.tolist(),
        "ratings": [float(one) if known else None for one, known in zip(said.ratings, is_said, strict=True)],
        "is_right": marks.is_right.tolist(),
        "is_exact": marks.is_exact.tolist(),
        "right": marks.num_right,
        "wrong": marks.num_wrong,
        "missed": marks.num_own - marks.num_right,
        "exact": marks.num_exact if said.has_ratings else None,
        "repairs": _repairs(said.attack, scene.job.config),
    }


def _repairs(attack: Attack[Any], config: Any) -> list[str]:
    """The switches against an attack, of this system or of others, that are not on already."""
    is_on = set(known_repairs(attack, config)) - set(repairs_of(attack, config))
    return [switch for switch in attack.repairs if switch not in is_on]


def _detail(watched: Watched, scene: Scene, most_columns: int) -> dict[str, Any]:
    """A round in full."""
    sent = [told(one.message, one.num_bytes, one.is_seen, most_columns) for one in watched.sent]
    attacks = [_attack(said, scene) for said in watched.said]
    items = [number for message in (*sent, *attacks) for number in message.get("items", ())]
    unnamed, has_switch = watched.unnamed, hasattr(scene.job.config, LEAST_RATERS)
    return {
        **_summary(watched, scene),
        "sent": sent,
        "attacks": attacks,
        "unnamed": unnamed and {"read": unnamed.num_read, "own": unnamed.num_own, "has_switch": has_switch},
        "titles": _titles(scene.job.train, items),
    }


# --- Routes ----------------------------------------------------------------------------------------------------


def routes(site: Site) -> list[Route]:
    """`/api/privacy/...`"""
    sources = Sources(site)
    watches = Watches(sources.open, site.ending)

    def choices(_request: Request) -> Response:
        """Data and systems to choose from."""
        systems = [described(system_named(name)) for name in watchable_names()]
        limits = {"rounds": MOST_ROUNDS, "least_people": LEAST_PEOPLE, "people": MOST_PEOPLE}
        return site.answer({"data": sources.names(), "systems": systems, "limits": limits})

    def users(request: Request) -> Response:
        """People of a data set, with how many ratings they have."""
        data = sources.open(request.query_params.get("data", ""))
        text = request.query_params.get("q", "").strip()
        counts = np.bincount(data.users, minlength=data.num_users)
        ids = [(str(one), int(count)) for one, count in zip(data.user_ids.tolist(), counts, strict=True) if count]
        found = [one for one in ids if one[0].startswith(text)][:_MOST_USERS]
        shown = [{"user": user, "num_ratings": count} for user, count in found]
        return site.answer({"users": shown, "num_users": len(ids), "name": data.name})

    def start(wanted: Wanted) -> Response:
        found = watches.start(wanted)
        found.wait(_WAITS_SECONDS, 0)
        assert found.scene is not None
        return site.answer({**_status(found), "person": _person(found.scene)})

    def more(request: Request) -> Response:
        """Rounds beyond those that are known, as soon as there is one."""
        found = watches.named(request.path_params["name"])
        known = query_number(request, "known", 0, 0, MOST_ROUNDS)
        found.wait(_WAITS_SECONDS, known)
        return site.answer(_status(found, known))

    def one_round(request: Request) -> Response:
        found = watches.named(request.path_params["name"])
        text = request.path_params["number"]
        number = int(text) if text.isdecimal() and len(text) <= len(str(MOST_ROUNDS)) else 0
        if not 1 <= number <= len(found.rounds):
            raise Problem(404, "this round has not been computed; wait for it, or choose another")
        most = query_number(request, "columns", MOST_COLUMNS, 1, 10_000)
        assert found.scene is not None
        return site.answer(_detail(found.rounds[number - 1], found.scene, most))

    def stop(named: Named) -> Response:
        """End a run that nobody looks at any more."""
        found = watches.named(named.id)
        if not found.is_done:
            found.is_ended.set()
        return site.answer({})

    return [
        Route("/api/privacy/choices", choices),
        Route("/api/privacy/users", users),
        Route("/api/privacy/watch", taking(Wanted, start), methods=["POST"]),
        Route("/api/privacy/stop", taking(Named, stop), methods=["POST"]),
        Route("/api/privacy/watch/{name}", more),
        Route("/api/privacy/watch/{name}/rounds/{number}", one_round),
    ]
