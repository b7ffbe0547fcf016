"""The server's half of a secure sum: it draws the graph, adds up what is masked, and takes out the masks."""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.privacy.masking import MaskedSum
from hushrec.privacy.secure_sum.graph import places_of, ring_neighbours
from hushrec.privacy.secure_sum.masks import KEY_BYTES, Agreements, Streams, Words, public_key_of, sign_of
from hushrec.privacy.secure_sum.messages import PublicKeys, SendKeys, SendShares, Unmask, Unmasking, told_to_all
from hushrec.privacy.secure_sum.noise import read_noisy
from hushrec.privacy.secure_sum.parties import Summed, Total
from hushrec.privacy.secure_sum.plan import Plan, plan_for
from hushrec.privacy.secure_sum.settings import SecureSums, is_counted
from hushrec.privacy.secure_sum.shamir import combine
from hushrec.privacy.secure_sum.together import Together
from hushrec.privacy.user_privacy import is_private
from hushrec.protocol import NO_ONE, Answer, Ask, Collect, Numbers, Ragged

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
SubRound = Generator[Ask, Answer, Answer]


@dataclass(frozen=True)
class Graph:
    """The participants of a sum, their keys, and who is whose neighbour."""

    numbers: Numbers  # ascending
    keys: Bytes  # a row for each
    neighbours: Places  # places of each one's, ascending
    plan: Plan

    def request(self) -> SendShares:
        """What each participant is told of its neighbours."""
        starts = np.arange(len(self.numbers) + 1, dtype=np.int64) * self.plan.degree
        places = self.neighbours.ravel()
        neighbours, keys = Ragged(starts, self.numbers[places]), Ragged(starts, self.keys[places])
        return SendShares(np.array(len(self.numbers)), neighbours, keys)

    def check_enough(self, left: Numbers, what: str) -> None:
        """Refuse to go on where the sum of those who are left could not be unmasked."""
        is_left = np.isin(self.numbers, left)
        num_left = is_left[self.neighbours].sum(axis=1)[is_left]
        if len(left) < self.plan.least or num_left.min() < self.plan.threshold:
            raise HushrecError(
                f"{len(left)} of {len(self.numbers)} {what} and {self.plan.least} are needed, so nothing is "
                f"unmasked; wait for more, or use a higher {option('secure_dropouts')}"
            )


def secure_sum(
    ask: Ask,
    name: str,
    summed: Summed,
    round_number: int,
    config: SecureSums,
    draws: Draws,
    together: Together | None = None,
    left_out: Numbers = NO_ONE,
) -> SubRound:
    """What an ask is answered with if its replies are summed securely: who is lost is not in the sum.

    `together`: who may be in a sum with whom; where a sum would tell of too few, it is not made, and all are lost.
    `left_out`: items that participants were told to leave out.
    """
    keys = Collect(check=_check_keys)
    answer = yield Ask(ask.to, SendKeys(), keys)
    present = answer.came(ask.to)
    if together is not None:
        present = together.admitted(present)
    if not len(present):
        return Answer(ask.to)
    graph = _draw_graph(
        present, _key_rows(keys, present), config, draws.generator(f"secure-sum-graph {name}", round_number)
    )
    answer = yield Ask(present, graph.request(), Collect())
    sharing = answer.came(present)
    graph.check_enough(sharing, "have shared")
    request = ask.request.take(places_of(sharing, ask.to))
    sums: Total = ask.replies  # type: ignore[assignment]  # as the system declares
    total, in_the_clear = MaskedSum.zeros(len(sums.words())), sums.fork()
    is_made = is_private(config) or not is_counted(config)  # else replies come as they are
    answer = yield Ask(sharing, request, total if is_made else in_the_clear)
    survivors = answer.came(sharing)
    graph.check_enough(survivors, "have survived")
    if together is not None and not together.allows(survivors):
        return Answer(ask.to)
    shares = Collect(check=partial(_check_shares, graph, survivors))
    if is_counted(config):
        shares = Collect()  # there are none
    yield Ask(survivors, Unmask(survivors), shares)
    if not is_counted(config):
        told = told_to_all(request, round_number, len(present), left_out)
        take_out_masks(total.totals, graph, sharing, survivors, shares, told)
    if is_private(config):
        noise = summed.noise(len(present), len(total.totals), config)
        total.totals = read_noisy(total.totals, sums, noise, len(survivors))
    if is_made:
        sums.add_words(total.totals)
    else:
        sums.merge(in_the_clear)
    if together is not None:
        together.note(survivors)
    return Answer(ask.to[~np.isin(ask.to, survivors)])


def _check_keys(numbers: Numbers, message: PublicKeys) -> None:
    is_wrong = message.key.lengths != 1
    if message.key.values.shape[1:] != (KEY_BYTES,) or is_wrong.any():
        raise HushrecError(
            f"participant {numbers[is_wrong.argmax()]} sent no key of {KEY_BYTES} bytes; leave it out"
        )


