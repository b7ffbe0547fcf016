"""The data owners of DRIFT: what they answer. Used by `drift`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import PublicError
from hushrec.protocol import Cohort, Collect, Ragged, Reply, Sealed
from hushrec.systems.drift.cipher import Letters, salt_of
from hushrec.systems.drift.gradients import group_gradients
from hushrec.systems.drift.members import Members, Owner
from hushrec.systems.drift.messages import (
    BlockGradients,
    Holdings,
    OwnerKey,
    Register,
    SentInteractions,
    TakeIn,
    Vectors,
    Wanted,
)
from hushrec.systems.drift.plan import Planned
from hushrec.systems.drift.stopwatch import Stopwatch, untimed


def slices(parts: list[NDArray[Any]], dtype: Any) -> Ragged:
    """The parts joined, one slice each."""
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Ragged(starts, np.concatenate([np.empty((0, *parts[0].shape[1:]), dtype), *parts]))


def owners_in(cohort: Cohort[Members]) -> list[Owner]:
    """The owners of a cohort."""
    return [cohort.private.owners[row] for row in cohort.rows]


def owner_register(cohort: Cohort[Members], request: Register, config: Planned, _draws: Draws) -> Reply:
    """Tell what is held; give the users' side the key."""
    owners, users_side = owners_in(cohort), int(request.users_side)
    for owner, counted_round in zip(owners, request.counted_round.tolist(), strict=True):
        owner.check_users_side(users_side)
        owner.begin(cohort.round_number, counted_round)
    held = Holdings(slices([np.sort(owner.held) for owner in owners], np.int32))
    if not config.plan.has_owners:
        return Reply(held)
    # DEVIATION: each owner makes its key. The report does not say who does ("we create keys at the very
    # beginning, and we share them with each DO", Sec. 2.3); an orchestrator that hands them out could read
    # every interaction.
    deeds = [owner.deed_to(users_side, config.plan.form.is_encrypted) for owner in owners]
    columns = (_row_each([getattr(deed, name) for deed in deeds]) for name in ("key", "signing_key", "signature"))
    return Reply(held, (Sealed(OwnerKey(cohort.numbers, *columns), np.full(len(owners), users_side)),))


def _row_each(parts: list[bytes]) -> Ragged:
    """A row of bytes for each party, all of one length."""
    rows = np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), len(parts[0]))
    return Ragged(np.arange(len(parts) + 1), rows)


def owner_take_in(
    cohort: Cohort[Members], request: TakeIn, config: Planned, _draws: Draws, *, stopwatch: Stopwatch = untimed
) -> Reply:
    """Put the window's interactions into blocks; ask for what completed ones need."""
    plan = config.plan
    mail = letters_by_owner(cohort, int(request.window))
    groups = []
    for owner in owners_in(cohort):
        letters = mail.get(owner.number, ())
        with stopwatch("block keeping", owner.number):
            groups.append(
                owner.take_in(int(request.window), letters, plan.form, plan.theta, plan.threshold, stopwatch)
            )
    return Reply(
        Wanted(
            slices([part.group_of_row for part in groups], np.int32),
            slices([part.is_item for part in groups], np.uint8),
            slices([part.numbers for part in groups], np.int32),
        )
    )


def letters_by_owner(cohort: Cohort[Members], window: int) -> dict[int, list[Letters]]:
    """The window's mail of each owner."""
    inbox = cohort.inboxes.get(SentInteractions)
    found: dict[int, list[Letters]] = {}
    for addressees, sent in inbox.batches if isinstance(inbox, Collect) else ():
        for place, owner in enumerate(addressees.tolist()):
            if sent.window[place] != window:  # there was no mail since
                continue
            rows = slice(*sent.sequences.starts[place : place + 2].tolist())
            columns = sent.sequences.values[rows], sent.flags.values[rows], sent.contents.values[rows]
            letters = Letters(*columns, salt_of(int(sent.salt_low[place]), int(sent.salt_high[place])))
            found.setdefault(owner, []).append(letters)
    return found


def owner_learn(
    cohort: Cohort[Members], request: Vectors, config: Planned, _draws: Draws, *, stopwatch: Stopwatch = untimed
) -> Reply:
    """The gradients of the window's groups (Algorithm 3)."""
    plan = config.plan
    gradients = []
    for place, owner in enumerate(owners_in(cohort)):
        rows = slice(*request.vectors.starts[place : place + 2].tolist())
        vectors, groups = request.vectors.values[rows], owner.wanted(plan.theta)
        if vectors.shape != (len(groups.numbers), plan.num_columns):
            raise PublicError("vectors came that do not fit what was asked for; ask in order")
        with stopwatch("gradients", owner.number):
            gradients.append(
                group_gradients(
                    groups, vectors, plan.learning_rate, plan.regularization, plan.block_loss, plan.bias_pace
                )
            )
    return Reply(BlockGradients(slices(gradients, np.float32)))
