"""SDCF denoised: SDCF whose unrated items' noise is taken out again by FedRec++'s denoisers.

Liang, Pan, Ming: FedRec++ (AAAI 2021), section "Discussions": the gradients of I''_u in Eq. 10 are known to their
owner, so they can go to a denoiser like FedRec++'s noise.

The round: as FedRec++, with SDCF's choice of items and SDCF's gradients. The Langevin noise on rated items stays.

Threat model: as FedRec++; the Langevin noise on rated items is as in SDCF. A denoiser lists all its rated items,
without randomised response.

Symbols: as in `sdcf` and `fedrec_plus_plus`.
"""

from dataclasses import dataclass

import numpy as np

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.rating_clients import RatingClients
from hushrec.privacy.denoising import Assigning, check_denoisers
from hushrec.privacy.held_items import held_items
from hushrec.privacy.robust_sum import HeldSums
from hushrec.protocol import About, Cohort, Exposure, Handler, Reply, Result, Round, System
from hushrec.settings import Between, setting
from hushrec.systems import fedrec, sdcf
from hushrec.systems import fedrec_plus_plus as plus_plus
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, ItemFactors, Noise, ServerState


@dataclass(frozen=True, kw_only=True)
class Config(HeldSums, sdcf.Config):
    """Settings of SDCF denoised."""

    denoisers: int = setting(
        1,
        "clients that collect noise (eta); 0 leaves the noise in",
        "[0, inf)",
        search=Between(0, 8, only_if_asked=True),
    )
    assignment: Assigning = setting("dealt", "how clients get their denoisers: dealt evenly, or each at random")


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    check_denoisers(config.denoisers, num_clients)
    return plus_plus.start_denoised(num_clients, num_items, config, draws)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    outcome = yield from plus_plus.denoised_sum(state, round_number, config, draws)
    item_factors = (state.item_factors - outcome.total.to_float()).astype(np.float32)
    item_factors = held_items(item_factors, outcome.total.counts, config)
    state = outcome.settled(state, item_factors, round_number, draws)
    if round_number == config.num_rounds:
        yield from fedrec.settle(state.item_factors, state.counted_round)
    return state


def client_update(cohort: Cohort[RatingClients], request: ItemFactors, config: Config, draws: Draws) -> Reply:
    """An ordinary client: report items, upload their gradients, send those of unrated items as noise."""
    listing, trained = sdcf.train(cohort, request.item_factors, request.counted_round, True, config, draws)
    gradients, noise = fedrec.upload(listing, trained, config), plus_plus.noise_of(trained, config)
    return plus_plus.reply(gradients, noise, request.denoiser, config)


def denoiser_update(
    cohort: Cohort[RatingClients], request: DenoiserFactors, config: Config, draws: Draws
) -> Reply:
    """A denoiser: train on all its rated items, send the sum of noise less its own gradients."""
    own = sdcf.train(cohort, request.item_factors, request.counted_round, False, config, draws)
    return plus_plus.released(cohort, fedrec.upload(*own, config))


SYSTEM: System[Config, UserRows, ServerState, RatingClients] = System(
    about=About(
        name="sdcf-denoised",
        title="SDCF denoised: SDCF with FedRec++'s denoisers",
        paper=plus_plus.PAPER,
        class_name="SDCFDenoised",
        exposes=(
            Exposure("the server tells most items of a person, and with a denoiser's help every one of them"),
        ),
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        small={**sdcf.SYSTEM.about.small, "denoisers": 3},
        variants=({"robust": "held"},),
        learns_with={"learning_rate": 0.01, "decay": 1.0, "denoisers": 3},
        builds_on=("hushrec.systems.sdcf", "hushrec.systems.fedrec_plus_plus", "hushrec.privacy.denoising"),
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(*plus_plus.DENOISING_MESSAGES, fedrec.Settle, fedrec.Settled),
    start=start,
    enrol=fedrec.enrol,
    round=server_round,
    handlers={
        ItemFactors: Handler(client_update),
        DenoiserFactors: Handler(denoiser_update, reads=(Noise,)),
        fedrec.Settle: Handler(fedrec.client_settle),
    },
    reply_bytes=sdcf.upload_bytes,
    result=Result(sdcf.model, party=sdcf.own_model),
    inboxes={Noise: plus_plus.open_inbox},
    appoints=plus_plus.appointed,
)
