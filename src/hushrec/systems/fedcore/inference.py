"""Algorithm 2 of FedCORE: partners serve each other's users under encryption. Used by `system.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, PublicError
from hushrec.limits import MOST_ITEMS
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
    writer_number,
)
from hushrec.systems.fedcore.encrypted_scores import REQUEST_BYTES
from hushrec.systems.fedcore.mail import by_writer, check_aligned
from hushrec.systems.fedcore.partners import Agreement, Partner, Partnership
from hushrec.systems.fedcore.visitors import (
    NAME_BYTES,
    Vectors,
    ask_about,
    decrypted_scores,
    encrypted_scores,
    encrypted_vectors,
    names_of,
    take_scores,
)

_NUM_STAGES = 5


@dataclass(frozen=True)
class Serve(Message):
    """Reveals: who takes part."""

    sender, receiver = Role.SERVER, Role.PARTNER
    stage: NDArray[np.int64] = shared(np.int64, 0, low=0, high=_NUM_STAGES - 1)
    partners: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class Visits(Message):
    """Reveals: which users visit the partner, to those who can tell ids from hashes; how many items it has."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    asker: Numbers = writer_number()
    num_items: NDArray[np.int64] = each(np.int64, low=0, high=MOST_ITEMS)
    names: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class PublicKeys(Message):
    """Reveals: nothing."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    home: Numbers = writer_number()
    keys: Ragged = ragged(np.uint8)


@dataclass(frozen=True)
class EncryptedVectors(Message):
    """Reveals: which of the visitors are users of the sender."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    home: Numbers = writer_number()
    places: Ragged = ragged(np.int32, low=0)
    vectors: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class EncryptedScores(Message):
    """Reveals: to the receiver, who can decrypt them, the scores of all the sender's items for each visitor."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    asker: Numbers = writer_number()
    num_visitors: NDArray[np.int64] = each(np.int64, low=0)
    scores: Ragged = ragged(np.uint8)


@dataclass(frozen=True)
class Scores(Message):
    """Reveals: each visitor's scores of the receiver's items: as many as vectors have numbers give the vector.

    With `top_k`, the places of the best items only.
    """

    sender, receiver = Role.PARTNER, Role.PARTNER
    home: Numbers = writer_number()
    scores: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Served(Message):
    """Reveals: how many of its visitors the partner can serve now."""

    sender, receiver = Role.PARTNER, Role.SERVER
    num_served: NDArray[np.int64] = each(np.int64, low=0)


# Types of mail, and the width of their rows where they have some.
MAIL = {Visits: NAME_BYTES, PublicKeys: 0, EncryptedVectors: REQUEST_BYTES, EncryptedScores: 0, Scores: 0}


def serve_visitors(partners: Numbers) -> Round[Numbers]:
    """Have every partner ask the others; those who are left."""
    for stage in range(_NUM_STAGES):
        answer = yield Ask(partners, Serve(np.array(stage), partners), Collect())
        partners = answer.came(partners)
        if not len(partners):
            raise HushrecError("no partner is left to serve visitors; bring them back and use --resume")
    return partners


Stage = Callable[[Cohort[Partnership], Partner, int, list[int], Agreement, Draws], list[list[Message]]]


def partner_serve(cohort: Cohort[Partnership], request: Serve, config: Any, draws: Draws) -> Reply:
    """One stage: for every partner of the cohort, what it sends to each of the others."""
    check_aligned(request.partners, cohort)
    if cohort.round_number != config.num_rounds or not config.serves_visitors:
        raise PublicError("visitors are served after the last round, if that was agreed on; ask then")
    stage: Stage = (_visits, _vectors, _scores, _decrypted, _taken)[int(request.stage)]
    others, sent = [], []
    for row in cohort.rows:
        partner = cohort.private.partners[row]
        others.append([int(other) for other in request.partners if other != partner.number])
        sent.append(stage(cohort, partner, int(row), others[-1], config.agreement, draws))
    mail = []
    for place, addressees in enumerate(zip(*others, strict=True)):
        for messages in zip(*(of_partner[place] for of_partner in sent if of_partner), strict=True):
            mail.append(Sealed(type(messages[0]).join(messages), np.array(addressees, np.int32)))
    num_served = [
        np.count_nonzero(np.isfinite(cohort.private.partners[row].answers).any(axis=1)) for row in cohort.rows
    ]
    return Reply(Served(np.array(num_served, np.int64)), tuple(mail))


def _visits(
    cohort: Cohort[Partnership], partner: Partner, row: int, others: list[int], terms: Agreement, draws: Draws
) -> list[list[Message]]:
    """Step 1: ask the others about visitors."""
    visitors = ask_about(partner, terms, draws)
    names = names_of(cohort.private.ids_of(row)[0][visitors])
    number, num_items = np.array([partner.number], np.int32), np.array([len(partner.item_factors)])
    return [[Visits(number, num_items, Ragged.one(names))] for _ in others]


def _vectors(
    cohort: Cohort[Partnership], partner: Partner, row: int, others: list[int], terms: Agreement, draws: Draws
) -> list[list[Message]]:
    """Step 2: return the encrypted vectors of those who are known."""
    asked = by_writer(cohort, Visits, partner.number, "asker")
    ids, number = cohort.private.ids_of(row)[0], np.array([partner.number], np.int32)
    answers: list[list[Message]] = []
    for other in others:
        found = Vectors.none()
        if other in asked:
            names, num_items = asked[other].names.values, int(asked[other].num_items[0])
            found = encrypted_vectors(partner, ids, other, names, num_items, terms, draws)
        answers.append([
            PublicKeys(number, Ragged.one(found.keys)),
            EncryptedVectors(number, Ragged.one(found.places), Ragged.one(found.ciphertexts)),
        ])  # fmt: skip
    return answers


def _scores(
    cohort: Cohort[Partnership], partner: Partner, _row: int, others: list[int], terms: Agreement, _draws: Draws
) -> list[list[Message]]:
    """Step 3: compute the encrypted scores of the visitors whose vectors came."""
    keys = by_writer(cohort, PublicKeys, partner.number, "home")
    vectors = by_writer(cohort, EncryptedVectors, partner.number, "home")
    number = np.array([partner.number], np.int32)
    answers: list[list[Message]] = []
    for other in others:
        scores = np.empty((0, 0), np.uint8)
        if other in vectors and len(vectors[other].places.values):
            message = vectors[other]
            own_keys = keys[other].keys.values if other in keys else np.empty(0, np.uint8)
            found = Vectors(message.places.values, message.vectors.values, own_keys)
            scores = encrypted_scores(partner, other, found, terms)
        answers.append([EncryptedScores(number, np.array([len(scores)]), Ragged.one(scores.ravel()))])
    return answers


def _decrypted(
    cohort: Cohort[Partnership], partner: Partner, _row: int, others: list[int], terms: Agreement, draws: Draws
) -> list[list[Message]]:
    """Step 4: decrypt, and return what may be returned."""
    came = by_writer(cohort, EncryptedScores, partner.number, "asker")
    number = np.array([partner.number], np.int32)
    answers: list[list[Message]] = []
    for other in others:
        scores = np.empty(0, np.float32)
        if other in came and int(came[other].num_visitors[0]):
            values, count = came[other].scores.values, int(came[other].num_visitors[0])
            if not len(values) or len(values) % count or count > partner.owed[other, 0]:
                raise PublicError("encrypted scores are cut off, or of other visitors; begin the round again")
            scores = decrypted_scores(partner, other, values.reshape(count, -1), terms, draws).ravel()
        answers.append([Scores(number, Ragged.one(scores))])
    return answers


def _taken(
    cohort: Cohort[Partnership], partner: Partner, _row: int, _others: list[int], terms: Agreement, _draws: Draws
) -> list[list[Message]]:
    """Keep the scores of one's own visitors that came back."""
    for home, message in by_writer(cohort, Scores, partner.number, "home").items():
        take_scores(partner, home, message.scores.values, terms)
    return []
