"""The steps of a round on the partners' side (Algorithm 1, lines 6 to 22). Used by `system.py`."""

from typing import Protocol

import numpy as np

from hushrec.draws import Draws
from hushrec.protocol import Cohort, Ragged, Reply, Sealed
from hushrec.systems.fedcore.answer_privacy import VectorNoise
from hushrec.systems.fedcore.gradient_mail import gradient_mail, releases_to
from hushrec.systems.fedcore.mail import check_aligned, others
from hushrec.systems.fedcore.messages import Settle, Settled, Stepped, TakeStep
from hushrec.systems.fedcore.partners import Partner, Partnership, Release, Training
from hushrec.systems.fedcore.visitors import show_users


class Agreed(Protocol):
    """What of the settings a step needs."""

    @property
    def num_rounds(self) -> int:
        """How many rounds there are."""
        ...

    @property
    def batch_size(self) -> int:
        """Ratings in a step."""
        ...

    @property
    def unaligned(self) -> float:
        """Share of the common items that stay unaligned."""
        ...

    @property
    def num_weights(self) -> int:
        """How many numbers the layers have together; 0 without layers."""
        ...

    @property
    def vector_noise(self) -> VectorNoise:
        """What is done to vectors before visitors are served with them."""
        ...

    def training_of(self, partner: Partner, num_steps: int, round_number: int) -> Training:
        """How a partner trains in a round of so many steps."""
        ...


def partner_step(cohort: Cohort[Partnership], request: TakeStep, config: Agreed, draws: Draws) -> Reply:
    """Count the step before, then compute the next one and send what others may see of it."""
    step, num_steps, releases = int(request.step), int(request.num_steps), []
    check_aligned(request.partners, cohort)
    for row in cohort.rows:
        partner = cohort.private.partners[row]
        partner.check_step(step, num_steps, cohort.round_number, config.num_rounds, config.batch_size)
        training = config.training_of(partner, num_steps, cohort.round_number)
        if step == 0:
            partner.begin(cohort.round_number)
        else:
            partner.count(step - 1, num_steps, _came(cohort, partner, step - 1, request, config), training, draws)
        releases.append(partner.step(step, num_steps, training, draws).release)
    mail: list[Sealed] = []
    shape = config.unaligned < 1, config.num_weights
    for shift in range(1, len(request.partners)):
        to = others(request.partners, cohort.numbers, shift)
        held = [
            cohort.private.partners[row].told_to(int(other), release)
            for release, row, other in zip(releases, cohort.rows, to, strict=True)
        ]
        mail += [Sealed(message, to) for message in gradient_mail(cohort.numbers, step, held, *shape)]
    return Reply(Stepped(), tuple(mail))


def _came(
    cohort: Cohort[Partnership], partner: Partner, step: int, request: TakeStep | Settle, config: Agreed
) -> list[Release]:
    """What the others released in a step."""
    if partner.clock[1] == step + 1:
        return []  # counted before: asked again
    return releases_to(cohort, partner, step, request.partners, config.unaligned < 1, config.batch_size)


def partner_settle(cohort: Cohort[Partnership], request: Settle, config: Agreed, draws: Draws) -> Reply:
    """Count in what others released in the last step, and tell a digest of one's model."""
    num_steps = int(request.num_steps)
    check_aligned(request.partners, cohort)
    for row in cohort.rows:
        partner = cohort.private.partners[row]
        partner.check_step(num_steps - 1, num_steps, cohort.round_number, config.num_rounds, config.batch_size)
        training = config.training_of(partner, num_steps, cohort.round_number)
        came = _came(cohort, partner, num_steps - 1, request, config)
        partner.count(num_steps - 1, num_steps, came, training, draws)
        show_users(partner, config.vector_noise, draws)
    digests = [cohort.private.partners[row].digest() for row in cohort.rows]
    return Reply(Settled(Ragged(np.arange(len(digests) + 1) * 32, np.concatenate(digests))))
