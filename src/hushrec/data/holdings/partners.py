"""Partners: organisations that each hold ratings of their own users on their own items."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from hushrec.data.checking import data_digest
from hushrec.data.holdings.holders import Holders, Presence, numbers_in_order
from hushrec.data.holdings.node_files import (
    Catalogue,
    NodeData,
    NodeFiles,
    as_in_catalogue,
    read_catalogue,
    read_own,
    read_visitors,
    write_both,
    write_lines,
)
from hushrec.data.interactions import Arrays, Holding, Ids, Interactions, Numbers, RatingRange
from hushrec.data.splits import Deal, Split, SplitKind
from hushrec.draws import Draws
from hushrec.errors import HushrecError


@dataclass(frozen=True, eq=False)
class Partners(Holding):
    """Whose users and items are whose: partner p has the numbers `starts[p]` to `starts[p + 1] - 1` of both.

    The id of a user or an item has its partner's name in front, as in `a:196`.
    """

    names: tuple[str, ...]
    user_starts: NDArray[np.int64]
    item_starts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartnerRows:
    """The ratings of each partner: p has the rows `starts[p]` to `starts[p + 1] - 1`, with its own numbers."""

    starts: NDArray[np.int64]
    users: NDArray[np.int32]  # from 0 at each partner
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]
    user_starts: NDArray[np.int64]
    item_starts: NDArray[np.int64]
    user_ids: NDArray[np.str_]  # as the partner itself calls them
    item_ids: NDArray[np.str_]


def ratings_of(data: Interactions) -> NDArray[np.float32]:
    """Ratings, which partners always have."""
    assert data.ratings is not None
    return data.ratings


def named(names: tuple[str, ...], ids: list[Ids]) -> tuple[NDArray[np.str_], list[NDArray[np.int32]]]:
    """Ids with the partner's name in front, sorted, and for each partner the numbers of its ids."""
    texts, numbers, first = [], [], 0
    for name, own in zip(names, ids, strict=True):
        named = np.char.add(f"{name}:", own.astype(np.str_))
        order = np.argsort(named)
        number = np.empty(len(own), np.int32)
        number[order] = first + np.arange(len(own))
        first += len(own)
        texts.append(named[order])
        numbers.append(number)
    return np.concatenate(texts), numbers


def starts(lengths: list[int]) -> NDArray[np.int64]:
    """Where parts of these lengths begin, one after the other; at last, where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def alone(data: Interactions) -> Interactions:
    """Data in one piece as that of a single partner: the baseline without anybody else."""
    user_ids, (of_users,) = named(("all",), [data.user_ids])
    item_ids, (of_items,) = named(("all",), [data.item_ids])
    titles = None
    if data.titles is not None:
        titles = np.empty_like(data.titles)
        titles[of_items] = data.titles
    partners = Partners(("all",), starts([data.num_users]), starts([data.num_items]))
    return replace(
        data, users=of_users[data.users], items=of_items[data.items], user_ids=user_ids, item_ids=item_ids,
        titles=titles, holding=partners, genres=None, item_columns={},
    )  # fmt: skip


def join(own: Mapping[str, Interactions]) -> Interactions:
    """Data of several partners, by name, as one: what a simulation on real partners' files takes."""
    if len(own) < 2:
        raise HushrecError(f"{len(own)} partner(s); join the data of at least 2")
    if any(not name.isalnum() for name in own):
        raise HushrecError("a partner's name is made of letters and digits")
    names = tuple(sorted(own, key=lambda name: f"{name}:"))
    parts = [own[name] for name in names]
    if len({part.rating_range for part in parts}) > 1 or any(part.ratings is None for part in parts):
        raise HushrecError("partners need ratings in the same range; read each file with rating_range=(low, high)")
    partners = Partners(
        names, starts([part.num_users for part in parts]), starts([part.num_items for part in parts])
    )
    user_ids, of_users = named(names, [part.user_ids for part in parts])
    item_ids, of_items = named(names, [part.item_ids for part in parts])
    joined = replace(
        parts[0],
        users=np.concatenate([numbers[part.users] for numbers, part in zip(of_users, parts, strict=True)]),
        items=np.concatenate([numbers[part.items] for numbers, part in zip(of_items, parts, strict=True)]),
        ratings=np.concatenate([ratings_of(part) for part in parts]),
        timestamps=None, order=None, user_ids=user_ids, item_ids=item_ids, titles=None,
        genres=None, item_columns={}, name="+".join(names), holding=partners,
        is_synthetic=any(part.is_synthetic for part in parts),
    )  # fmt: skip
    return replace(joined, sha256=data_digest(joined))


# --- The parties -----------------------------------------------------------------------------------------


def _partners(data: Interactions) -> Partners:
    """Who has which users and items."""
    if not isinstance(data.holding, Partners):
        raise HushrecError(
            f"this system needs data of partners, {data.name} is in one piece: deal it (--split partners, or "
            "hushrec.data.copies), or join several files (hushrec.data.join)"
        )
    return data.holding


