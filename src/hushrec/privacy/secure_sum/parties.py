"""A participant's half of a secure sum: keys, shares, masked numbers, unmasking.

Guarantee: what a server, and the participants that work together with it, learn of the others' numbers is their
sum, as long as they are no more than the settings say (see `plan`) and the server follows the protocol. If it
names two sets of survivors, it gets both secrets of nobody: a participant answers once for a sum, with a share of
one secret of each neighbour, and the threshold is above half of all shares that there can then be.

A participant agrees on masks with those who wrote to it, by the keys in their letters. Where letters are signed,
as on nodes, a server can neither make up participants nor swap keys on the way. Masks depend on what a participant
was told: the round, the request as far as it is the same for all, how many take part, which items are left out. A
server that tells some something else has no sum of them, nor of the others.

Not protected: the sum itself, who took part, and how many numbers there are; a sum that a participant spoils with
other numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import DivergedError, PublicError, option
from hushrec.privacy.masking import as_ragged
from hushrec.privacy.secure_sum.attempts import TakesPart, begin, once, use_up
from hushrec.privacy.secure_sum.letters import LetterBox, Letters, digest_parts, letters_to
from hushrec.privacy.secure_sum.masks import (
    KEY_BYTES,
    Agreements,
    Secrets,
    Streams,
    Words,
    draw_secrets,
    public_key_of,
    sign_of,
)
from hushrec.privacy.secure_sum.messages import (
    MaskedNumbers,
    NoisyNumbers,
    PublicKeys,
    SendKeys,
    SendShares,
    Shares,
    SharesSent,
    Unmask,
    Unmasking,
    no_keys,
    rows_of_one,
    stand_in,
    told_to_all,
)
from hushrec.privacy.secure_sum.noise import Noise, Size, Sized, noise_for, with_noise
from hushrec.privacy.secure_sum.plan import Plan, plan_for
from hushrec.privacy.secure_sum.settings import SecureSums, is_counted, is_secure
from hushrec.privacy.secure_sum.shamir import split
from hushrec.privacy.user_privacy import is_private, most_sums
from hushrec.protocol import Cohort, Fold, Message, Ragged, Reply, Sealed

PURPOSE = "secure-sums"
_NONE = np.empty(0, np.bool_)
NOISE = "user-noise"


class Total(Fold, Sized, Protocol):
    """A fold that only adds up: all that it holds is a row of numbers, modulo 2^64."""

    def words(self) -> Words:
        """All its numbers, in one order."""
        ...

    def add_words(self, words: Words) -> None:
        """Take in the sum of other folds' numbers."""
        ...


@dataclass(frozen=True)
class Summed:
    """A reply of a system of which the server needs the sum only."""

    reply: type[Message]
    stand_in: type[Message]  # see `messages.stand_in_for`
    empty: Callable[[Any, Any, int], Total]  # for a request, with a config: the fold, for so many summands
    size: Callable[[Any], Size]  # what suits a config's numbers where they get noise
    is_of_items: bool = False  # whether it has a column `items`, a row for each
    per_round: int = 1  # sums of a round that one client is in

    def noise(self, num_parties: int, num_words: int, config: Any) -> Noise:
        """What each of so many participants does with its numbers."""
        return noise_for(num_parties, num_words, self.size(config), self.per_round, config)


class RefusedError(PublicError):
    """What a participant does not do, whoever asks."""


def send_keys(cohort: Cohort[TakesPart], _request: SendKeys, config: SecureSums, draws: Draws) -> Reply:
    """Begin an attempt and show its public key."""
    if not is_counted(config) or is_private(config):
        begin(cohort.private, cohort.rows)
    if is_counted(config):
        return Reply(PublicKeys(rows_of_one(no_keys(len(cohort.numbers)))))
    keys = [np.frombuffer(public_key_of(own.private_key), np.uint8) for own in _secrets(cohort, draws)]
    return Reply(PublicKeys(rows_of_one(np.stack(keys))))


