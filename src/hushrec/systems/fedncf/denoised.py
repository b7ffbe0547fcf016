"""FedNCF with denoisers: what is asked and answered so that the server does not see what single clients learned.

The steps of items are hidden among those of virtual ones, which denoisers take out again. The steps of layers are
hidden behind masks, which denoisers take out again. What is left has the same bits as without either.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import FaultyPartyError, HushrecError
from hushrec.privacy.denoising import AssignedSum, Assignment, DenoiserTotal, NoiseSums, assign
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.masking import MaskedSum, MaskSums, as_ragged, draw_masks, fixed_point
from hushrec.protocol import (
    Ask,
    Cohort,
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
from hushrec.systems.fedncf.clients import Sent, hide, learn, weighted_layers
from hushrec.systems.fedncf.network import Floats, NcfClients, Training


class DenoisedConfig(Protocol):
    """What denoising needs to know of a config."""

    @property
    def rho(self) -> int:
        """Virtual clients that each client plays."""
        ...

    @property
    def denoisers(self) -> int:
        """How many denoisers a round has."""
        ...

    @property
    def num_negatives(self) -> int:
        """Negatives per positive."""
        ...

    def training(self, round_number: int) -> Training:
        """What clients train, and how."""
        ...


# --- Messages ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelToHide(Message):
    """Reveals: the server's model, and the client's denoiser."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Floats = shared(np.float32, 2)
    layers: Floats = shared(np.float32)
    denoiser: Numbers = each(np.int32, low=0)


@dataclass(frozen=True)
class ListedSteps(Message):
    """Reveals: a list with the client's items, drawn ones and virtual ones of both kinds, and their steps."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Noise(Message):
    """Reveals: virtual items of some client and their steps, without its name."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class SendMaskedLayers(Message):
    """Reveals: the client's denoiser."""

    sender, receiver = Role.SERVER, Role.CLIENT
    denoiser: Numbers = each(np.int32, low=0)


@dataclass(frozen=True)
class MaskedLayers(Message):
    """Reveals: nothing without the masks, whose sum the denoiser tells."""

    sender, receiver = Role.CLIENT, Role.SERVER
    words: Ragged = ragged(np.int64)  # fixed point, modulo 2^64: the client's weight, and it times each step


@dataclass(frozen=True)
class LayerMasks(Message):
    """Reveals: nothing without what they were added to."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    words: Ragged = ragged(np.int64)


@dataclass(frozen=True)
class DenoiserModel(Message):
    """Reveals: the server's model."""

    sender, receiver = Role.SERVER, Role.DENOISER
    item_factors: Floats = shared(np.float32, 2)
    layers: Floats = shared(np.float32)


@dataclass(frozen=True)
class DenoisingSums(Message):
    """Reveals: sums of noise less the denoiser's own steps, and counts; one below zero is an item it listed.

    Where no noise covers such an item, its step shows as it is, and with it whether the item is the denoiser's
    own.
    """

    sender, receiver = Role.DENOISER, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    sums: Ragged = ragged(np.int64, 2)  # 64-bit fixed point
    counts: Ragged = ragged(np.int32)


