"""What one partner makes of the gradients of common users that others sent it (FedCORE), and the truth about it.

The attacker has its own copies of the common users' vectors as the round began. Everybody who shares a vector
moves it by the mean of what all of them sent about it. So from the mail that it sent and received, the attacker
knows its copies, and the layers, at every step. It attacks the first steps of a round. What it finds is compared
with the victim's item vectors as the round began; the steps before have moved some of these a little.

Mail does not say who wrote it. With more than two partners the attacker works on all of it; the judge finds the
victim's letters by the users that it must have listed.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.inversion import invert_blind, priors_from_own_items
from hushrec.audit.matching import match_gradients, solve_single
from hushrec.audit.scoreboard import Arrays, Own, Truth, is_sent
from hushrec.models import neucf
from hushrec.protocol import UNNAMED, Message, Numbers, Role, Seat, View

Floats = NDArray[np.float64]

ATTACKER, VICTIM = 1, 0
SEATS, VICTIM_SEAT = (Seat(Role.PARTNER, ATTACKER),), Seat(Role.PARTNER, VICTIM)
SETTINGS = ("batch_size", "regularization", "activation", "privatizer")
OWN = (
    "common_users", "user_factors_before", "item_factors_before", "layers_before", "items", "ratings",
    "learning_rate",
)  # fmt: skip
QUADRATIC = (float(neucf.SQUARE), float(neucf.SLOPE), float(neucf.OFFSET))
_NUM_STEPS = 8  # of a round


class Letter(NamedTuple):
    """What another partner sent in one step, and what the attacker had at that step."""

    step: int
    users: Numbers  # common numbers, of each row
    rows: NDArray[np.float32]
    layer_gradient: NDArray[np.float32]  # of the whole batch; empty, if the model has no layers
    copies: NDArray[np.float32]  # of each row: the attacker's own vector of the user
    layers: NDArray[np.float32]
    writer: int = UNNAMED  # of those who collude; else it is not known


class Recovered(NamedTuple):
    """What is taken to be behind each row, letter after letter."""

    letters: list[Letter]
    vectors: Floats  # of the items
    ratings: Floats


def of_common_users(message_type: type[Message]) -> bool:
    """Whether partners send gradients of common users to each other with it."""
    return is_sent(message_type, Role.PARTNER, Role.PARTNER, "users", "gradients")


def _of_layers(message_type: type[Message]) -> bool:
    return is_sent(message_type, Role.PARTNER, Role.PARTNER, "gradient")


class _Slices(NamedTuple):
    """Mail of one type, in order of sending: columns of each slice."""

    sent: list[list[NDArray[Any]]]
    received: list[list[NDArray[Any]]]
    writers: list[int]  # of what was received
    num_others: int  # to whom each step's mail goes, and from whom it comes


def _slices(view: View, message_types: set[type[Message]], attacker: int) -> _Slices:
    mail, addressees = _Slices([], [], [], 0), set[int]()
    for one in view:
        if type(one.message) not in message_types or one.addressees is None:
            continue
        for place, (writer, to) in enumerate(zip(one.writers().tolist(), one.addressees.tolist(), strict=True)):
            message = one.message.part(place, place + 1)
            columns = [message.column(kind.name).values for kind in message.kinds() if kind.layout == "ragged"]
            if writer == attacker:
                mail.sent.append(columns)
                addressees.add(to)
            elif to == attacker:
                mail.received.append(columns)
                mail.writers.append(writer)
    return mail._replace(num_others=len(addressees))


def received_letters(view: View, holds: Arrays, attacker: int = ATTACKER) -> list[Letter]:
    """The letters of the first steps of a round, with the attacker's copies followed from step to step."""
    kinds = {type(one.message) for one in view}
    of_users = _slices(view, {kind for kind in kinds if of_common_users(kind)}, attacker)
    of_layers = _slices(view, {kind for kind in kinds if _of_layers(kind)}, attacker)
    vectors, layers = (holds[name].astype(np.float32) for name in ("user_factors_before", "layers_before"))
    place_of, rate, num_others = _places(holds["common_users"]), float(holds["learning_rate"]), of_users.num_others
    letters: list[Letter] = []
    for step in range(min(_NUM_STEPS, len(of_users.received) // max(num_others, 1))):
        now = slice(step * num_others, (step + 1) * num_others)
        gradients = [column for (column,) in of_layers.received[now]] or [layers[:0]] * num_others
        came = zip(of_users.received[now], gradients, of_users.writers[now], strict=True)
        for (users, rows), gradient, writer in came:
            letters.append(Letter(step, users, rows, gradient, vectors[place_of[users]], layers, writer))
        own = _joined(of_users.sent[now])
        vectors = _moved(vectors, [own, *of_users.received[now]], place_of, rate)
        if len(layers):
            mean = np.mean([of_layers.sent[now][0][0], *gradients], axis=0, dtype=np.float64)
            layers = (layers - rate * mean).astype(np.float32)
    return letters


def _places(common: Numbers) -> NDArray[np.int64]:
    """Which own user has a common number."""
    numbers = np.flatnonzero(common >= 0)
    places = np.full(int(common.max(initial=-1)) + 1, -1, np.int64)
    places[common[numbers]] = numbers
    return places


def _joined(own: list[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    """What the attacker itself released in a step; others got of it the rows of users that they have."""
    users, rows = own[0]
    for more_users, more_rows in own[1:]:
        is_new = ~np.isin(more_users, users)
        users, rows = np.concatenate([users, more_users[is_new]]), np.concatenate([rows, more_rows[is_new]])
    return [users, rows]


def _moved(
    vectors: NDArray[np.float32], mail: list[list[NDArray[Any]]], place_of: NDArray[np.int64], rate: float
) -> NDArray[np.float32]:
    """Every vector is moved by the mean over the partners that sent something about it."""
    totals, counts = np.zeros(vectors.shape), np.zeros(len(vectors))
    for users, rows in mail:
        np.add.at(totals, place_of[users], rows)
        counts[np.unique(place_of[users])] += 1
    moved: NDArray[np.float32] = (vectors - rate * totals / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return moved


def recover(_before: Recovered | None, view: View, own: Own) -> Recovered:
    """Item vectors and ratings behind the rows of a round's first steps."""
    return recovered_from(received_letters(view, own.holds), own)


def recovered_from(letters: list[Letter], own: Own) -> Recovered:
    """Item vectors and ratings behind the rows of some letters."""
    num_rows, width = sum(len(letter.rows) for letter in letters), own.holds["item_factors_before"].shape[1]
    if not num_rows:
        return Recovered(letters, np.empty((0, width)), np.empty(0))
    if len(own.holds["layers_before"]):
        found = [_matched(letter, own) for letter in letters if len(letter.rows)]
        vectors, ratings = (np.concatenate(column) for column in zip(*found, strict=True))
        return Recovered(letters, vectors, ratings)
    rows, copies = (np.concatenate([getattr(one, name) for one in letters]) for name in ("rows", "copies"))
    size, items = own.settings["batch_size"], own.holds["item_factors_before"]
    alpha = 2 / size * own.settings["regularization"]
    counts = np.bincount(own.holds["items"], minlength=len(items))
    priors = priors_from_own_items(rows, copies, items, counts, alpha)
    inverted = invert_blind(rows, copies, np.unique(own.holds["ratings"]), priors, size, alpha)
    return Recovered(letters, inverted.vectors, inverted.ratings)


def _matched(letter: Letter, own: Own) -> tuple[Floats, Floats]:
    """NeuCF: by search; a batch of one rating needs none."""
    size, quadratic = own.settings["batch_size"], QUADRATIC if own.settings["activation"] == "quadratic" else None
    gradients = np.broadcast_to(letter.layer_gradient, (len(letter.rows), len(letter.layer_gradient)))
    if size == 1:
        found = solve_single(gradients, letter.copies, letter.layers, quadratic=quadratic)
    else:
        found = match_gradients(
            letter.rows, gradients, letter.copies, letter.layers, own.generator, batch_size=size,
            quadratic=quadratic,
        )  # fmt: skip
    return found.vectors[:, 0], found.ratings[:, 0]


# --- The truth, for scoring ------------------------------------------------------------------------------


class Behind(NamedTuple):
    """The victim's ratings that are behind the rows; several behind one, where rows are averaged."""

    rows: NDArray[np.int64]  # of what was recovered
    users: NDArray[np.int64]  # common numbers
    items: NDArray[np.int64]  # the victim's own numbers
    ratings: NDArray[np.float32]


def behind(found: Recovered, truth: Truth, attacker: int = ATTACKER) -> Behind:
    """What the victim's letters were made of, in the order of its batches."""
    victim = truth.holds(VICTIM)
    size = min(truth.settings["batch_size"], len(victim["ratings"]))
    is_told = (victim["common_users"] >= 0) & ((victim["holders_of_users"] >> attacker) & 1 > 0)
    is_averaged = "average" in truth.settings["privatizer"]
    chosen, rows, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for letter in found.letters:
        places = victim["batches"][letter.step * size : (letter.step + 1) * size]
        places = places[is_told[victim["users"][places]]]
        users = victim["common_users"][victim["users"][places]]
        _, firsts = np.unique(users, return_index=True)
        listed = users[np.sort(firsts)] if is_averaged else users
        if np.array_equal(letter.users, listed):
            row_of = np.arange(len(users))
            if is_averaged:
                order = np.argsort(listed)
                row_of = order[np.searchsorted(listed, users, sorter=order)]
            chosen.append(places)
            rows.append(first + row_of)
        first += len(letter.users)
    places = np.concatenate(chosen)
    users = victim["common_users"][victim["users"][places]].astype(np.int64)
    return Behind(np.concatenate(rows), users, victim["items"][places].astype(np.int64), victim["ratings"][places])