def _secrets(cohort: Cohort[TakesPart], draws: Draws, threshold: int = 1) -> Iterator[Secrets]:
    key, attempts = draws.key(PURPOSE), cohort.private.sum_attempts[cohort.rows]
    for number, attempt in zip(cohort.numbers.tolist(), attempts.tolist(), strict=True):
        yield draw_secrets(key, number, attempt, threshold)


def send_shares(cohort: Cohort[TakesPart], request: SendShares, config: SecureSums, draws: Draws) -> Reply:
    """Write each neighbour its share of the key, and of the seed of the own mask."""
    num_parties = int(request.num_parties)
    plan = plan_for(num_parties, config)
    _check_neighbours(cohort, request, plan)
    num_letters = len(request.neighbours.values)
    keys, shares = no_keys(len(cohort.numbers)), np.zeros((num_letters, 2 * KEY_BYTES), np.uint8)
    if not is_counted(config):
        for place, row in enumerate(cohort.rows.tolist()):
            one = request.part(place, place + 1)
            once(cohort.private, row, "share", [num_parties.to_bytes(8, "little"), *digest_parts(one)])
        keys, shares = _shared(cohort, plan, draws)
    letters = Shares(
        np.repeat(cohort.numbers, plan.degree),
        np.full(num_letters, num_parties, np.int32),
        rows_of_one(np.repeat(keys, plan.degree, axis=0)),
        rows_of_one(request.keys.values),
        rows_of_one(np.ascontiguousarray(shares[:, :KEY_BYTES])),
        rows_of_one(np.ascontiguousarray(shares[:, KEY_BYTES:])),
    )
    return Reply(SharesSent(), (Sealed(letters, request.neighbours.values),))


def _check_neighbours(cohort: Cohort[TakesPart], request: SendShares, plan: Plan) -> None:
    """As many as the plan says, each once, and not the participant itself."""
    neighbours = request.neighbours
    is_wrong = (neighbours.lengths != plan.degree).any() or neighbours.not_ascending().any()
    if is_wrong or (neighbours.values == np.repeat(cohort.numbers, neighbours.lengths)).any():
        raise RefusedError(f"a participant was not given {plan.degree} neighbours; give it those of the plan")
    if request.keys.values.shape[1] != KEY_BYTES:
        raise RefusedError(f"a participant was given keys that are not of {KEY_BYTES} bytes")


