"""Invented partner: a partner's users are aligned with a list of the server's, of a partner that it made up.

A partner takes whom the server names for the others, and tells it how many users it has in common with them. A
list of one id asks whether the partner has that user: the count is one or none. Where ids are hashed under a key
that everybody knows, the server makes such lists itself. It has to guess ids, and guesses numbers here. In private
set intersection no list is of use that the partner has not blinded, and what it blinds goes out sealed.
"""

import hmac
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import ForgedAsk, has_columns
from hushrec.audit.scoreboard import Attack, Lie, Outcome, Own, Stage, Truth, is_sent
from hushrec.draws import Draws
from hushrec.protocol import Ask, Collect, Message, Ragged, Role, Round, Sealed, Seat, View

HIGHEST_ID = 1000
_NUM_GUESSED = 40  # ids, of each partner
_KEYED_TAG = b"hushrec alignment v1 keyed\0"  # a token is HMAC-SHA256 of it and "user " with the id
_NAME_TAG = "hushrec visitor\0"  # partners call a user to each other by SHA-256 of it and the id


class Answers(NamedTuple):
    """Which partners were asked about which ids, how many users of one they have, or -1: they did not say."""

    partners: NDArray[np.int64]
    ids: NDArray[np.int64]
    counts: NDArray[np.int64]


def guessed_ids() -> NDArray[np.int64]:
    """The same whenever they are asked for: those who look know what was asked."""
    drawn = np.random.default_rng(0).choice(HIGHEST_ID, min(_NUM_GUESSED, HIGHEST_ID), replace=False)
    return np.sort(drawn).astype(np.int64) + 1


def lists_ids(message_type: type[Message]) -> bool:
    """Whether partners send each other lists of tokens by it."""
    return is_sent(message_type, Role.PARTNER, Role.PARTNER, "are_items", "tokens")


def asks_to_align(message_type: type[Message]) -> bool:
    """Whether the server has partners align by it."""
    is_request = message_type.sender == Role.SERVER and message_type.receiver == Role.PARTNER
    return is_request and has_columns(message_type, "stage", "partners") and not has_columns(message_type, "step")


def counts_common(message_type: type[Message]) -> bool:
    """Whether a partner tells the server by it how many users it has in common with others."""
    is_reply = message_type.sender == Role.PARTNER and message_type.receiver == Role.SERVER
    return is_reply and has_columns(message_type, "num_common")


def tell(stage: Stage, own: Own) -> Round[None]:
    """Each partner is aligned with one that does not exist, once for each id."""
    kinds: list[Any] = [next(filter(is_it, stage.messages), None) for is_it in (asks_to_align, lists_ids)]
    honest = [one for one in stage.view if asks_to_align(type(one.message))]
    if None in kinds or not honest:
        return
    request, listing = kinds
    partners = np.unique(np.concatenate([one.numbers for one in honest]))
    for partner in partners.tolist():
        both = np.array([partner, int(partners.max()) + 1], np.int32)
        to = both[:1]
        for one in guessed_ids().tolist():
            token = np.frombuffer(_token(one, own), np.uint8)[None]
            made = listing(both[1:], Ragged.one(np.zeros(1, np.uint8)), Ragged.one(token))
            first = 0 if own.settings["alignment"] == "psi" else 1  # in which it lists its own users
            yield Ask(to, request(np.array(first), both), Collect())
            for number in range(first + 1, 3):
                yield ForgedAsk(to, request(np.array(number), both), Collect(), Sealed(made, to))


def _token(one: int, own: Own) -> bytes:
    key = Draws(int(own.settings["prior_seed"])).key("alignment").tobytes()
    return hmac.digest(key, _KEYED_TAG + f"user {one}".encode(), "sha256")


def look(before: Answers | None, view: View, _own: Own) -> Answers:
    """A count of one: the partner has the user."""
    partners = np.unique(np.concatenate([np.empty(0, np.int32), *(one.numbers for one in _requests(view))]))
    ids = guessed_ids()
    told = dict(_last_counts(view))
    counts = [told.get((partner, place), -1) for partner in partners.tolist() for place in range(len(ids))]
    found = Answers(
        np.repeat(partners, len(ids)).astype(np.int64), np.tile(ids, len(partners)), np.array(counts, np.int64)
    )
    # Users are aligned in the first round: what is asked later is refused, and tells nothing new.
    return found if before is None else before


def _requests(view: View) -> list[Any]:
    return [one for one in view if asks_to_align(type(one.message))]


def _last_counts(view: View) -> Iterator[tuple[tuple[int, int], int]]:
    """Of each partner and each id that it was asked about, what it told in the last stage."""
    num_asked: dict[int, int] = {}
    stage = -1
    for one in view:
        if asks_to_align(type(one.message)):
            stage = int(one.message.stage)  # type: ignore[attr-defined]
        elif counts_common(type(one.message)) and stage == 2:
            counts: NDArray[np.int64] = one.message.num_common  # type: ignore[attr-defined]
            for partner, count in zip(one.numbers.tolist(), counts.tolist(), strict=True):
                place = num_asked.get(partner, 0)
                num_asked[partner] = place + 1
                yield (partner, place), count


def name_of(one: int) -> bytes:
    """How partners call a user to each other."""
    return sha256(f"{_NAME_TAG}{one}".encode()).digest()


def judge(found: Answers, truth: Truth) -> Outcome:
    """Share of right answers, by partner. Blind, and where nothing was said: what is right more often."""
    names = np.array([name_of(one) for one in found.ids.tolist()], "V32")
    is_right, is_blind = np.zeros((2, len(found.ids)))
    for partner in np.unique(found.partners).tolist():
        holds = truth.holds(partner)
        users = np.unique(holds["users"])
        own = np.ascontiguousarray(holds["user_names"][users]).view("V32").ravel()
        asked = found.partners == partner
        has = np.isin(names[asked], own)
        is_blind[asked] = max(has.mean(), 1 - has.mean())
        is_right[asked] = np.where(found.counts[asked] < 0, is_blind[asked], (found.counts[asked] > 0) == has)
    return Outcome.of_marks(found.partners, is_right, is_blind)


ATTACK = Attack(
    name="invented partner",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="whether a partner has a user, by a count of users in common with a list that the server made up",
    measure="right",
    sentence="Aligned with a partner that the server made up, partners tell of {score:.1%} of guessed ids whether "
    "they have the user; always the same answer is right for {chance:.1%}.",
    reads=counts_common,
    look=look,
    judge=judge,
    only_last=True,
    settings=("alignment", "prior_seed"),
    repairs=("--alignment psi",),
    lie=Lie(tell),
)