def rows_of_partners(data: Interactions) -> PartnerRows:
    """The rows of each partner, by user and item."""
    partners, rows = _partners(data), data.canonical_order()
    users, items, ratings = data.users, data.items, ratings_of(data)
    if rows is not None:
        users, items, ratings = users[rows], items[rows], ratings[rows]
    of_row = np.searchsorted(partners.user_starts, users, "right") - 1
    return PartnerRows(
        np.searchsorted(of_row, np.arange(len(partners.names) + 1)).astype(np.int64),
        (users - partners.user_starts[of_row]).astype(np.int32),
        (items - partners.item_starts[of_row]).astype(np.int32),
        ratings,
        partners.user_starts,
        partners.item_starts,
        _without_name(data.user_ids, partners.user_starts, "user"),
        _without_name(data.item_ids, partners.item_starts, "item"),
    )


def _with_id(named_ids: Ids, wanted: NDArray[Any]) -> list[NDArray[np.int32]]:
    """The numbers of each wanted id, with a partner's name in front or without it."""
    numbers: dict[str, list[int]] = {}
    for number, named_id in enumerate(named_ids.tolist()):
        numbers.setdefault(str(named_id), []).append(number)
        numbers.setdefault(str(named_id).partition(":")[2], []).append(number)
    return [np.array(numbers.get(str(one), []), np.int32) for one in wanted.tolist()]


def _without_name(ids: Ids, starts: NDArray[np.int64], what: str) -> NDArray[np.str_]:
    """Ids as the partner itself calls them, in the spelling that partners compare."""
    texts = np.char.partition(ids.astype(np.str_), ":")[:, 2]
    spelled = np.array([normalize("NFC", text.strip()) for text in texts.tolist()], np.str_)
    for first, last in itertools.pairwise(starts.tolist()):
        if len(np.unique(spelled[first:last])) < last - first:
            raise HushrecError(f"two {what} ids of a partner differ only in spaces or spelling; make them one")
    return spelled