def _shared(cohort: Cohort[TakesPart], plan: Plan, draws: Draws) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Public keys of the participants, and the shares for their neighbours, one after the other."""
    drawn = list(_secrets(cohort, draws, plan.threshold))
    keys = np.stack([np.frombuffer(public_key_of(one.private_key), np.uint8) for one in drawn])
    both = np.stack([np.frombuffer(one.private_key + one.seed, np.uint8) for one in drawn])
    others = np.stack([np.frombuffer(one.coefficients, np.uint8) for one in drawn])
    shares = split(both, others.reshape(len(drawn), plan.threshold - 1, 2 * KEY_BYTES), plan.degree)
    return keys, shares.reshape(-1, 2 * KEY_BYTES)


def masked(
    cohort: Cohort[TakesPart],
    request: Message,
    answer: Callable[[], Reply],
    summed: Summed,
    config: SecureSums,
    draws: Draws,
) -> Reply:
    """The answer to a request, as numbers behind masks: the own one, and those of neighbours that have shared."""
    if is_private(config):
        _check_budget(cohort, config, summed)
        if is_counted(config):
            return _noisy(cohort, request, answer, summed, config, draws)
    left_out = cohort.private.sum_left_out if summed.is_of_items else _NONE
    if is_counted(config):
        reply = without_items(answer().message, left_out)
        num_words = len(summed.empty(request, config, 1).words())
        return Reply(stand_in(summed.stand_in, reply, len(cohort.numbers), num_words))
    letters = letters_to(cohort.numbers, cohort.inboxes.get(Shares))
    drawn = list(_secrets(cohort, draws))
    for place, parts in enumerate(_request_parts(request, len(cohort.numbers))):
        own = letters.of(place)
        plan = _checked(own, drawn[place], config)
        if len(own.writer) < plan.threshold:
            raise RefusedError(f"fewer than {plan.threshold} neighbours shared; ask more participants")
        once(cohort.private, int(cohort.rows[place]), "mask", [*parts, left_out.tobytes(), *digest_parts(own)])
    reply = without_items(answer().message, left_out)
    rows = _rows(cohort, request, reply, summed, int(letters.shares.num_parties.max()), config, draws)
    streams, told = Streams(rows.shape[1]), dict[int, bytes]()
    out = np.flatnonzero(left_out).astype(np.int32)
    for place, own_secrets in enumerate(drawn):
        own = letters.of(place)
        if (count := int(own.num_parties[0])) not in told:
            told[count] = told_to_all(request, cohort.round_number, count, out)
        agreements = Agreements(own_secrets.private_key, told[count])
        _add_masks(rows[place], int(cohort.numbers[place]), own_secrets.seed, agreements, own, streams)
    return Reply(MaskedNumbers(as_ragged(rows)))


def without_items(reply: Message, left_out: NDArray[np.bool_]) -> Message:
    """A reply without the rows of some items."""
    if not left_out.any():
        return reply
    items = reply.column("items")
    is_in = ~left_out[items.values]
    starts = np.concatenate([[0], np.cumsum(is_in)])[items.starts]
    columns = {
        kind.name: Ragged(starts, reply.column(kind.name).values[is_in])
        for kind in reply.kinds()
        if kind.layout == "ragged"
    }
    return replace(reply, **columns)


def _request_parts(request: Message, num_parties: int) -> Iterator[list[bytes]]:
    """A request as bytes, for each participant; what is shared is digested once."""
    common = blake2b(digest_size=32)
    for kind in request.kinds():
        if kind.layout == "shared":
            common.update(np.ascontiguousarray(getattr(request, kind.name)).data)
    for place in range(num_parties):
        one = request.part(place, place + 1)
        own = [getattr(one, kind.name) for kind in request.kinds() if kind.layout != "shared"]
        yield [common.digest(), *(getattr(column, "values", column).tobytes() for column in own)]


def _checked(letters: Shares, own: Secrets, config: SecureSums) -> Plan:
    """The plan that all who wrote were told of. All must have written for the sum that is being made."""
    numbers = letters.num_parties
    if not len(numbers) or (numbers != numbers[0]).any():
        raise RefusedError("neighbours were told of different numbers of participants; begin the round again")
    own_key = np.frombuffer(public_key_of(own.private_key), np.uint8)
    if (letters.reader_key.values != own_key).any():
        raise RefusedError("a neighbour's shares are of another sum; begin the round again")
    return plan_for(int(numbers[0]), config)


def _check_budget(cohort: Cohort[TakesPart], config: Any, summed: Summed) -> None:
    """Take part in no more sums than the noise of each is calibrated to."""
    most = most_sums(config, summed.per_round)
    if (cohort.private.sum_attempts[cohort.rows] >= most).any():
        raise RefusedError(
            f"a participant was in {most} sums, and its epsilon is for no more; begin anew with a higher "
            f"{option('most_sums')}"
        )


def _noisy(
    cohort: Cohort[TakesPart],
    request: Message,
    answer: Callable[[], Reply],
    summed: Summed,
    config: SecureSums,
    draws: Draws,
) -> Reply:
    """The answer with noise, where masks are counted only."""
    inbox = cohort.inboxes.get(Shares)
    num_parties = inbox.num_parties() if isinstance(inbox, LetterBox) else 0
    rows = _rows(cohort, request, answer().message, summed, num_parties, config, draws)
    use_up(cohort.private, cohort.rows)
    return Reply(NoisyNumbers(as_ragged(rows)))


def _rows(
    cohort: Cohort[TakesPart],
    request: Message,
    reply: Message,
    summed: Summed,
    num_parties: int,
    config: SecureSums,
    draws: Draws,
) -> Words:
    """The row of numbers that the fold would add for each participant, with noise if the settings say so."""
    # What is clipped may be as large as it likes.
    empty = summed.empty(request, config, 1 if is_private(config) else num_parties)
    rows = np.empty((len(cohort.numbers), len(empty.words())), np.int64)
    noise = summed.noise(num_parties, rows.shape[1], config) if is_private(config) else None
    key, attempts = draws.key(NOISE), cohort.private.sum_attempts[cohort.rows]
    for place, number in enumerate(cohort.numbers.tolist()):
        try:
            rows[place] = _words(empty, cohort, reply, place)
        except DivergedError:
            if noise is None:
                raise
            rows[place] = 0  # an error would tell of one user, without noise
        if noise is not None:
            rows[place] = with_noise(rows[place], empty, noise, key, number, int(attempts[place]))
    return rows


def _words(empty: Total, cohort: Cohort[TakesPart], reply: Message, place: int) -> Words:
    """One participant's reply as the row of numbers that the fold would add."""
    fold: Any = empty.fork()
    fold.add(cohort.numbers[place : place + 1], reply.part(place, place + 1))
    words: Words = fold.words()
    return words