def _key_rows(keys: Collect, present: Numbers) -> Bytes:
    """Public keys of the participants, in their order."""
    numbers = np.concatenate([numbers for numbers, _ in keys.batches])
    rows: Bytes = np.concatenate([message.key.values for _, message in keys.batches])
    order = np.argsort(numbers)
    return rows[order[np.isin(numbers[order], present)]]


def _draw_graph(present: Numbers, keys: Bytes, config: SecureSums, generator: np.random.Generator) -> Graph:
    plan = plan_for(len(present), config)
    return Graph(present, keys, ring_neighbours(len(present), plan.degree, generator), plan)


# --- Unmasking ---------------------------------------------------------------------------------------------------


def take_out_masks(
    words: Words, graph: Graph, sharing: Numbers, survivors: Numbers, shares: Collect, told: bytes
) -> None:
    """Take all masks that did not cancel out of a sum, in place, by the shares that were sent of them.

    `told`: a digest of what all were told.
    """
    _take_out(words, graph, sharing, survivors, _opened(graph, sharing, survivors, shares), told)


def _opened(graph: Graph, sharing: Numbers, survivors: Numbers, shares: Collect) -> dict[int, bytes]:
    """By place of each who has shared: the seed of its mask if it survived, its private key if it was lost."""
    about, places, rows = _sorted_shares(graph, survivors, shares)
    needed, threshold = places_of(sharing, graph.numbers), graph.plan.threshold
    firsts, lasts = np.searchsorted(about, needed, "left"), np.searchsorted(about, needed, "right")
    if (lasts - firsts).min() < threshold:
        fewest, number = int((lasts - firsts).min()), int(sharing[np.argmin(lasts - firsts)])
        raise HushrecError(
            f"{fewest} neighbours of participant {number} sent shares and {threshold} are needed, so nothing is "
            f"unmasked; wait for more, or use a higher {option('secure_dropouts')}"
        )
    taken = firsts[:, None] + np.arange(threshold)
    secrets = combine(places[taken], rows[taken])
    return {place: secret.tobytes() for place, secret in zip(needed.tolist(), secrets, strict=True)}


def _sorted_shares(graph: Graph, survivors: Numbers, shares: Collect) -> tuple[Places, Places, Bytes]:
    """Whom shares are about, where on its polynomial they are, and the shares, by these two."""
    found = [_places_of_shares(graph, survivors, numbers, sent) for numbers, sent in shares.batches]
    about, places = (np.concatenate(column) for column in zip(*found, strict=True))
    rows: Bytes = np.concatenate([sent.shares.values for _, sent in shares.batches])
    order = np.lexsort((places, about))
    return about[order], places[order] + 1, rows[order]


def _check_shares(graph: Graph, survivors: Numbers, numbers: Numbers, sent: Unmasking) -> None:
    """Refuse shares that were not asked for as they come, so that it is known whose they are."""
    _places_of_shares(graph, survivors, numbers, sent)


def _places_of_shares(
    graph: Graph, survivors: Numbers, numbers: Numbers, sent: Unmasking
) -> tuple[Places, Places]:
    """Whom shares are about, and where on its polynomial they are; refused if they were not asked for."""
    senders, told = np.repeat(numbers, sent.neighbours.lengths), sent.neighbours.values
    about = np.minimum(places_of(told, graph.numbers), len(graph.numbers) - 1)
    sender_places = places_of(senders, graph.numbers)
    places = (graph.neighbours[about] < sender_places[:, None]).sum(axis=1)
    at = np.minimum(places, graph.plan.degree - 1)
    is_right = (graph.numbers[about] == told) & (graph.neighbours[about, at] == sender_places)
    is_right &= (sent.is_key.values != np.isin(told, survivors)) & ~sent.neighbours.not_ascending()
    if not is_right.all():
        raise HushrecError(
            f"participant {senders[np.argmin(is_right)]} sent shares that were not asked for; leave it out"
        )
    if sent.shares.values.shape[1] != KEY_BYTES:
        raise HushrecError(f"participant {numbers[0]} sent shares that are not of {KEY_BYTES} bytes; leave it out")
    return about, places


def _take_out(
    words: Words, graph: Graph, sharing: Numbers, survivors: Numbers, opened: dict[int, bytes], told: bytes
) -> None:
    """Take the survivors' own masks out of a sum, and those that they have in common with who was lost."""
    streams, numbers = Streams(len(words)), graph.numbers
    is_survivor = np.isin(numbers, survivors)
    for place in places_of(sharing, numbers).tolist():
        if is_survivor[place]:
            streams.add(words, opened[place], -1)
            continue
        if public_key_of(opened[place]) != graph.keys[place].tobytes():
            raise HushrecError(f"the shares of participant {numbers[place]}'s key do not fit; leave it out")
        agreements, others = Agreements(opened[place], told), graph.neighbours[place]
        for other in others[is_survivor[others]].tolist():
            key = agreements.mask_key(graph.keys[other].tobytes())
            streams.add(words, key, -sign_of(int(numbers[other]), int(numbers[place])))
