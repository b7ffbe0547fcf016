"""Measurements inside runs of DRIFT, for its figures and claims.

Who reads what in the clear (Figure 5.1), how right guesses are (Sec. 5.2), how many blocks there are (Sec. 6.2.2).
What a party reads comes from the payloads of the messages that it sent or received, and from nothing else:
keys too must be among them. Without its key a ciphertext is read as if it were plain. What is read counts if
it is true.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Onlooker
from hushrec.audit.requests import Asked, asked_for
from hushrec.data import OwnerRows
from hushrec.data.holdings.owners import rows_of_owners
from hushrec.protocol import Role, Seat, View
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job
from hushrec.systems.drift.blocks import Blocks
from hushrec.systems.drift.cipher import Form, Letters, open_interactions, salt_of
from hushrec.systems.drift.messages import BlockGradients, OwnerKey, SentInteractions, Vectors

_OWNER = 0  # the one that is looked at

Pairs = NDArray[np.int64]  # (user, item) rows


class InClear(NamedTuple):
    """What a party reads in the clear, each about true interactions with some items."""

    pairs: Pairs  # distinct
    has_users: bool  # numbers of users
    has_items: bool
    has_signs: bool  # whether some interaction is positive, without guessing
    has_blocks: bool  # which items stand together in blocks of one user
    has_weights: bool  # vectors of the items, and of the users who had them
    has_gradients: bool


def read_in_clear(view: View, form: Form, true_pairs: Pairs) -> InClear:
    """What the messages of a view say about these interactions."""
    read = list(_opened(view, form))
    pairs = _among(np.concatenate([np.empty((0, 2), np.int64), *(pairs for pairs, _ in read)]), true_pairs)
    is_own_letter, asked = len(pairs) > 0, asked_for(view)
    is_wanted = np.isin(asked.groups, asked.groups[asked.is_item & np.isin(asked.numbers, true_pairs[:, 1])])
    named = _among(_of_one_user(asked), true_pairs)
    kinds = {type(sent.message) for sent in view if sent.message.num_rows}
    return InClear(
        np.unique(np.concatenate([pairs, named]), axis=0),
        has_users=is_own_letter or bool((is_wanted & ~asked.is_item).any()),
        has_items=is_own_letter or bool((is_wanted & asked.is_item).any()),
        has_signs=is_own_letter or any(has_flags for _, has_flags in read),
        has_blocks=bool(is_wanted.any()) and (is_own_letter or len(named) > 0),
        has_weights=bool(is_wanted.any()) and Vectors in kinds,
        has_gradients=bool(is_wanted.any()) and BlockGradients in kinds,
    )


def _opened(view: View, form: Form) -> Iterator[tuple[Pairs, bool]]:
    """Users and items of the letters in a view, and whether their flags lie open to who has no key."""
    keys = {
        int(owner): key.tobytes()
        for sent in view
        if isinstance(sent.message, OwnerKey)
        for owner, key in zip(sent.message.owner.tolist(), sent.message.key.values, strict=True)
    }
    plain = replace(form, is_encrypted=False)
    for sent in view:
        message = sent.message
        if not isinstance(message, SentInteractions) or sent.addressees is None:
            continue
        for place, owner in enumerate(sent.addressees.tolist()):
            rows = slice(*message.sequences.starts[place : place + 2].tolist())
            columns = (message.sequences.values[rows], message.flags.values[rows], message.contents.values[rows])
            if owner in keys or not form.is_encrypted:
                salt = salt_of(int(message.salt_low[place]), int(message.salt_high[place]))
                opened = open_interactions(keys.get(owner, b""), owner, form, Letters(*columns, salt))
            else:
                shown = Letters(columns[0], columns[1], columns[2][:, : plain.plain_bytes])
                opened = open_interactions(b"", owner, plain, shown)
            has_flags = not form.is_flag_inside and len(columns[0]) > 0 and owner not in keys
            yield np.stack([opened.users, opened.items], axis=1).astype(np.int64), has_flags


def _of_one_user(asked: Asked) -> Pairs:
    """Users and items of groups that name one user: it had every item of the group."""
    is_alone = (asked.num_users == 1)[asked.groups]
    users = asked.numbers[asked.group_starts[asked.groups]]  # in a group users come first
    rows = is_alone & asked.is_item
    return np.stack([users[rows], asked.numbers[rows]], axis=1)


def _among(pairs: Pairs, true_pairs: Pairs) -> Pairs:
    """Those of the pairs that are true."""
    is_number = ((pairs >= 0) & (pairs < 1 << 31)).all(axis=1)
    pairs = pairs[is_number]
    return pairs[np.isin(pairs[:, 0] << 32 | pairs[:, 1], true_pairs[:, 0] << 32 | true_pairs[:, 1])]


def _seen_by(seat: Seat, which: str = "all") -> Probe:
    """A probe for one party; of an owner: what it sees of interactions with its own items, or with others'
    items."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        rows = rows_of_owners(job.train)
        pairs = np.unique(np.stack([rows.users, rows.items], axis=1).astype(np.int64), axis=0)
        if which != "all":
            held = rows.held[rows.held_starts[_OWNER] : rows.held_starts[_OWNER + 1]]
            pairs = pairs[np.isin(pairs[:, 1], held) == (which == "own")]
        found = read_in_clear(progress.transcript.seen_by(seat), job.config.plan.form, pairs)
        return {
            "interaction": float(len(found.pairs) > 0),
            "block": float(found.has_blocks),
            "weights": float(found.has_weights),
            "user id": float(found.has_users),
            "item id": float(found.has_items),
            "sign": float(found.has_signs),
            "gradients": float(found.has_gradients),
            "% of interactions": 100 * len(found.pairs) / max(len(pairs), 1),
        }

    return look


