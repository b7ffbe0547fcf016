"""Owners: organisations that each hold some of the items, as in DRIFT; users are the same for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings.holders import Holders, Presence
from hushrec.data.holdings.node_files import (
    Catalogue,
    NodeData,
    NodeFiles,
    as_in_catalogue,
    ids_of,
    read_held_items,
    read_own,
    read_visitors,
    write_lines,
    write_ratings,
)
from hushrec.data.interactions import Arrays, Holding, Interactions, RatingRange
from hushrec.data.row_order import count_starts
from hushrec.data.splits import Split
from hushrec.data.stream import stream_order
from hushrec.draws import Draws
from hushrec.errors import HushrecError, option

MOST_OWNERS = 1000
_SECOND_OWNER = 0.5  # the chance that an item dealt at random has a second owner
_WAYS = f"give genre, a number from 1 to {MOST_OWNERS}, or a file with lines of item, tab, owner"


@dataclass(frozen=True, eq=False)
class Owners(Holding):
    """Organisations and the items that they hold; an item may have several owners, or none."""

    names: tuple[str, ...]
    starts: NDArray[np.int64]  # the owners of item i are owners[starts[i]:starts[i + 1]], ascending
    owners: NDArray[np.int32]
    has_users: bool = True  # whether the users' side is here, too; not on the node of an owner


@dataclass(frozen=True, eq=False)
class OwnerRows:
    """What the parties hold: owner k `held[held_starts[k]:held_starts[k + 1]]`, the users' side the stream."""

    names: tuple[str, ...]
    held_starts: NDArray[np.int64]
    held: NDArray[np.int32]  # ascending within an owner
    has_users: bool
    users: NDArray[np.int32]  # the events in the order of time; none without the users' side
    items: NDArray[np.int32]
    is_positive: NDArray[np.bool_]
    num_users: int


def owned(data: Interactions, deal: str, seed: int) -> Interactions:
    """The same data with owners of its items.

    `deal` is "genre" (an owner for each genre, of all its items), a number of owners (items are dealt at random,
    each to one owner and, with chance 1/2, to a second), or the path of a file with lines of item, tab, owner.
    """
    if type(data.holding) not in (Holding, Owners):
        raise HushrecError(f"{data.name} is divided among other parties; owners need data in one piece")
    if deal == "genre":
        names, items, owners = _by_genre(data)
    elif deal.isascii() and deal.isdigit():
        names, items, owners = _at_random(data, int(deal), seed)
    else:
        names, items, owners = _from_file(data, Path(deal).expanduser())
    if not 1 <= len(names) <= MOST_OWNERS:
        raise HushrecError(f"{option('owners', deal)}: {len(names)} owners; {_WAYS}")
    pairs = np.unique(np.stack([items, owners]).astype(np.int32), axis=1)  # by item, then owner
    return replace(data, holding=Owners(names, count_starts(pairs[0], data.num_items), pairs[1].copy()))


Dealt = tuple[tuple[str, ...], NDArray[np.integer], NDArray[np.integer]]  # names; item and owner of each holding


def _by_genre(data: Interactions) -> Dealt:
    if data.genres is None or not data.genres.astype(np.bool_).any():
        raise HushrecError(
            f"{data.name} has no genres; give {option('owners')} a number, or a file of items and owners"
        )
    held = [(item, genre) for item, text in enumerate(data.genres.tolist()) if text for genre in text.split("|")]
    return _numbered(held)


def _at_random(data: Interactions, num_owners: int, seed: int) -> Dealt:
    num_items = data.num_items
    if not 1 <= num_owners <= min(MOST_OWNERS, num_items):
        raise HushrecError(f"{option('owners', num_owners)}: choose 1 to {min(MOST_OWNERS, num_items)}")
    items = np.arange(num_items)
    if num_owners == 1:
        return ("all",), items, np.zeros(num_items, np.int64)
    rng = Draws(seed).generator("owners")
    first = rng.permutation(num_items) % num_owners
    second = (first + rng.integers(1, num_owners, num_items)) % num_owners
    has_second = rng.random(num_items) < _SECOND_OWNER
    width = len(str(num_owners))
    names = tuple(f"owner{number:0{width}}" for number in range(1, num_owners + 1))
    return names, np.append(items, items[has_second]), np.append(first, second[has_second])


