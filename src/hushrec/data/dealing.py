"""One dataset dealt to partners by the rule of the FedCORE paper, for experiments.

Some users and items belong to one partner, the others to all. Every user has an account at every partner; where it
has no training rating there, it is a visitor, whom that partner can serve only with another partner's help.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings.partners import Partners, named, ratings_of, starts
from hushrec.data.interactions import Interactions
from hushrec.data.splits import Deal, Measure, Split
from hushrec.draws import Draws
from hushrec.errors import HushrecError

NUM_COPIES = 5
_EVERYBODY = -1


@dataclass(frozen=True)
class _Dealt:
    """Which partner has which row of a dataset, and which rows are used for what."""

    owner_of_user: NDArray[np.int64]  # a partner, or everybody
    owner_of_item: NDArray[np.int64]
    has_row: NDArray[np.bool_]  # (partners, rows): among the partner's own ratings
    is_cold: NDArray[np.bool_]  # (partners, rows): a visitor's rating of an item that only this partner has
    is_train: NDArray[np.bool_]
    is_measured: NDArray[np.bool_]


def copies(
    data: Interactions, deal: Deal, seed: int, is_pooled: bool = False, measure: Measure = "test"
) -> Iterator[Split]:
    """The five copies, each with ratings divided anew; pooled: the same ratings in one place, for baselines.

    Users and items are dealt anew for each copy, or once for all (`Deal.deals`); the first copy is the same.

    DEVIATION: FedCORE's authors have one deal for all copies; the default deals anew, so that the spread over
    copies tells what the deal does.
    """
    if data.ratings is None:
        raise HushrecError(f"{data.name} has no ratings to deal to partners; choose data with explicit ratings")
    for copy in range(1, NUM_COPIES + 1):
        dealt = _dealt(data, deal, Draws(seed), copy, measure)
        yield (_pooled if is_pooled else _apart)(data, deal, dealt, copy)


def _dealt(data: Interactions, deal: Deal, draws: Draws, copy: int, measure: Measure) -> _Dealt:
    """The nine blocks of the paper's Figure 2, for any number of partners."""
    num_partners, rng = deal.num_partners, draws.generator("partners", copy)
    owner_of_user, owner_of_item = _owners_of(data, deal, rng)
    if deal.deals == "one":
        owner_of_user, owner_of_item = _owners_of(data, deal, draws.generator("partners", 1))
    parts, place = np.empty(len(data), np.int64), np.empty(len(data))
    in_order = data.canonical_order()
    rows = np.arange(len(data)) if in_order is None else in_order
    parts[rows] = rng.permutation(len(data)) * 5 // max(len(data), 1)
    place[rows] = rng.random(len(data))
    by_user, by_item = owner_of_user[data.users], owner_of_item[data.items]
    is_common = (by_user == _EVERYBODY) & (by_item == _EVERYBODY)
    # A fifth of the common ratings goes to all partners, of the rest each has an equal share.
    owner = np.where(place < 0.8, (place / 0.8 * num_partners).astype(np.int64), _EVERYBODY)
    has_row, is_cold = np.empty((2, num_partners, len(data)), np.bool_)
    for partner in range(num_partners):
        of_common = is_common & np.isin(owner, (partner, _EVERYBODY))
        has_row[partner] = of_common | (_has(by_user, partner) & _has(by_item, partner) & ~is_common)
        is_cold[partner] = ~_has(by_user, partner) & (by_item == partner)
    measured = 4 if measure == "test" else 3
    return _Dealt(owner_of_user, owner_of_item, has_row, is_cold, parts < 3, parts == measured)


def _owners_of(
    data: Interactions, deal: Deal, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who has each user, and who each item."""
    return (
        _owners(data.num_users, deal.common_users, deal.num_partners, rng),
        _owners(data.num_items, deal.common_items, deal.num_partners, rng),
    )


def _owners(size: int, common_share: float, num_partners: int, rng: np.random.Generator) -> NDArray[np.int64]:
    owners = np.full(size, _EVERYBODY)
    num_each = round(size * (1 - common_share) / num_partners)
    order = rng.permutation(size)
    for partner in range(num_partners):
        owners[order[partner * num_each : (partner + 1) * num_each]] = partner
    return owners


def _has(owners: NDArray[np.int64], partner: int) -> NDArray[np.bool_]:
    return np.isin(owners, (partner, _EVERYBODY))


def _apart(data: Interactions, deal: Deal, dealt: _Dealt, copy: int) -> Split:
    """Every partner's ratings under its own accounts and items."""
    items = [np.flatnonzero(_has(dealt.owner_of_item, partner)) for partner in range(deal.num_partners)]
    user_ids, number_of_user = named(deal.names, [data.user_ids] * deal.num_partners)
    item_ids, numbers_of_items = named(deal.names, [data.item_ids[held] for held in items])
    number_of_item = _of_all(data.num_items, items, numbers_of_items)
    user_starts = starts([data.num_users] * deal.num_partners)
    partners = Partners(deal.names, user_starts, starts([len(held) for held in items]))
    titles = None
    if data.titles is not None:
        titles = np.empty(len(item_ids), data.titles.dtype)
        for numbers, held in zip(numbers_of_items, items, strict=True):
            titles[numbers] = data.titles[held]
    whole = replace(
        data,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        holding=partners,
        timestamps=None,
        order=None,
        genres=None,
        item_columns={},
    )

    def rows_of(is_used: NDArray[np.bool_]) -> tuple[Interactions, list[NDArray[np.int64]]]:
        rows = [np.flatnonzero(used) for used in is_used]
        of_users = [numbers[data.users[used]] for numbers, used in zip(number_of_user, rows, strict=True)]
        of_items = [numbers[data.items[used]] for numbers, used in zip(number_of_item, rows, strict=True)]
        ratings = np.concatenate([ratings_of(data)[used] for used in rows])
        found = replace(whole, users=np.concatenate(of_users), items=np.concatenate(of_items), ratings=ratings)
        return found, rows

    train, _ = rows_of(dealt.has_row & dealt.is_train)
    test, rows = rows_of((dealt.has_row | dealt.is_cold) & dealt.is_measured)
    partner_of = np.repeat(np.arange(deal.num_partners), [len(used) for used in rows])
    is_cold = np.concatenate([dealt.is_cold[partner][used] for partner, used in enumerate(rows)])
    groups: dict[str, NDArray[np.bool_]] = {}
    for partner, name in enumerate(deal.names):
        groups[f"{name} own"] = (partner_of == partner) & ~is_cold
        groups[f"{name} cold"] = (partner_of == partner) & is_cold
    return Split(train, test, copy, groups)


def _pooled(data: Interactions, deal: Deal, dealt: _Dealt, copy: int) -> Split:
    """All partners' ratings in one place, measured on the same ratings."""
    train = data.select(dealt.has_row.any(axis=0) & dealt.is_train)
    is_measured = (dealt.has_row | dealt.is_cold).any(axis=0) & dealt.is_measured
    groups: dict[str, NDArray[np.bool_]] = {}
    for partner, name in enumerate(deal.names):
        groups[f"{name} own"] = dealt.has_row[partner][is_measured]
        groups[f"{name} cold"] = dealt.is_cold[partner][is_measured]
    return Split(train, data.select(is_measured), copy, groups)


def _of_all(size: int, held: list[NDArray[np.int64]], numbers: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """The numbers of what each partner holds, by the old number."""
    wholes = [np.full(size, -1, np.int32) for _ in held]
    for whole, places, number in zip(wholes, held, numbers, strict=True):
        whole[places] = number
    return wholes