def _add_masks(
    words: Words, number: int, seed: bytes, agreements: Agreements, letters: Shares, streams: Streams
) -> None:
    """Add all masks of a participant to its numbers, in place."""
    streams.add(words, seed, 1)
    for writer, key in zip(letters.writer.tolist(), letters.writer_key.values, strict=True):
        streams.add(words, agreements.mask_key(key.tobytes()), sign_of(number, writer))


def unmask(cohort: Cohort[TakesPart], request: Unmask, config: SecureSums, draws: Draws) -> Reply:
    """For each neighbour that wrote: its share of the mask's seed if it survived, of the key if it was lost."""
    letters = letters_to(cohort.numbers, cohort.inboxes.get(Shares))
    shares, starts = letters.shares, letters.starts
    is_lost = ~np.isin(shares.writer, request.survivors)
    if not is_counted(config):
        _check_survivors(cohort, request, letters, is_lost, config, draws)
    chosen = np.where(is_lost[:, None], shares.key_share.values, shares.seed_share.values)
    return Reply(Unmasking(Ragged(starts, shares.writer), Ragged(starts, is_lost), Ragged(starts, chosen)))


def _check_survivors(
    cohort: Cohort[TakesPart],
    request: Unmask,
    letters: Letters,
    is_lost: NDArray[np.bool_],
    config: SecureSums,
    draws: Draws,
) -> None:
    """Answer once, and only if enough have survived, of all and of the neighbours."""
    survivors = request.survivors
    if (np.diff(survivors) <= 0).any() or not np.isin(cohort.numbers, survivors).all():
        raise RefusedError("a list of survivors is out of order, or without the participant that is asked")
    for place, own in enumerate(_secrets(cohort, draws)):
        shares = letters.of(place)
        plan = _checked(shares, own, config)
        num_alive = int((~is_lost[letters.starts[place] : letters.starts[place + 1]]).sum())
        if len(survivors) < plan.least or num_alive < plan.threshold:
            raise RefusedError(
                f"{len(survivors)} survivors, {num_alive} of them neighbours, are too few to unmask their sum; "
                f"it takes {plan.least} and {plan.threshold}"
            )
        parts = [survivors.tobytes(), *digest_parts(shares)]
        once(cohort.private, int(cohort.rows[place]), "unmask", parts)


def answering(answer: Callable[[Cohort[Any], Any, Any, Draws], Reply], summed: Summed) -> Any:
    """The handler of a request whose replies are summed: in the clear, or masked if the settings say so."""

    def answer_masked(cohort: Cohort[Any], request: Message, config: Any, draws: Draws) -> Reply:
        if not is_secure(config):
            return answer(cohort, request, config, draws)
        return masked(cohort, request, lambda: answer(cohort, request, config, draws), summed, config, draws)

    return answer_masked