def _from_file(data: Interactions, path: Path) -> Dealt:
    held = []
    for number, item, owner in read_held_items(path, f"{option('owners', str(path))}: no readable file; {_WAYS}"):
        try:
            held.append((data.item_number(item), owner))
        except HushrecError as error:
            raise HushrecError(f"{path}, line {number}: {error}") from None
    return _numbered(held)


def _numbered(held: list[tuple[int, str]]) -> Dealt:
    names = sorted({name for _, name in held})
    number_of = {name: number for number, name in enumerate(names)}
    items = np.array([item for item, _ in held], np.int64)
    return tuple(names), items, np.array([number_of[name] for _, name in held], np.int64)


# --- The parties -----------------------------------------------------------------------------------------


def owners_of(data: Interactions) -> Owners:
    """Who holds which item."""
    if not isinstance(data.holding, Owners):
        raise HushrecError(f"nobody owns the items of {data.name}; say who with {option('owners')}")
    return data.holding


def rows_of_owners(data: Interactions) -> OwnerRows:
    """The items of each owner, and the events of all users in the order of time."""
    owners = owners_of(data)
    if data.ratings is None and owners.has_users:
        raise HushrecError(f"{data.name} has no ratings to tell good from bad; take its as_signed()")
    owned_items = np.repeat(np.arange(data.num_items, dtype=np.int32), np.diff(owners.starts))
    held = owned_items[np.argsort(owners.owners, kind="stable")]
    rows = stream_order(data) if owners.has_users else np.empty(0, np.int64)
    return OwnerRows(
        owners.names, count_starts(owners.owners, len(owners.names)), held, owners.has_users,
        data.users[rows], data.items[rows], data.is_positive()[rows], data.num_users,
    )  # fmt: skip


def _lines_of(names: Sequence[str], num_without: int, per_item: float, per_event: float) -> list[str]:
    """Lines for people: who they are, how many items have none, how many own an item or the item of an event."""
    if len(names) < 2 and not num_without:
        return []
    without = f", {num_without} items have none" if num_without else ""
    return [
        f"{len(names)} owners: {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}",
        f"{per_item:.2f} owners per item and {per_event:.2f} per interaction{without}",
    ]


