"""How partners find what they have in common, and how they start: step by step, on one partner's side."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.models import neucf
from hushrec.protocol import Numbers
from hushrec.systems.fedcore.co_training import Rows
from hushrec.systems.fedcore.partners import Agreement, Partner
from hushrec.systems.fedcore.set_intersection import blind, common_numbers, hashed_ids, keyed_tokens, secret_from

_START_LIMIT = 0.005


class Tokens(NamedTuple):
    """A partner's users and aligned items, as tokens in an order that tells nothing."""

    origin: int
    are_items: NDArray[np.uint8]
    values: NDArray[np.uint8]  # (rows, 32)


class Names(NamedTuple):
    """The ids that a partner calls its users and items by."""

    users: NDArray[np.str_]
    items: NDArray[np.str_]


def own_tokens(partner: Partner, names: Names, terms: Agreement, draws: Draws) -> Tokens:
    """A partner's ids, blinded once or hashed with a key that everybody knows: only sealed mail protects that."""
    users, items = _listed(partner, names, terms, draws)
    ids = np.concatenate([np.char.add("user ", names.users[users]), np.char.add("item ", names.items[items])])
    are_items = np.repeat(np.array([0, 1], np.uint8), [len(users), len(items)])
    if terms.alignment == "psi":
        return Tokens(partner.number, are_items, blind(_secret(partner, draws), hashed_ids(ids)))
    key = Draws(terms.prior_seed).key("alignment").tobytes()
    return Tokens(partner.number, are_items, keyed_tokens(key, ids))


def blinded(partner: Partner, tokens: Tokens, draws: Draws) -> Tokens:
    """Another partner's list, blinded once more."""
    return tokens._replace(values=blind(_secret(partner, draws), tokens.values))


def align(partner: Partner, names: Names, lists: list[Tokens], terms: Agreement, draws: Draws) -> None:
    """Number what is common, remember who has it, and start all vectors."""
    users, items = _listed(partner, names, terms, draws)
    by_kind = [{tokens.origin: tokens.values[tokens.are_items == kind] for tokens in lists} for kind in (0, 1)]
    own = by_kind[0].get(partner.number, np.empty((0, 32), np.uint8))
    if lists and len(own) != len(users):
        raise HushrecError("the others returned another list than ours; align again")
    prior = Draws(terms.prior_seed)
    # Kaiming's start of NeuCF needs the number of all users; tokens tell it to everybody alike.
    everybody = np.concatenate([*by_kind[0].values(), np.empty((0, 32), np.uint8)])
    num_users = max(len(np.unique(everybody.view("V32"))), len(partner.user_factors) if not lists else 1)
    partner.user_factors[:] = _start("user-factors", partner, len(partner.user_factors), num_users, terms, draws)
    num_items = len(partner.item_factors)
    partner.item_factors[:] = _start("item-factors", partner, num_items, num_items, terms, draws)
    partner.user_factors[~partner.is_rated] = 0
    _mark(partner.common_users, partner.holders_of_users, users, partner.number, by_kind[0])
    _mark(partner.common_items, partner.holders_of_items, items, partner.number, by_kind[1])
    for purpose, vectors, common, places, tokens, num_rows in (
        ("common-users", partner.user_factors, partner.common_users, users, by_kind[0], num_users),
        ("common-items", partner.item_factors, partner.common_items, items, by_kind[1], num_items),
    ):
        is_common = common[places] >= 0
        if is_common.any():
            token = tokens[partner.number][is_common, :4].copy().view("<u4").ravel() & 0x7FFFFFFF
            numbers = token.astype(np.int32)
            vectors[places[is_common]] = _drawn(purpose, numbers, num_rows, terms, prior, 0)
    if len(partner.layers):
        partner.layers[:] = neucf.initial_layers(terms.width // 2, prior.generator("layers"))
    partner.aligned()
    partner.clock[:] = 0  # what a first round began with before, perhaps with other partners, is forgotten


def _listed(
    partner: Partner, names: Names, terms: Agreement, draws: Draws
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and items that take part in the alignment, in an order that only the partner knows."""
    users = np.flatnonzero(partner.is_rated)
    items = np.flatnonzero(_is_aligned(names.items, terms))
    rng = draws.generator(f"alignment-order-{partner.number}")
    return rng.permutation(users), rng.permutation(items)


def _is_aligned(ids: NDArray[np.str_], terms: Agreement) -> NDArray[np.bool_]:
    """Which items would be aligned if another partner has them: a share of all ids, the same at all partners."""
    if terms.unaligned >= 1:
        return np.zeros(len(ids), np.bool_)
    key = Draws(terms.prior_seed).key("aligned-items").tobytes()
    words = keyed_tokens(key, ids)[:, :4].copy().view("<u4").ravel()
    return words >= terms.unaligned * 2.0**32


def _mark(
    common: Numbers,
    holders: NDArray[np.int64],
    places: NDArray[np.int64],
    number: int,
    lists: dict[int, NDArray[np.uint8]],
) -> None:
    common[:], holders[:] = -1, 0
    if number not in lists or not len(places):
        return
    own, others = lists[number], {origin: tokens for origin, tokens in lists.items() if origin != number}
    common[places] = common_numbers(own, list(others.values()))
    for origin, tokens in others.items():
        is_held = np.isin(own.view("V32").ravel(), tokens.view("V32").ravel())
        holders[places[is_held]] |= 1 << origin


def _secret(partner: Partner, draws: Draws) -> bytes:
    return secret_from(draws.key(f"alignment-{partner.number}").tobytes())


def _start(purpose: str, partner: Partner, size: int, num_rows: int, terms: Agreement, draws: Draws) -> Rows:
    """Start vectors of users or items that no other partner has."""
    return _drawn(purpose, np.arange(size, dtype=np.int32), num_rows, terms, draws, partner.number)


def _drawn(purpose: str, numbers: Numbers, num_rows: int, terms: Agreement, draws: Draws, number: int) -> Rows:
    if terms.model == "pmf":
        key = draws.key(purpose)
        return uniform_rows(key, numbers, terms.width, -_START_LIMIT, _START_LIMIT, round_number=number)
    return neucf.initial_vectors(f"{purpose}-{number}", numbers, terms.width // 2, num_rows, draws)