def _guessed(name: str, is_blind: bool = False) -> Probe:
    """How right the guesses of an attack on a round are, or blind ones in their place; 0 if there are none."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        attack, onlooker = ATTACKS[name], Onlooker(job)
        onlooker.begin(progress)
        outcome = attack.judge(onlooker.guess(attack), onlooker.truth())
        values = outcome.chances if is_blind else outcome.scores
        return {"precision": float(values.mean()) if len(values) else 0.0}

    return look


def _blocks(job: Job, _progress: Progress) -> dict[str, float]:
    """Owners and blocks with pairs, of all owners together, over those of the whole stream, as SAROS has it."""
    rows = rows_of_owners(job.train)
    held = np.split(rows.held, rows.held_starts[1:-1])
    counts = np.array([_count_blocks(rows, np.isin(rows.items, items)) for items in held]).sum(axis=0)
    whole = _count_blocks(rows, np.ones(len(rows.items), np.bool_))
    return {
        "owners": float(len(held)),
        "owners per item": len(rows.held) / max(len(np.unique(rows.held)), 1),
        "blocks per block of SAROS": float(counts[0] / max(whole[0], 1)),
        "negatives per block": float(counts[1] / max(counts[0], 1)),
    }


def _count_blocks(rows: OwnerRows, is_held: NDArray[np.bool_]) -> tuple[int, int]:
    """Completed blocks with pairs of one owner, and the negatives in them."""
    users, is_positive = rows.users[is_held], rows.is_positive[is_held]
    blocks = Blocks()
    blocks.make_room(0, rows.num_users)
    blocks.add(np.zeros(len(users), np.int64), users, rows.items[is_held], is_positive, 1, 1)
    groups = blocks.learn(1, "blocks", 1)
    return groups.num_blocks, int(np.count_nonzero(~groups.is_positive))


_GUESSED = ("request watching", "score difference", "gradient direction", "wire reading")

PROBES: dict[str, Probe] = {
    "blocks of owners": _blocks,
    "seen by the owner of the item": _seen_by(Seat(Role.OWNER, _OWNER), "own"),
    "seen by another owner": _seen_by(Seat(Role.OWNER, _OWNER), "others"),
    "seen by the users' side": _seen_by(Seat(Role.USER)),
    "seen by the orchestrator": _seen_by(Seat(Role.ORCHESTRATOR)),
    "seen by an external observer": _seen_by(Seat(Role.OBSERVER)),
    **{f"{name} on DRIFT": _guessed(name) for name in _GUESSED},
    **{f"{name} on DRIFT, blind": _guessed(name, is_blind=True) for name in _GUESSED},
}