@dataclass(frozen=True)
class SendMaskSums(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.DENOISER


@dataclass(frozen=True)
class SummedMasks(Message):
    """Reveals: with what came from the denoiser's clients, the sum of their layers and its own.

    Two of them that hold the masks of different clients differ by what tells these clients' layers.
    """

    sender, receiver = Role.DENOISER, Role.SERVER
    words: Ragged = ragged(np.int64)  # masks less the denoiser's own


MESSAGES = (
    ModelToHide, ListedSteps, Noise, SendMaskedLayers, MaskedLayers, LayerMasks,
    DenoiserModel, DenoisingSums, SendMaskSums, SummedMasks,
)  # fmt: skip


# --- The server --------------------------------------------------------------------------------------------


class Totals(NamedTuple):
    """What the server has when noise and masks are taken out."""

    items: ExactSum  # steps of real samples only, counted by who really listed an item
    layers: NDArray[np.float64]  # the sum of weights, and of weighted steps
    deviation: float = 0.0  # of noise in the layers'


def denoised_totals(
    sent: Sent, participants: Numbers, round_number: int, num_denoisers: int, draws: Draws
) -> Round[Totals]:
    """Collect hidden steps, noise, masked layers and masks, and take out what is not real.

    If a denoiser is lost, all of it begins again without it and without the clients assigned to it.

    DEVIATION: FedRec++ has the same denoisers in all rounds, and one of them always takes part. Here they are
    drawn from a round's participants, so that who takes part does not depend on how many denoisers there are.
    """
    generator = draws.generator("denoisers", round_number)
    chosen = np.sort(generator.choice(participants, num_denoisers, replace=False))
    assignment = assign(participants, chosen, round_number, draws)
    while True:
        totals, lost = yield from _attempt(sent, assignment, len(participants))
        if not len(lost):
            return totals
        assignment = assignment.without(lost)


def _attempt(sent: Sent, assignment: Assignment, num_participants: int) -> Round[tuple[Totals, Numbers]]:
    """What came, and who was lost: a denoiser among them means that it is of no use."""
    # Each client's rows may be in both: in the uploads, and in what is taken out.
    total = ExactSum.zeros(sent.item_factors.shape, num_summands=2 * num_participants)
    items = AssignedSum(total, assignment)
    noise = DenoiserTotal.of(items)
    layers = MaskedSum.zeros(len(sent.layers) + 1)
    masks = layers.fork()
    answer = yield Ask(assignment.ordinary, ModelToHide(*sent, assignment.denoiser_of), items)
    listed = assignment.without(answer.lost)
    answer_of_layers = yield Ask(listed.ordinary, SendMaskedLayers(listed.denoiser_of), layers)
    masked = listed.without(answer_of_layers.lost)
    lost = (yield Ask(listed.denoisers, DenoiserModel(*sent), noise)).lost
    if not len(lost):
        # One whose clients are all lost by now has nothing to hide its own layers among.
        lost = (yield Ask(masked.denoisers, SendMaskSums(), masks)).lost
    if len(lost):
        return Totals(total, layers.without(masks)), np.union1d(lost, answer.lost)
    total.subtract(noise.total)
    if total.counts.min() < 0:
        told = "these denoisers together take out more than came in; leave them out"
        raise FaultyPartyError(told, listed.denoisers.tolist())
    return Totals(total, layers.without(masks)), lost


# --- Clients and denoisers ---------------------------------------------------------------------------------


def client_update(cohort: Cohort[NcfClients], request: ModelToHide, config: DenoisedConfig, draws: Draws) -> Reply:
    """Learn, upload real and virtual steps, and send the virtual ones to the denoiser."""
    sent = Sent(request.item_factors, request.layers)
    training = config.training(cohort.round_number)
    real = learn(cohort, sent, config.num_negatives, training, draws)
    shown, noise = hide(cohort, sent, real, config.rho, training, draws)
    mail = Sealed(Noise(noise.items, noise.gradients), request.denoiser)
    return Reply(ListedSteps(shown.items, shown.gradients), (mail,))


def client_layers(
    cohort: Cohort[NcfClients], request: SendMaskedLayers, config: DenoisedConfig, draws: Draws
) -> Reply:
    """Upload the weighted steps of the layers behind a mask, and send the mask to the denoiser."""
    words = fixed_point(cohort.numbers, weighted_layers(cohort.private, cohort.rows, config.num_negatives))
    masks = draw_masks(draws.key("layer-masks"), cohort.numbers, cohort.round_number, words)
    mail = Sealed(LayerMasks(as_ragged(masks)), request.denoiser)
    return Reply(MaskedLayers(as_ragged(words + masks)), (mail,))


def denoiser_update(
    cohort: Cohort[NcfClients], request: DenoiserModel, config: DenoisedConfig, draws: Draws
) -> Reply:
    """Learn from real samples alone, and send the sum of noise less the own steps."""
    sent = Sent(request.item_factors, request.layers)
    own = learn(cohort, sent, config.num_negatives, config.training(cohort.round_number), draws)
    inbox = cohort.inboxes.get(Noise)
    if not isinstance(inbox, NoiseSums) or not inbox.has_mail(cohort.numbers).all():
        raise HushrecError("a denoiser got no noise and would show its own steps; ask it after its clients")
    return Reply(DenoisingSums(*inbox.release(cohort.numbers, own)))


def denoiser_layers(
    cohort: Cohort[NcfClients], _request: SendMaskSums, config: DenoisedConfig, _draws: Draws
) -> Reply:
    """Send the sum of masks less the own weighted steps of the layers."""
    inbox = cohort.inboxes.get(LayerMasks)
    if not isinstance(inbox, MaskSums) or not inbox.has_mail(cohort.numbers):
        raise HushrecError("a denoiser got no masks and would show its own layers; ask it after its clients")
    own = fixed_point(cohort.numbers, weighted_layers(cohort.private, cohort.rows, config.num_negatives))
    return Reply(SummedMasks(as_ragged(inbox.release(cohort.numbers, own))))


def noise_inbox(clients: NcfClients, config: DenoisedConfig) -> NoiseSums:
    """Where noise is added up as it arrives."""
    return NoiseSums(clients.num_items, clients.user_factors.shape[1], config.denoisers)


def mask_inbox(clients: NcfClients, _config: DenoisedConfig) -> MaskSums:
    """Where masks are added up as they arrive."""
    return MaskSums(len(clients.layers) + 1)
