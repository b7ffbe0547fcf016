"""What a node brings into a run: its settings, its clients, its share of the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions, Owners, Partners, read
from hushrec.data.interactions import Ids
from hushrec.data.readers import Columns
from hushrec.data.row_order import count_starts
from hushrec.deploy.items import read_catalogue, read_owned
from hushrec.deploy.orders import Catalogue
from hushrec.errors import HushrecError
from hushrec.protocol import Numbers, System
from hushrec.runtime.checkpoint import write_private_file
from hushrec.runtime.in_process import cohort_bounds
from hushrec.runtime.packets import MAX_PACKET_BYTES
from hushrec.systems import SYSTEMS

# In these systems the server gets the ratings themselves; a node's owner must allow them by name.
_OPEN_SYSTEMS = {name for name, system in SYSTEMS.items() if system.hands_over_data}


@dataclass(frozen=True)
class NodeSettings:
    """What the owner of a node decided. Kept on the node; the server never sees or sets it."""

    data: str | None = None  # path of the ratings; None on a node of owners
    columns: Columns | None = None
    duplicates: str = "error"
    numbers: str | None = None  # path of agreed numbers of clients
    test: str | None = None  # path of ratings to measure on
    systems: list[str] = field(default_factory=lambda: sorted(set(SYSTEMS) - _OPEN_SYSTEMS))
    required: dict[str, str] = field(default_factory=dict)  # settings without which the node does not take part
    accepts_shared_seed: bool = False
    max_packet_bytes: int = MAX_PACKET_BYTES
    visitors: str | None = None  # of a partner: path of users whom it wants to serve, but who have no rating here
    items: str | None = None  # of a partner: path of its own catalogue; without it: the rated items
    owned: str | None = None  # of owners: path of the items that they hold


def write_settings(kit: Path, settings: NodeSettings) -> None:
    """Keep what the owner decided."""
    write_private_file(kit / "private" / "node.json", msgspec.json.encode(settings))


def read_settings(kit: Path) -> NodeSettings:
    """What the owner decided."""
    path = kit / "private" / "node.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeSettings)
    except FileNotFoundError:
        raise HushrecError(f"{kit} has no settings; start the node with: hushrec deploy node") from None
    except msgspec.MsgspecError as error:
        raise HushrecError(f"{path} is damaged ({error}); run hushrec deploy node again") from None


@dataclass(frozen=True)
class Clients:
    """The clients of a node with their ratings, or the only partner there, or its owners, or the users' side."""

    train: Interactions
    numbers: Numbers | None  # of `train.user_ids`, if agreed on beforehand


def clients_of(settings: NodeSettings, catalogue: Catalogue, rating_range: tuple[float, float] | None) -> Clients:
    """Read the node's own ratings, and see that its test ratings can be used, too."""
    data = read_own(settings, settings.data, rating_range)
    user_ids, numbers = data.user_ids, None
    if settings.numbers is not None:
        user_ids, numbers = _read_numbers(Path(settings.numbers), data.user_ids)
    if settings.test is not None:
        as_in_catalogue(read_own(settings, settings.test, rating_range), user_ids, catalogue)
    return Clients(as_in_catalogue(data, user_ids, catalogue), numbers)


def partner_of(settings: NodeSettings, name: str, rating_range: tuple[float, float] | None) -> Clients:
    """The node as a partner: its own users, visitors and items, which no other knows; by their ids as texts."""
    data = read_own(settings, settings.data, rating_range)
    if data.ratings is None:
        raise HushrecError(f"{settings.data} has no ratings, which partners need; add a column rating")
    if settings.items is None:
        catalogue = Catalogue(np.unique(data.item_ids.astype(np.str_)).tolist(), False)
    else:
        catalogue = read_catalogue(Path(settings.items), as_texts=True)
    user_ids = np.union1d(data.user_ids.astype(np.str_), read_visitors(settings))
    own = as_in_catalogue(data, user_ids, catalogue)
    train = replace(
        own,
        user_ids=np.char.add(f"{name}:", user_ids),
        item_ids=np.char.add(f"{name}:", np.array(catalogue.ids, np.str_)),
        partners=Partners((name,), np.array([0, own.num_users]), np.array([0, own.num_items])),
    )
    if settings.test is not None:
        own_test(settings, train, catalogue, rating_range)
    return Clients(train, None)


def owners_of(settings: NodeSettings, catalogue: Catalogue) -> Clients:
    """The node as some owners with the items that they hold: it has no event."""
    assert settings.owned is not None
    held = read_owned(Path(settings.owned))
    names, item_ids = sorted({owner for _, owner in held}), ids_of(catalogue.ids, catalogue.are_numbers)
    number_of = {item: number for number, item in enumerate(catalogue.ids)}
    num_unknown = len({item for item, _ in held} - number_of.keys())
    if num_unknown:
        raise HushrecError(f"{num_unknown} owned items are not in the catalogue; leave them out")
    pairs = np.unique([(number_of[item], names.index(owner)) for item, owner in held], axis=0).astype(np.int32)
    owners = Owners(tuple(names), count_starts(pairs[:, 0], len(item_ids)), pairs[:, 1].copy(), has_users=False)
    none: Numbers = np.empty(0, np.int32)
    return Clients(
        Interactions(
            none, none, np.empty(0, np.float32), None, None, np.empty(0, np.int64), item_ids, None, None,
            "own items", "", False, owners=owners,
        ),
        None,
    )  # fmt: skip


