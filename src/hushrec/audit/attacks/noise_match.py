"""Noise match: server and denoisers take the noise of a client from its upload; what is nothing then was virtual.

A client sends its denoisers the rows of its virtual items, which are in its upload as well, byte for byte. Whose
mail it is the server knows, for it carries it. Where the noise is shared among several denoisers, all shares of an
item together are its row, or a mask that goes away with that of the upload: with all of them the difference is
zero for virtual items, with fewer it is a random number for all, and all listed items are left. A share may come
as the seed of its numbers: who has it draws them as the denoiser does.

Told of are the clients whose mail came to one of those who collude.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, clients_of, is_own, is_upload, paired, places_of
from hushrec.privacy.shared_denoising import MaskShare
from hushrec.privacy.shares import expanded
from hushrec.protocol import Message, Numbers, Recorded, Role, Seat, View


class Matched(NamedTuple):
    """All pairs that clients with noise listed, and whether something is left of each."""

    pairs: Pairs  # ascending
    is_left: NDArray[np.bool_]


def is_noise(message_type: type[Message]) -> bool:
    """Whether a client sends it to a denoiser, with a row for each item or its seed, whatever else there is."""
    to_denoiser = message_type.sender == Role.CLIENT and message_type.receiver == Role.DENOISER
    has_items = "items" in {kind.name for kind in message_type.kinds()}
    return to_denoiser and has_items and (message_type is MaskShare or _rows_name(message_type) != "")


def _rows_name(message_type: type[Message]) -> str:
    """The column that has a row of numbers for each item: `gradients`, or the first that does."""
    names = [kind.name for kind in message_type.kinds() if kind.layout == "ragged" and kind.num_dims == 2]
    return "gradients" if "gradients" in names else next(iter(names), "")


def match(view: View) -> Matched:
    """What is left of each item of an upload without the noise that was seen of its client."""
    noise = [one for one in view if is_noise(type(one.message))]
    uploads = [one for one in view if is_upload(type(one.message), "items") and _rows_name(type(one.message))]
    if not noise or not uploads:
        return Matched(np.empty(0, np.int64), np.empty(0, np.bool_))
    pairs, rows = _rows(uploads, 0)
    order = np.argsort(pairs, kind="stable")
    pairs, rows = pairs[order], rows[order]
    noise_pairs, noise_rows = _rows(noise, rows.shape[1])
    places, is_listed = places_of(noise_pairs, pairs)
    total, has_noise = np.zeros_like(rows), np.zeros(len(pairs), np.bool_)
    if noise_rows.dtype == rows.dtype and noise_rows.shape[1:] == rows.shape[1:]:
        np.add.at(total, places[is_listed], noise_rows[is_listed])  # whole numbers wrap, as masks do
        has_noise[places[is_listed]] = True
    is_nothing = has_noise & (total == rows).all(axis=1)
    is_told = np.isin(clients_of(pairs), clients_of(noise_pairs))
    return Matched(pairs[is_told], ~is_nothing[is_told])


def _rows(batches: list[Recorded], num_drawn: int) -> tuple[Pairs, NDArray[np.generic]]:
    """Who sent which item, and its row, of messages of one form; of the first form, if there are several.

    `num_drawn`: how long the rows are that come as seeds.
    """
    forms = [
        expanded(one.message, num_drawn)
        if isinstance(one.message, MaskShare)
        else one.message.column(_rows_name(type(one.message))).values
        for one in batches
    ]
    alike = [
        (one, form)
        for one, form in zip(batches, forms, strict=True)
        if form.dtype == forms[0].dtype and form.shape[1:] == forms[0].shape[1:]
    ]
    who = [np.repeat(_senders(one), one.message.lengths) for one, _ in alike]
    items = np.concatenate([one.message.column("items").values for one, _ in alike])
    return paired(np.concatenate(who), items), np.concatenate([form for _, form in alike])


def _senders(one: Recorded) -> Numbers:
    return one.numbers if one.addressees is None else one.writers()


def judge(matched: Matched, truth: Truth) -> Outcome:
    """F1 of what is left, by client. Blind: of all that the client listed."""
    own = is_own(matched.pairs, truth.train)
    clients, place = np.unique(clients_of(matched.pairs), return_inverse=True)
    num_own, num_left, num_hits = (
        np.bincount(place, marks, len(clients)) for marks in (own, matched.is_left, own & matched.is_left)
    )
    num_listed = np.bincount(place, minlength=len(clients))
    has_any = num_own + num_left > 0
    right, blind = 2 * num_hits[has_any] / (num_own + num_left)[has_any], 2 * num_own / (num_own + num_listed)
    return Outcome.of_victims(clients[has_any], right, blind[has_any])


ATTACK = Attack(
    name="noise match",
    seats=(Seat(Role.SERVER), Seat(Role.DENOISER)),
    guesses="a user's items, as those listed of which no denoiser got the noise",
    measure="F1",
    sentence="Of clients whose noise came to a colluding denoiser, what is left of the list gives an F1 of "
    "{score:.3f}; the whole list gives {chance:.2f}.",
    reads=is_noise,
    look=lambda _before, view, _own: match(view),
    judge=judge,
    repairs=("--shares 2", "--secure-sums"),
)