class HeldByOwners(Holders[OwnerRows]):
    """Organisations that hold items, and the users' side as the last party."""

    word = "owner"
    _USERS_NODE: ClassVar[str] = "users"

    def held(self, data: Interactions) -> Interactions:
        """As the data say, or with an owner for each genre, or with five owners at random."""
        if isinstance(data.holding, Owners):
            return data
        return owned(data, str(min(5, data.num_items)) if data.genres is None else "genre", 0)

    def dealt(self, data: Interactions, how: str, seed: int, wanted_by: str) -> Interactions:
        """Deal items to owners; see `owned`."""
        return owned(data, how, seed)

    def sample(self, data: Interactions, seed: int) -> Interactions:
        """Three owners; some items have two."""
        return owned(data, "3", seed)

    def num_parties(self, data: Interactions) -> int:
        """The owners, and the users' side if it is here."""
        owners = owners_of(data)
        return len(owners.names) + owners.has_users

    def rows(self, data: Interactions) -> OwnerRows:
        """Items of owners, events of users."""
        return rows_of_owners(data)

    def how_many(self, data: Interactions) -> int:
        """The owners alone."""
        return len(owners_of(data).names)

    def lines_for_people(self, data: Interactions) -> list[str]:
        """Who they are, and how many of them hold an item; a server does not know."""
        owners = owners_of(data)
        if not len(owners.owners):
            return []
        owners_of_item = np.diff(owners.starts)
        num_without = int((owners_of_item == 0).sum())
        per_item = len(owners.owners) / max(data.num_items - num_without, 1)
        per_event = float(owners_of_item[data.items].sum()) / max(len(data), 1)
        return _lines_of(owners.names, num_without, per_item, per_event)

    def from_older(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Names, and the lines of `lines_for_people`, from the numbers that they were made of."""
        if not (owners := kept.get("owners")):
            return {}
        names, per_event = owners["names"], owners["owners_per_interaction"]
        lines = _lines_of(names, owners["num_items_without"], owners["owners_per_item"], per_event)
        return {"names": names, "holding": lines}

    @property
    def traffic_per(self) -> str | None:
        """One owner or many learn from the same stream, so their traffic is told all together."""
        return None

    def arrays(self, data: Interactions) -> Arrays:
        """Who holds which item, and the place of each row in the stream of all users' events."""
        owners, rows, place = owners_of(data), data.canonical_order(), np.empty(len(data), np.int64)
        place[stream_order(data)] = np.arange(len(data))
        return {
            "owner_names": np.array(owners.names, np.str_),
            "owner_starts": owners.starts,
            "item_owners": owners.owners,
            "owner_has_users": np.array(owners.has_users),
            "stream_places": place if rows is None else place[rows],
        }

    def restored(self, data: Interactions, arrays: Mapping[str, NDArray[Any]]) -> Interactions:
        """With the owners that were kept; places in the stream stand for times."""
        names = tuple(str(name) for name in arrays["owner_names"])
        has_users = bool(arrays["owner_has_users"])
        owners = Owners(names, arrays["owner_starts"], arrays["item_owners"], has_users)
        return replace(data, holding=owners, timestamps=arrays["stream_places"])

    def node_names(self, data: Interactions, num_nodes: int) -> list[str]:
        """Owners are on the nodes, and one more node is the users' side."""
        return [*super().node_names(data, num_nodes), self._USERS_NODE]

    def deal(self, split: Split, nodes: Sequence[str], seed: int, folder: Path) -> dict[str, NodeFiles]:
        """Owners are dealt to all nodes but the last, which is the users' side."""
        train, owners = split.train, owners_of(split.train)
        *holding, users = nodes
        if not 1 <= len(holding) <= len(owners.names):
            raise HushrecError(
                f"{len(holding)} nodes for {len(owners.names)} owners; use at most one node per owner"
            )
        item_of = np.repeat(np.arange(train.num_items), np.diff(owners.starts))
        ids, dealt = train.item_ids.tolist(), {}
        for place, name in enumerate(holding):
            is_own = owners.owners % len(holding) == place
            pairs = zip(item_of[is_own].tolist(), owners.owners[is_own].tolist(), strict=True)
            (folder / name).mkdir(mode=0o700, parents=True)
            path = folder / name / "items.tsv"
            write_lines(path, [f"{ids[item]}\t{owners.names[owner]}" for item, owner in pairs])
            dealt[name] = NodeFiles(owned=str(path))
        (folder / users).mkdir(mode=0o700, parents=True)
        events, visitors = folder / users / "events.csv", folder / users / "visitors.txt"
        stream = train.select(stream_order(train))
        write_ratings(replace(stream, timestamps=np.arange(len(stream))), events)
        has_event = np.bincount(train.users, minlength=train.num_users) > 0
        write_lines(visitors, [str(user) for user in train.user_ids[~has_event].tolist()])
        return {**dealt, users: NodeFiles(data=str(events), visitors=str(visitors))}

    def check_files(self, files: NodeFiles, wanted_by: str) -> None:
        """Owners' items and users' events are both welcome."""

    def read(self, files: NodeFiles, node: str, catalogue: Catalogue, rating_range: RatingRange) -> NodeData:
        """Some owners with the items that they hold, or the users' side with all events."""
        if files.owned is not None:
            return NodeData(_owners_on_node(Path(files.owned), catalogue), None)
        return NodeData(_users_on_node(files, catalogue, rating_range), None, lists_users=True)

    def described(self, files: NodeFiles, _node: str) -> str | None:
        """Owners, and how many items they hold."""
        if files.owned is None:
            return None
        held = _held_on_node(Path(files.owned))
        return f"{len({owner for _, owner in held})} owners of {len({item for item, _ in held})} items"

    def read_test(
        self, files: NodeFiles, train: Interactions, catalogue: Catalogue, rating_range: RatingRange
    ) -> Interactions:
        """No node has both events to measure on and a model."""
        raise HushrecError("owners and users have no model to measure; leave --test out")

    def names(self, data: Interactions) -> list[str]:
        """Owners have names, the users' side has none."""
        return list(owners_of(data).names)

    def number(self, nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
        """Owners by name, over all nodes. The users' side comes last."""
        node_of: dict[str, str] = {}
        for node, said in sorted(nodes.items()):
            for owner in said.names:
                if owner in node_of:
                    raise HushrecError(
                        f"the owner {owner!r} is on {node_of[owner]} and on {node}; use one node for it"
                    )
                node_of[owner] = node
        num_unnamed = {node: said.num_clients - len(said.names) for node, said in nodes.items()}
        if not node_of:
            raise HushrecError("no node holds items; start one with hushrec deploy node --owned")
        if sum(num_unnamed.values()) != 1:
            who = ", ".join(sorted(node for node, num in num_unnamed.items() if num)) or "no node"
            raise HushrecError(f"events are on {who}; start one node, and only one, with --data and all events")
        number_of = {owner: number for number, owner in enumerate(sorted(node_of))}
        return {
            node: [number_of[owner] for owner in said.names] + ([len(number_of)] if num_unnamed[node] else [])
            for node, said in nodes.items()
        }

    def known(self, data: Interactions, num_parties: int) -> Interactions:
        """How many owners there are; not what they hold."""
        names = tuple(str(number) for number in range(num_parties - 1))
        owners = Owners(names, np.zeros(data.num_items + 1, np.int64), np.empty(0, np.int32))
        return replace(data, holding=owners)


def _held_on_node(path: Path) -> list[tuple[str, str]]:
    """Items and owners."""
    lines = read_held_items(path, f"cannot read the owned items in {path}; write lines of item, tab, owner")
    num_owners = len({line.owner for line in lines})
    if num_owners > MOST_OWNERS:  # perhaps a list of titles
        raise HushrecError(
            f"{path} names {num_owners} owners, more than {MOST_OWNERS}; write lines of item, tab, owner"
        )
    return [(item, owner) for _, item, owner in lines]


def _owners_on_node(path: Path, catalogue: Catalogue) -> Interactions:
    """A node of owners has no event."""
    held = _held_on_node(path)
    names, item_ids = sorted({owner for _, owner in held}), ids_of(catalogue.ids, catalogue.are_numbers)
    number_of = {item: number for number, item in enumerate(catalogue.ids)}
    num_unknown = len({item for item, _ in held} - number_of.keys())
    if num_unknown:
        raise HushrecError(f"{num_unknown} owned items are not in the catalogue; leave them out")
    pairs = np.unique([(number_of[item], names.index(owner)) for item, owner in held], axis=0).astype(np.int32)
    owners = Owners(tuple(names), count_starts(pairs[:, 0], len(item_ids)), pairs[:, 1].copy(), has_users=False)
    none: NDArray[np.int32] = np.empty(0, np.int32)
    return Interactions(
        none, none, np.empty(0, np.float32), None, None, np.empty(0, np.int64), item_ids, None, None, "own items",
        "", False, holding=owners,
    )  # fmt: skip


def _users_on_node(files: NodeFiles, catalogue: Catalogue, rating_range: RatingRange) -> Interactions:
    """All events, in the order of time; visitors are users without an event."""
    data = read_own(files, files.data, rating_range)
    try:
        visitors = ids_of(read_visitors(files).tolist(), data.user_ids.dtype.kind == "i")
    except ValueError:
        raise HushrecError("ids of visitors are texts, those of the events numbers; use the same ids") from None
    events = as_in_catalogue(data, np.union1d(data.user_ids, visitors), catalogue)
    none = Owners((), np.zeros(events.num_items + 1, np.int64), np.empty(0, np.int32))
    return replace(events, holding=none)


class HeldBySoleOwner(HeldByOwners):
    """One organisation that holds all items."""

    def held(self, data: Interactions) -> Interactions:
        """All with one owner, whoever owned it before."""
        is_of_one = isinstance(data.holding, Owners) and len(data.holding.names) < 2
        return data if is_of_one else owned(replace(data, holding=Holding()), "1", 0)

    def sample(self, data: Interactions, _seed: int) -> Interactions:
        """All items belong to the one owner."""
        return self.held(data)

    def dealt(self, data: Interactions, how: str, seed: int, wanted_by: str) -> Interactions:
        """Refuse: the only owner holds everything."""
        return Holders.dealt(self, data, how, seed, wanted_by)

    def number(self, nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
        """As for several owners, but refuse more than one."""
        num_owners = sum(len(said.names) for said in nodes.values())
        if num_owners > 1:
            raise HushrecError(f"{num_owners} owners where one holds all items; name one in --owned")
        return super().number(nodes)


OWNERS = HeldByOwners()
SOLE_OWNER = HeldBySoleOwner()