def users_side(settings: NodeSettings, catalogue: Catalogue, rating_range: tuple[float, float] | None) -> Clients:
    """The node as the users' side: all events, in the order of time; visitors are users without an event."""
    data = read_own(settings, settings.data, rating_range)
    try:
        visitors = ids_of(read_visitors(settings).tolist(), data.user_ids.dtype.kind == "i")
    except ValueError:
        raise HushrecError("ids of visitors are texts, those of the events numbers; use the same ids") from None
    events = as_in_catalogue(data, np.union1d(data.user_ids, visitors), catalogue)
    none = Owners((), np.zeros(events.num_items + 1, np.int64), np.empty(0, np.int32))
    return Clients(replace(events, owners=none), None)


def read_visitors(settings: NodeSettings) -> NDArray[np.str_]:
    """Lines of ids."""
    if settings.visitors is None:
        return np.empty(0, np.str_)
    try:
        lines = Path(settings.visitors).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise HushrecError(f"cannot read the visitors in {settings.visitors}; write one user per line") from None
    return np.array([line.strip() for line in lines if line.strip()], np.str_)


def own_test(
    settings: NodeSettings, train: Interactions, catalogue: Catalogue, rating_range: tuple[float, float] | None
) -> Interactions:
    """The node's test ratings, numbered as those that it trains on."""
    assert settings.test is not None
    data = read_own(settings, settings.test, rating_range)
    if train.partners is None:
        return as_in_catalogue(data, train.user_ids, catalogue)
    rows = train.by_partner()
    own = as_in_catalogue(data, rows.user_ids, Catalogue(rows.item_ids.tolist(), False))
    return replace(train, users=own.users, items=own.items, ratings=own.ratings, rating_range=rating_range)


def read_own(settings: NodeSettings, path: str | None, rating_range: tuple[float, float] | None) -> Interactions:
    """A file of the node's ratings."""
    if path is None:
        raise HushrecError("this node has no ratings; start it with --data")
    data = read(path, columns=settings.columns, duplicates=settings.duplicates, rating_range=rating_range)  # type: ignore[arg-type]
    return replace(data, name="own ratings")


def as_in_catalogue(data: Interactions, user_ids: Ids, catalogue: Catalogue) -> Interactions:
    """The same ratings with the federation's numbers of items."""
    item_ids = ids_of(catalogue.ids, catalogue.are_numbers)
    used = _as_kind(data.item_ids[np.unique(data.items)], item_ids)
    num_unknown = len(used) - np.count_nonzero(np.isin(used, item_ids))
    if num_unknown:
        raise HushrecError(f"{num_unknown} rated items are not in the catalogue; leave them out")
    titles = None if catalogue.titles is None else np.array(catalogue.titles, np.str_)
    rows = _as_kind(data.user_ids, user_ids)
    num_strangers = len(rows) - np.count_nonzero(np.isin(rows, user_ids))
    if num_strangers:
        raise HushrecError(f"{num_strangers} users are not clients of this node; leave them out")
    return replace(
        data,
        users=np.searchsorted(user_ids, rows)[data.users].astype(np.int32),
        items=np.searchsorted(item_ids, _as_kind(data.item_ids, item_ids))[data.items].astype(np.int32),
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
    )


def ids_of(texts: list[str], are_numbers: bool) -> Ids:
    """Ids as they are kept in memory."""
    return np.array(texts, np.int64) if are_numbers else np.array(texts, np.str_)


def _as_kind(ids: Ids, like: Ids) -> Ids:
    """Ids as numbers or as texts, as the others are; texts that are no numbers match nothing."""
    if ids.dtype.kind == like.dtype.kind:
        return ids
    if like.dtype.kind == "U":
        return ids.astype(np.str_)
    raise HushrecError("ids are texts here and numbers in the rest of the federation; use the same ids")


def _read_numbers(path: Path, known: Ids) -> tuple[Ids, Numbers]:
    """Lines of `user<TAB>number`: clients whose numbers were agreed on, with or without ratings."""
    try:
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
        given = {user: int(number) for user, number in lines}
        if not all(0 <= number < 2**31 - 1 for number in given.values()):
            raise ValueError
    except (OSError, ValueError):
        raise HushrecError(f"{path} is no list of agreed numbers; write lines of user, tab, number") from None
    try:
        user_ids = ids_of(list(given), known.dtype.kind == "i")
    except ValueError:
        raise HushrecError(f"{path}: user ids are texts here and numbers in the ratings") from None
    order = np.argsort(user_ids)
    user_ids = user_ids[order]
    numbers: NDArray[np.int32] = np.array(list(given.values()), np.int32)[order]
    if len(given) < len(lines) or len(np.unique(user_ids)) < len(user_ids) or not np.isin(known, user_ids).all():
        raise HushrecError(f"{path} does not give one number to each user of the ratings")
    return user_ids, numbers


def letter_bytes(system: System[Any, Any, Any], private: Any, config: Any) -> int:
    """What a letter has room for: the mail of one cohort, rounded up to two digits in binary."""
    reply_bytes = system.reply_bytes(private, config)
    largest = max(int(reply_bytes[first:last].sum()) for first, last in cohort_bounds(reply_bytes))
    needed = largest + int(reply_bytes.max()) + 16 * len(reply_bytes) + 64
    unit = 1 << max(needed.bit_length() - 2, 0)
    return -(-needed // unit) * unit


def numbers_digest(numbers: Sequence[int]) -> bytes:
    """What a key card is bound to: the numbers of the clients behind it."""
    return sha256(np.array(numbers, "<i4").tobytes()).digest()
