"""Step 1 of FedCORE's Algorithm 1: partners find their common users. Used by `system.py`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, PublicError
from hushrec.limits import MOST_IDS, MOST_PARTNERS, MOST_STEPS
from hushrec.protocol import (
    Ask,
    Cohort,
    Collect,
    Message,
    Numbers,
    Ragged,
    Reply,
    Role,
    Round,
    Sealed,
    each,
    ragged,
    shared,
)
from hushrec.systems.fedcore.common_start import Names, Tokens, align, blinded, own_tokens
from hushrec.systems.fedcore.mail import check_partners, mail_to, others, still_here
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.set_intersection import TOKEN_BYTES


@dataclass(frozen=True)
class Align(Message):
    """Reveals: how many partners there are."""

    sender, receiver = Role.SERVER, Role.PARTNER
    stage: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_PARTNERS)
    partners: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class Identities(Message):
    """Reveals: how many users the partner has (and items, if they are aligned); which of them the receiver has."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    origin: Numbers = each(np.int32, low=0)
    are_items: Ragged = ragged(np.uint8, low=0, high=1)
    tokens: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class Aligned(Message):
    """Reveals: how many ratings the partner has, in batches, and how many common users."""

    sender, receiver = Role.PARTNER, Role.SERVER
    num_steps: NDArray[np.int64] = each(np.int64, low=0, high=MOST_STEPS)
    num_common: NDArray[np.int64] = each(np.int64, low=0, high=MOST_IDS)


def align_partners(partners: Numbers, num_partners: int, alignment: str) -> Round[tuple[Numbers, int]]:
    """Lists of ids go around all partners, then to all; if one is lost, all begin again.

    Returns who is left, and how many steps a round has.
    """
    is_lost, aligned = True, Collect()
    while is_lost:
        last = len(partners)
        first = 0 if alignment == "psi" else last - 1
        for stage in range(last if last == 1 else first, last + 1):
            aligned = Collect()
            answer = yield Ask(partners, Align(np.array(stage), partners), aligned)
            partners, is_lost = still_here(partners, answer, num_partners), len(answer.lost) > 0
            if is_lost:
                break
    num_common = np.concatenate([message.num_common for _, message in aligned.batches])
    if last > 1 and num_common.min() == 0:
        raise HushrecError("a partner has no user in common with the others; are user ids written alike?")
    if last > 1 and (2 * num_common > num_common.sum()).any():
        raise HushrecError("a partner has more users in common with the others than they have; align again")
    num_steps = max(int(message.num_steps.max()) for _, message in aligned.batches)
    if num_steps < 1:
        raise HushrecError("no partner has a step to take; bring partners with ratings")
    return partners, num_steps


def _check_list(message: Identities, partners: Numbers) -> None:
    """Refuse a list of nobody who takes part, of more ids than can be blinded, or with an id twice."""
    tokens = np.ascontiguousarray(message.tokens.values)
    if message.origin[0] not in partners or len(tokens) > MOST_IDS:
        raise PublicError("a list of ids is of nobody who takes part, or too long; align again")
    if len(np.unique(tokens.view(f"V{TOKEN_BYTES}"))) < len(tokens):
        raise PublicError("a list of ids has one twice; align again")


def partner_align(cohort: Cohort[Partnership], request: Align, config: Any, draws: Draws) -> Reply:
    """Blind lists of ids and pass them on; in the end find common users and start the vectors."""
    stage, partners, last = int(request.stage), request.partners, len(request.partners)
    check_partners(partners, cohort)
    if stage > last or cohort.round_number != 1:
        raise PublicError("users are aligned before the first round, stage after stage; ask in order")
    sent: list[Tokens] = []
    num_steps, num_common = np.zeros((2, len(cohort.numbers)), np.int64)
    for place, row in enumerate(cohort.rows):
        partner, ids = cohort.private.partners[row], Names(*cohort.private.ids_of(int(row)))
        is_first = stage < last and (config.alignment != "psi" or not stage)  # what came before is of no use
        received = [] if is_first else list(mail_to(cohort, Identities, partner.number))
        for message in received:
            _check_list(message, partners)
        if stage == last:
            lists = [Tokens(int(m.origin[0]), m.are_items.values, m.tokens.values) for m in received]
            if sorted(tokens.origin for tokens in lists) != (partners.tolist() if last > 1 else []):
                raise PublicError("the lists of ids are not one of each partner; align again")
            partner.aligned_with = set(partners.tolist())
            align(partner, ids, lists, config.agreement, draws)
            num_steps[place] = max(1, len(partner.ratings) // config.batch_size)
            num_common[place] = np.count_nonzero(partner.common_users >= 0)
        elif not is_first:
            if len(received) != 1:
                raise PublicError(f"{len(received)} lists of ids came, not one; align again")
            (message,) = received
            tokens = Tokens(int(message.origin[0]), message.are_items.values, message.tokens.values)
            sent.append(blinded(partner, tokens, draws))
        else:
            sent.append(own_tokens(partner, ids, config.agreement, draws))
    mail = []
    if sent:
        starts = np.concatenate([[0], np.cumsum([len(tokens.are_items) for tokens in sent])])
        message = Identities(
            np.array([tokens.origin for tokens in sent], np.int32),
            Ragged(starts, np.concatenate([tokens.are_items for tokens in sent])),
            Ragged(starts, np.concatenate([tokens.values for tokens in sent])),
        )
        # The last to blind a list sends it to all, its owner and itself included.
        shifts = range(last) if stage == last - 1 else (1,)
        mail = [Sealed(message, others(partners, cohort.numbers, shift)) for shift in shifts]
    return Reply(Aligned(num_steps, num_common), tuple(mail))