class HeldByPartners(Holders[PartnerRows]):
    """Organisations with users and items of their own."""

    word = "partner"
    knows_all_items = False
    usual_split: ClassVar[SplitKind | None] = "partners"

    def held(self, data: Interactions) -> Interactions:
        """Refuse data that no partner owns."""
        return replace(data, holding=_partners(data))

    def held_in_run(self, data: Interactions) -> Interactions:
        """Data in one piece is that of a single partner, the baseline without anybody else."""
        return data if isinstance(data.holding, Partners) else alone(data)

    def sample(self, data: Interactions, seed: int) -> Interactions:
        """Three partners with accounts of all users; half of the items are with all of them, the others with one.

        Every fifth user rated with the first partner only, and visits the others.
        """
        places = Draws(seed).generator("sample-of-partners").permutation(data.num_items)
        own = {}
        for number, name in enumerate("abc"):
            held = np.flatnonzero((places % 2 == 0) | (places // 2 % 3 == number))
            part = data.select(np.isin(data.items, held) & ((data.users % 5 > 0) | (number == 0)))
            items = np.searchsorted(held, part.items).astype(np.int32)
            own[name] = replace(part, items=items, item_ids=data.item_ids[held])
        return join(own)

    def num_parties(self, data: Interactions) -> int:
        """One for each name."""
        return len(_partners(data).names)

    def rows(self, data: Interactions) -> PartnerRows:
        """The ratings of each partner."""
        return rows_of_partners(data)

    def names(self, data: Interactions) -> list[str]:
        """Partners are known by name."""
        return list(_partners(data).names)

    def whose_model(self, is_on_node: bool) -> str:
        """A simulation has what all partners have."""
        if is_on_node:
            return super().whose_model(is_on_node)
        return "the partners' vectors, all of which this simulation has"

    def groups(self, train: Interactions, test: Interactions) -> dict[str, NDArray[np.bool_]]:
        """A partner's own users, and its visitors, under the names of a run in one process."""
        (name,) = _partners(train).names
        is_own = (np.bincount(train.users, minlength=train.num_users) > 0)[test.users]
        groups = {f"{name} own": is_own, f"{name} cold": ~is_own}
        return {group: is_in for group, is_in in groups.items() if is_in.any()}

    def users_of(self, data: Interactions, party: int) -> Numbers:
        """Accounts with this partner."""
        return np.arange(*_partners(data).user_starts[party : party + 2], dtype=np.int32)

    def accounts(self, data: Interactions, user_ids: NDArray[Any]) -> list[Numbers]:
        """One user's, as in `a:196`; or those of all partners where somebody is `196`."""
        found = _with_id(data.user_ids, user_ids)
        for user, numbers in zip(user_ids.tolist(), found, strict=True):
            if not len(numbers):
                raise HushrecError(
                    f"no user {user!r} with any partner of {data.name}; write an id of the file, or with a "
                    f"partner's name before it, as in {_partners(data).names[0]}:{user}"
                )
        return found

    def copies(self, data: Interactions, item_ids: NDArray[Any]) -> list[Numbers]:
        """One partner's, as in `a:50`; or those of all partners that have a `50`."""
        return _with_id(data.item_ids, item_ids)

    def source_id(self, item_id: int | str) -> int | str:
        """Without the partner's name."""
        return str(item_id).partition(":")[2]

    def most_copies(self, data: Interactions) -> int:
        """Each partner may have one."""
        return len(_partners(data).names)

    def arrays(self, data: Interactions) -> Arrays:
        """Names, and whose users and items are whose."""
        partners = _partners(data)
        return {
            "partner_names": np.array(partners.names, np.str_),
            "partner_users": partners.user_starts,
            "partner_items": partners.item_starts,
        }

    def restored(self, data: Interactions, arrays: Mapping[str, NDArray[Any]]) -> Interactions:
        """With the partners that were kept."""
        names = tuple(str(name) for name in arrays["partner_names"])
        return replace(data, holding=Partners(names, arrays["partner_users"], arrays["partner_items"]))

    def deal_for(self, num_nodes: int) -> Deal | None:
        """A partner for each node."""
        if num_nodes < 2:
            raise HushrecError("--nodes must be at least 2")
        return Deal(num_partners=num_nodes)

    def node_names(self, data: Interactions, num_nodes: int) -> list[str]:
        """Partners are nodes of their own names."""
        return list(_partners(data).names)

    def deal(self, split: Split, nodes: Sequence[str], seed: int, folder: Path) -> dict[str, NodeFiles]:
        """They are dealt already: the first partner's data go to the first node."""
        names = _partners(split.train).names
        if len(nodes) != len(names) or sorted(nodes) != list(nodes):
            raise HushrecError(f"{len(nodes)} nodes for {len(names)} partners; use one each, by name")
        return {name: _write_partner(split, place, folder / name) for place, name in enumerate(nodes)}

    def read(self, files: NodeFiles, node: str, catalogue: Catalogue, rating_range: RatingRange) -> NodeData:
        """A partner's own users, visitors and items, which no other knows; by their ids as texts."""
        data = read_own(files, files.data, rating_range)
        if data.ratings is None:
            raise HushrecError(f"{files.data} has no ratings, which partners need; add a column rating")
        if files.items is None:
            catalogue = Catalogue(np.unique(data.item_ids.astype(np.str_)).tolist(), False)
        else:
            catalogue = read_catalogue(Path(files.items), as_texts=True)
        user_ids = np.union1d(data.user_ids.astype(np.str_), read_visitors(files))
        own = as_in_catalogue(data, user_ids, catalogue)
        train = replace(
            own,
            user_ids=np.char.add(f"{node}:", user_ids),
            item_ids=np.char.add(f"{node}:", np.array(catalogue.ids, np.str_)),
            holding=Partners((node,), np.array([0, own.num_users]), np.array([0, own.num_items])),
        )
        if files.test is not None:
            self.read_test(files, train, catalogue, rating_range)
        return NodeData(train, None)

    def described(self, files: NodeFiles, node: str) -> str | None:
        """How many clients and ratings; also reads visitors and items, to find faults early."""
        if not files.visitors and not files.items:
            return None
        ratings = read_own(files, files.data, None)
        self.read(files, node, Catalogue([], False), None)
        return f"{ratings.num_users} clients, {len(ratings)} ratings"

    def read_test(
        self, files: NodeFiles, train: Interactions, catalogue: Catalogue, rating_range: RatingRange
    ) -> Interactions:
        """Test ratings of the partner's users and visitors, of its own items."""
        rows = rows_of_partners(train)
        data = read_own(files, files.test, rating_range)
        own = as_in_catalogue(data, rows.user_ids, Catalogue(rows.item_ids.tolist(), False))
        return replace(train, users=own.users, items=own.items, ratings=own.ratings, rating_range=rating_range)

    def number(self, nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
        """Partners are numbered by name."""
        return numbers_in_order(nodes)

    def known(self, data: Interactions, num_parties: int) -> Interactions:
        """How many partners there are; not whose users and items are whose."""
        names, none = tuple(str(number) for number in range(num_parties)), np.zeros(num_parties + 1, np.int64)
        return replace(data, holding=Partners(names, none, none))


def _write_partner(split: Split, place: int, folder: Path) -> NodeFiles:
    """Under the names that the partner itself has for users and items."""
    train, rows = split.train, rows_of_partners(split.train)
    users, items = (slice(*starts[place : place + 2].tolist()) for starts in (rows.user_starts, rows.item_starts))
    is_own, is_rated = np.zeros((2, train.num_users), np.bool_)
    is_own[users], is_rated[train.users] = True, True
    plain = Split(
        replace(train, user_ids=rows.user_ids, item_ids=rows.item_ids),
        replace(split.test, user_ids=rows.user_ids, item_ids=rows.item_ids),
        split.fold,
    )
    files = write_both(plain, is_own, folder)
    visitors, catalogue = folder / "visitors.txt", folder / "items.tsv"
    write_lines(visitors, rows.user_ids[is_own & ~is_rated].tolist())
    titles = [""] * train.num_items if train.titles is None else train.titles.tolist()
    lines = zip(rows.item_ids[items], titles[items], strict=True)
    write_lines(catalogue, [f"{item}\t{' '.join(title.split())}" for item, title in lines])
    return replace(files, visitors=str(visitors), items=str(catalogue))


PARTNERS = HeldByPartners()
