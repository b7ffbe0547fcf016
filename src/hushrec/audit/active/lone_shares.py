"""Lone shares: three clients have denoisers whom nobody else has, and who are asked for their sums.

A denoiser refuses a sum of fewer than three letters, so it gets three. What three clients upload less the sums of
their denoisers is the sum of their real rows, with counts. Their lists are known: an item that one of the three
lists is rated if its count is 1; one that several list is taken for rated if at least half of them have it.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import asks_clients, clients_asked
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge, nothing_of, told_of
from hushrec.audit.uploads import Pairs, is_upload, paired
from hushrec.protocol import Ask, Collect, Message, Ragged, Recorded, Role, Round, Seat, View

_MOST_GROUPS = 16  # that are asked in a round
_LETTERS = 3  # from which on a denoiser answers


def names_denoisers(message_type: type[Message]) -> bool:
    """Whether it tells clients V and who their denoisers are, several for each."""
    return asks_clients(message_type, "item_factors", "denoisers")


def tell(stage: Stage, own: Own) -> Round[None]:
    """Some clients, in threes, with denoisers that nobody else has; then these."""
    honest = next((one for one in stage.view if names_denoisers(type(one.message))), None)
    collect = next((one.message for one in stage.view if type(one.message).receiver == Role.DENOISER), None)
    if honest is None or collect is None:
        return
    num_shares = int(honest.message.column("denoisers").lengths[0])
    num_groups = min(len(honest.numbers) // (_LETTERS + num_shares), _MOST_GROUPS)
    drawn = own.generator.permutation(len(honest.numbers))[: num_groups * (_LETTERS + num_shares)]
    writers, readers = np.split(drawn, [num_groups * _LETTERS])
    order = np.argsort(writers)
    named = honest.numbers[np.repeat(readers.reshape(num_groups, num_shares), _LETTERS, axis=0)[order]]
    denoisers = Ragged(np.arange(len(writers) + 1) * num_shares, named.ravel())
    request = replace(honest.message.take(writers[order]), denoisers=denoisers)  # type: ignore[call-arg]
    yield Ask(honest.numbers[writers[order]], request, Collect())
    yield Ask(np.sort(honest.numbers[readers]), collect, Collect())


def look(_before: Told | None, view: View, _own: Own) -> Told:
    """Of each item how many who list it have it: uploads of a group less the sums of its denoisers."""
    asked = clients_asked(view)
    uploads = [one for one in view if is_upload(type(one.message), "items", "words")]
    sums = [one for one in view if type(one.message).sender == Role.DENOISER]
    if not uploads or not sums:
        return nothing_of(asked)
    groups = _groups(view)
    listed, words = _counts(uploads, groups)
    masked, masks = _counts(sums, groups)
    found, place = np.unique(np.concatenate([listed, masked]), return_inverse=True)
    counts = np.zeros(len(found), np.int64)
    np.add.at(counts, place, np.concatenate([words, -masks]))  # modulo 2^64, as masks are
    num_listed = np.bincount(place[: len(listed)], minlength=len(found))
    is_rated = (counts > 0) & (2 * counts >= num_listed) & (counts <= num_listed)
    return told_of(asked, _pairs(uploads), is_rated[place[: len(listed)]])


def _groups(view: View) -> NDArray[np.int64]:
    """The group of each client, writer or reader, named by its first reader."""
    asks = [one for one in view if names_denoisers(type(one.message))]
    highest = max(max(int(one.numbers.max()), int(one.message.column("denoisers").values.max())) for one in asks)
    groups = np.full(highest + 1, -1, np.int64)
    for one in asks:
        denoisers = one.message.column("denoisers")
        first = denoisers.values[denoisers.starts[:-1]]
        groups[one.numbers] = first
        groups[denoisers.values] = np.repeat(first, denoisers.lengths)
    return groups


def _pairs(replies: list[Recorded], names: NDArray[np.int64] | None = None) -> Pairs:
    """Who sent which items, perhaps under other names."""
    numbers = [one.numbers if names is None else names[one.numbers] for one in replies]
    who = [np.repeat(one, reply.message.lengths) for one, reply in zip(numbers, replies, strict=True)]
    return paired(np.concatenate(who), np.concatenate([one.message.column("items").values for one in replies]))


def _counts(replies: list[Recorded], groups: NDArray[np.int64]) -> tuple[Pairs, NDArray[np.int64]]:
    """Which items groups sent, and the last number of each row, which counts."""
    return _pairs(replies, groups), np.concatenate([one.message.column("words").values[:, -1] for one in replies])


ATTACK = Attack(
    name="lone shares",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item of three clients whose denoisers get no letters but theirs",
    measure="F1",
    sentence="Three clients with denoisers that nobody else has tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=names_denoisers,
    look=look,
    judge=judge,
    settings=("shares", "rho"),
    lie=Lie(tell),
)
