"""Forged letter: the server writes to clients in the name of others, and asks them all as denoisers.

A client answers as a denoiser if it got noise, and tells the sum of that less its own gradients, with counts. If
the noise is an empty letter, made up by the server, the sum is the client's own: every item with a count is a
rated one.
"""

from dataclasses import replace

import numpy as np

from hushrec.audit.active.lone_letter import asks_denoiser, names_denoiser
from hushrec.audit.asking import ForgedAsk, has_columns
from hushrec.audit.scoreboard import Attack, Lie, Outcome, Own, Stage, Truth, is_sent
from hushrec.audit.told import Told, judge, nothing_of, told_of
from hushrec.audit.uploads import paired
from hushrec.protocol import Collect, Message, Ragged, Role, Round, Sealed, Seat, View


def is_noise(message_type: type[Message]) -> bool:
    """Whether clients send it to denoisers: rows of items."""
    return is_sent(message_type, Role.CLIENT, Role.DENOISER, "items", "gradients")


def tell(stage: Stage, _own: Own) -> Round[None]:
    """All clients of the round are asked as denoisers, with a letter for each in which there is nothing."""
    honest = next((one for one in stage.view if names_denoiser(type(one.message))), None)
    collect = next((one.message for one in stage.view if asks_denoiser(type(one.message))), None)
    kind = next((kind for kind in stage.messages if is_noise(kind)), None)
    if honest is None or collect is None or kind is None:
        return
    counted, width = honest.message.counted_round, collect.item_factors.shape[1]  # type: ignore[attr-defined]
    starts = np.zeros(len(honest.numbers) + 1, np.int64)
    nothing = {"items": np.empty(0, np.int32), "gradients": np.empty((0, width), np.float32)}
    noise = kind(**{name: Ragged(starts, values) for name, values in nothing.items()})
    request = replace(collect, counted_round=counted)  # type: ignore[call-arg]
    yield ForgedAsk(honest.numbers, request, Collect(), Sealed(noise, honest.numbers))


def look(_before: Told | None, view: View, _own: Own) -> Told:
    """Every item in a client's sums is its own."""
    asked = [one.numbers for one in view if asks_denoiser(type(one.message))]
    sums = [one for one in view if type(one.message).sender == Role.DENOISER and _has_counts(type(one.message))]
    pairs = [
        paired(np.repeat(one.numbers, one.message.lengths), one.message.column("items").values) for one in sums
    ]
    found = np.concatenate([*pairs, np.empty(0, np.int64)])
    numbers = np.unique(np.concatenate([*asked, np.empty(0, np.int32)])).astype(np.int64)
    return told_of(numbers, found, np.ones(len(found), np.bool_))


def judge_of_catalogue(told: Told, truth: Truth) -> Outcome:
    """F1 of what is taken for rated, by client. Blind: the catalogue, as nobody listed anything else."""
    right, blind = judge(told, truth), judge(nothing_of(told.asked), truth)
    return Outcome.of_victims(right.victims, right.right, blind.right)


def _has_counts(message_type: type[Message]) -> bool:
    return has_columns(message_type, "items", "counts")


ATTACK = Attack(
    name="forged letter",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, as one in the sums of a client that got made-up noise alone",
    measure="F1",
    sentence="Asked as denoisers with a letter that the server made up, clients tell their rated items with an F1 "
    "of {score:.3f}; a blind guess has {chance:.2f}.",
    reads=names_denoiser,
    look=look,
    judge=judge_of_catalogue,
    settings=("denoisers", "rho"),
    repairs=("--shares 2",),
    lie=Lie(tell),
)
