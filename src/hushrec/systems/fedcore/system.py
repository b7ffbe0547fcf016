"""FedCORE: organisations that train together and serve each other's users under encryption.

Li, Wu, Pan, Ding, Wu, Tan, Xu, Yang, Ming: FedCORE: Federated Learning for Cross-Organization Recommendation
Ecosystem (TKDE 2024). Partners hold ratings of their own users on their own items. Users that several of them have
are aligned; items are not, even where they are the same. A server keeps time and carries sealed mail.

Before the first round (Algorithm 1, steps 1 and 2):
1. Partners align their users (`privacy/alignment.py`). Vectors of common users start from their tokens, so they
   are equal at all partners that have them; so are the layers of NeuCF.
The round is an epoch of K steps (step 3). In each step every partner
2. takes a batch of its ratings and computes gradients (lines 6 to 9);
3. sends those of common users, privatised, to the partners that have the user, and that of the layers to all
   (lines 10 to 14);
4. moves common vectors and layers by the mean of what partners sent, its own by its own gradients (16 to 22).
After the last round (Algorithm 2, `fedcore_inference.py`) each partner asks the others about some visitors:
5. it sends who they are; 6. a partner that knows one returns its encrypted vector, perhaps with noise (Eq. 17);
7. the asking partner computes encrypted scores of its items; 8. the other decrypts them and returns the scores,
   perhaps with noise, or the best places only.

Threat model: partners are honest but curious; each sees what is addressed to it. With `privatizer none`, a
step's gradient of a common user, together with the user's vector, which the receiver has too, gives the item
vector and nearly the rating: see `hushrec audit fedcore`. Whatever the privatiser, rows name their users: over
an epoch a partner learns how many ratings each common user has at the other. Aligned items (`unaligned` below 1)
reveal much more: see ItemGradients. The server sees who takes part, how many batches of ratings and how many
common users each partner has, how many visitors it was served, sizes of mail and a digest of each model, no
content; it can leave partners out. Not protected: the gradients of the layers, which no privatiser touches; what
a rating does to later gradients through the item vectors, which the ledger does not count; against a partner
that lies. In inference visitors are named by plain hashes of their ids, which can be guessed; the partner that
decrypts learns its user's scores of all items of the other, and as many users as a vector has numbers give it
the item vectors (`audit/attacks/model_extraction.py`); the partner that asks gets the user's vector from as many
scores, with its noise if it has some. Noise on scores averages out over items.

Symbols: U = user_factors, V = item_factors, W = layers, gamma = learning_rate, alpha = regularization,
T = num_rounds, epsilon = epsilon, Delta h = 2 clip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.data import PartnerRows
from hushrec.data.holdings import PARTNERS
from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models import neucf
from hushrec.privacy.homomorphic import imported
from hushrec.privacy.ledger import DELTA, Mechanism, calibrated
from hushrec.protocol import (
    About,
    Ask,
    Collect,
    Exposure,
    Handler,
    Numbers,
    Paper,
    RatingRange,
    Result,
    Round,
    Scorer,
    Spending,
    System,
    kept,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check_bounds, setting
from hushrec.systems.fedcore.alignment import Align, Aligned, Identities, align_partners, partner_align
from hushrec.systems.fedcore.answer_privacy import UNCLIPPED, VectorNoise, answer_facts, answer_ledgers
from hushrec.systems.fedcore.budget import Budget, Unit
from hushrec.systems.fedcore.encrypted_scores import MOST_FACTORS
from hushrec.systems.fedcore.facts import facts_of, promises_of, warnings_of
from hushrec.systems.fedcore.holds import holds_of
from hushrec.systems.fedcore.inference import MAIL, Serve, Served, partner_serve, serve_visitors
from hushrec.systems.fedcore.laplace import scale_of
from hushrec.systems.fedcore.mail import inbox_of, inbox_of_gradients, still_here
from hushrec.systems.fedcore.messages import (
    ItemGradients,
    LayerGradients,
    Settle,
    Settled,
    Stepped,
    TakeStep,
    UserGradients,
)
from hushrec.systems.fedcore.model import own_model, partner_model
from hushrec.systems.fedcore.partners import Agreement, Partner, Partnership, Privatizer, Training
from hushrec.systems.fedcore.set_intersection import TOKEN_BYTES
from hushrec.systems.fedcore.steps import partner_settle, partner_step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of FedCORE."""

    model: Literal["pmf", "neucf"] = setting("pmf", "pmf, or neucf with its layers")
    num_rounds: int = setting(50, "epochs", "[1, inf)", search=Between(1, 100))
    num_factors: int = setting(
        0,
        "length of vectors; 0: 20 for pmf, 16 in each branch of neucf",
        "[0, inf)",
        search=OneOf((5, 10, 20, 40)),
    )
    # DEVIATION: the paper says batches of 256; 128 is what its authors' code has, and what its numbers fit.
    batch_size: int = setting(128, "ratings in a step", "[1, inf)")
    learning_rate: float = setting(
        0.0, "of the first round; 0: 0.4 for pmf, 0.15 for neucf", "[0, inf)", search=Between(0.01, 1.0, log=True)
    )
    decay: float = setting(0.0, "of the learning rate after a round; 0: 1 for pmf, 0.9 for neucf", "[0, 1]")
    # DEVIATION: Eq. 7 has a penalty; the paper gives no alpha and its authors' code has none, so 0 is the default.
    regularization: float = setting(
        0.0, "alpha, the weight of the penalty in Eqs. 7 and 9 (pmf)", "[0, inf)", search=Between(0.0, 0.1)
    )
    # DEVIATION: the paper's hidden layer has ReLU, which cannot be computed under CKKS: Algorithm 2 could not be
    # run with it. The default is a polynomial of degree 2.
    activation: neucf.Activation = setting("quadratic", "of neucf; relu, the paper's, cannot be encrypted")
    privatizer: Literal["none", "dp", "average", "dp+average"] = setting("none", "of gradients for others")
    epsilon: float = setting(15.0, "of one released row, with dp", "(0, inf)")
    epsilon_total: float = setting(
        0.0, "of all released rows of a run that a rating or a user is in; 0: as many times epsilon", "[0, inf)"
    )
    delta: float = setting(DELTA, "of epsilon_total, and of epsilon with gaussian noise", "(0, 1)")
    protects: Unit = setting("rating", "what epsilon_total is of: a rating, or all that a user has at a partner")
    mechanism: Literal["auto", "laplace", "gaussian"] = setting(
        "auto", "noise, with dp; auto: laplace, as published, but gaussian with epsilon_total"
    )
    # Noise grows with the clip: so much of it as a budget needs would make 0.05 diverge.
    clip: float = setting(
        0.0, "of a row's l1 norm (gaussian: l2), with dp; 0: 0.05, but 0.002 with epsilon_total", "[0, inf)"
    )
    alignment: Literal["psi", "keyed-hash"] = setting(
        "psi", "how common users are found; keyed-hash: its key is public, whoever gets the mail can test ids"
    )
    unaligned: float = setting(1.0, "share of the common items that stay unaligned", "[0, 1]")
    inference: Literal["auto", "ckks", "none"] = setting(
        "auto", "whether visitors are served in the end; auto: ckks, but none for neucf with relu or epsilon_total"
    )
    num_asked: int = setting(20, "visitors that each partner asks about", "[0, inf)")
    query_budget: int = setting(0, "visitors that a partner answers to another; 0: all", "[0, inf)")
    top_k: int = setting(0, "answer with the places of so many best items only; 0: with scores", "[0, inf)")
    inference_noise: float = setting(
        0.0, "scale of Laplace noise on vectors of visitors, which promises nothing: none is clipped", "[0, inf)"
    )
    inference_epsilon: float = setting(
        0.0, "of the vector of a visitor, clipped and with noise (Eq. 17); 0: without", "[0, inf)"
    )
    # DEVIATION: the paper clips gradients and visitors' vectors alike, to 0.05; learned vectors have an l1 norm of
    # about 9, so that nothing of them would be left.
    inference_clip: float = setting(10.0, "of a vector's l1 norm, with inference_epsilon", "(0, inf)")
    answer_noise: float = setting(0.0, "scale of Laplace noise on scores that are returned", "[0, inf)")
    prior_seed: int = setting(0, "public: of what all partners start alike", "[0, inf)")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.inference == "ckks" and self.model == "neucf" and self.activation == "relu":
            raise HushrecError(
                f"ReLU cannot be encrypted; use {option('activation', 'quadratic')}, or "
                f"{option('inference', 'none')}"
            )
        if self.inference_noise and self.inference_epsilon:
            raise HushrecError(
                f"noise on vectors is set twice; use {option('inference_epsilon')} or {option('inference_noise')}"
            )
        if self.epsilon_total and (self.model == "neucf" or self.inference == "ckks"):
            raise HushrecError(
                f"{option('epsilon_total', self.epsilon_total)} covers no gradients of layers nor answers about "
                f"visitors; use {option('model', 'pmf')} and {option('inference', 'none')}"
            )
        if self.serves_visitors and self.width + (self.model == "neucf") > MOST_FACTORS:
            raise HushrecError(
                f"{option('num_factors', self.num_factors)} is too much for encrypted scores; use less, or "
                f"{option('inference', 'none')}"
            )

    @property
    def serves_visitors(self) -> bool:
        """Whether there is an inference phase."""
        can = (self.model == "pmf" or self.activation == "quadratic") and not self.epsilon_total
        return bool(self.num_asked) and can and self.inference != "none"

    @property
    def width(self) -> int:
        """How many numbers a user's or an item's vector has."""
        return (self.num_factors or 20) if self.model == "pmf" else 2 * (self.num_factors or 16)

    @property
    def num_weights(self) -> int:
        """How many numbers the layers have together; 0 without layers."""
        return 0 if self.model == "pmf" else neucf.num_weights(self.width // 2)

    @property
    def agreement(self) -> Agreement:
        """What partners agree on for a whole run, training apart."""
        return Agreement(
            self.model, self.activation, self.width, self.alignment, self.unaligned, self.prior_seed,
            self.num_asked, self.query_budget, self.top_k, self.answer_noise,
        )  # fmt: skip

    @property
    def vector_noise(self) -> VectorNoise:
        """What is done to vectors before visitors are served with them."""
        if self.inference_epsilon:
            return VectorNoise(self.inference_clip, scale_of(self.inference_clip, self.inference_epsilon))
        return VectorNoise(UNCLIPPED, self.inference_noise)

    @property
    def budget(self) -> Budget:
        """How much gradients may tell."""
        epsilons = self.epsilon, self.epsilon_total, self.delta
        usual: Mechanism = "gaussian" if self.epsilon_total else "laplace"
        mechanism = usual if self.mechanism == "auto" else self.mechanism
        return Budget(mechanism, self.protects, *epsilons, self.num_rounds, self.batch_size)

    @property
    def row_clip(self) -> float:
        """The largest norm of a released row."""
        return self.clip or (0.002 if self.epsilon_total else 0.05)

    @property
    def has_noise(self) -> bool:
        """Whether gradients get noise: a total budget needs it, whatever else is done."""
        return self.privatizer.startswith("dp") or bool(self.epsilon_total)

    @property
    def is_averaged(self) -> bool:
        """Whether a user's gradients of a batch are averaged; a budget is for fewer rows so."""
        return "average" in self.privatizer or (self.privatizer == "none" and bool(self.epsilon_total))

    def training_of(self, partner: Partner, num_steps: int, round_number: int) -> Training:
        """How a partner trains in a round of so many steps."""
        training = self.training(round_number)
        return training._replace(privatizer=self.budget.privatizer(partner, num_steps, training.privatizer))

    def training(self, round_number: int) -> Training:
        """How partners train in a round, but for noise that depends on how many rows they release."""
        rate, decay = (0.4, 1.0) if self.model == "pmf" else (0.15, 0.9)
        learning_rate = (self.learning_rate or rate) * (self.decay or decay) ** (round_number - 1)
        # DEVIATION: the paper moves a vector by the mean of its single gradients; its authors' code, and its
        # learning rates, by the gradient of the batch's mean squared error, in which each rating counts 2/B. All
        # of Eq. 9 is scaled by that, the penalty too, so alpha weighs against the error as in Eq. 7.
        return Training(
            self.model, self.activation, self.batch_size, learning_rate, self.regularization,
            Privatizer(
                self.is_averaged, self.row_clip if self.has_noise else 0.0, scale_of(self.row_clip, self.epsilon)
            ),
        )  # fmt: skip


# --- The server ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerState:
    """What the server knows: who takes part, and a digest of each partner's model."""

    is_present: NDArray[np.bool_] = kept()
    num_steps: NDArray[np.int64] = kept()  # of a round
    digests: NDArray[np.uint8] = kept(result=True)  # of each partner's model after the last round it took part in


def start(num_partners: int, _num_items: int, _config: Config, _draws: Draws) -> ServerState:
    """The server before the first round."""
    return ServerState(
        np.ones(num_partners, np.bool_), np.array(0, np.int64), np.zeros((num_partners, 32), np.uint8)
    )


def server_round(state: ServerState, round_number: int, config: Config, _draws: Draws) -> Round[ServerState]:
    """One epoch, step after step; the first begins with the alignment."""
    partners = np.flatnonzero(state.is_present).astype(np.int32)
    if round_number == 1:
        partners, num_steps = yield from align_partners(partners, len(state.is_present), config.alignment)
        state = replace(state, num_steps=np.array(num_steps, np.int64))
    for step in range(int(state.num_steps)):
        answer = yield Ask(partners, TakeStep(np.array(step), state.num_steps, partners), Collect())
        partners = still_here(partners, answer, len(state.is_present))
    settled = Collect()
    answer = yield Ask(partners, Settle(state.num_steps, partners), settled)
    partners = still_here(partners, answer, len(state.is_present))
    digests = state.digests.copy()
    for numbers, message in settled.batches:
        if (message.digest.lengths != digests.shape[1]).any():
            raise HushrecError("a partner's digest has not 32 bytes; all partners need the same hushrec")
        digests[numbers] = message.digest.values.reshape(len(numbers), -1)
    if round_number == config.num_rounds and config.serves_visitors and len(partners) > 1:
        partners = yield from serve_visitors(partners)
    is_present = np.zeros_like(state.is_present)
    is_present[partners] = True
    return replace(state, is_present=is_present, digests=digests)


# --- The partners ----------------------------------------------------------------------------------------


def enrol(numbers: Numbers, rows: PartnerRows, _num_items: int, config: Config, _draws: Draws) -> Partnership:
    """The partners before the first round, with their ratings."""
    if config.serves_visitors:
        imported(
            "tenseal.sealapi",
            f"encrypted inference ({option('inference', 'none')} does without it)",
            "TenSEAL",
            "he",
        )
    return Partnership.enrol(numbers, rows, config.width, config.num_weights, config.num_asked)


def model(_state: ServerState, private: Partnership, config: Config, rating_range: RatingRange) -> Scorer:
    """All partners' vectors; every visitor is served with the plain vector of a partner that knows it.

    So accuracy for visitors is that of an inference phase that answers about all of them, with scores.
    """
    return partner_model(private, config.agreement, rating_range)


def release_bytes(private: Partnership, config: Config) -> NDArray[np.int64]:
    """What a partner sends in a step, at most."""
    return np.full(len(private.numbers), 4 * (config.batch_size * (config.width + 1) + config.num_weights))


def promises(private: Partnership, config: Config) -> Mapping[str, float]:
    """What noise promises, of one release and of a run."""
    ledgers = answer_ledgers(private, config.inference_epsilon, config.answer_noise)
    if not config.has_noise or config.num_weights:  # the layers' gradients have no noise at all
        return answer_facts(ledgers)
    return {**promises_of(private, config.budget, config.is_averaged), **answer_facts(ledgers)}


def spends(_private: Partnership | None, config: Config) -> Spending | None:
    """What `epsilon_total` promises of a run; epsilon of one release alone bounds nothing, for there are many."""
    if not config.epsilon_total:
        return None
    is_gaussian = config.budget.mechanism == "gaussian"
    total = config.epsilon_total, config.delta, config.protects
    multiplier = calibrated("gaussian", 1, *total).multiplier if is_gaussian else 0.0
    return Spending(*total, multiplier)


def warnings(config: Config) -> tuple[str, ...]:
    """What of the gradients goes out without noise."""
    noise = config.has_noise, bool(config.num_weights), config.epsilon_total
    return warnings_of(config.privatizer, config.protects, *noise)


def holds(private: Partnership, config: Config, number: int) -> Mapping[str, NDArray[Any]]:
    """What a partner itself has, with the step size of the round."""
    own = holds_of(private, number)
    learning_rate = config.training(int(private.clock[:, 0].max())).learning_rate
    return {**own, "learning_rate": np.array(learning_rate)}


PAPER = Paper(
    title="FedCORE: Federated Learning for Cross-Organization Recommendation Ecosystem",
    authors=(
        "Zhitao Li, Xueyang Wu, Weike Pan, Youlong Ding, Zeheng Wu, Shengqi Tan, Qian Xu, Qiang Yang, Zhong Ming"
    ),
    venue="TKDE",
    year=2024,
)

_GRADIENTS = (UserGradients, ItemGradients, LayerGradients)

SYSTEM = System(
    about=About(
        name="fedcore",
        title="FedCORE: organisations train together and serve each other's users",
        paper=PAPER,
        class_name="FedCORE",
        repairs=({"epsilon_total": 8.0},),
        protected=(
            Exposure(
                "noise bounds what gradients tell other partners; who their common users are, they know",
                {"epsilon_total": "(0, 8]", "delta": "(0, 1e-5]", "alignment": "psi"},
            ),
        ),
        exposes=(
            Exposure(
                "other partners may read ratings or names: noise or hashes are too weak",
                {"epsilon_total": "(0, inf)"},
            ),
            Exposure("other partners read most ratings of common users"),
        ),
        audited_rounds=50,
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        small={
            "model": "neucf", "unaligned": 0.5, "privatizer": "dp+average", "batch_size": 16, "inference": "none",
        },
        variants=(
            {"model": "pmf", "privatizer": "none", "unaligned": 1.0},
            {"activation": "quadratic", "inference": "ckks", "num_asked": 2, "num_rounds": 1},
        ),
        learns_with={"batch_size": 16, "learning_rate": 0.4, "inference": "none"},
        builds_on=(
            "hushrec.experiments.fedcore_tables", "hushrec.experiments.fedcore_probes", "hushrec.data.dealing",
        ),
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=PARTNERS,
    messages=(
        Align, Identities, Aligned, TakeStep, UserGradients, ItemGradients, LayerGradients, Stepped, Settle,
        Settled, Serve, *MAIL, Served,
    ),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={
        Align: Handler(partner_align, reads=(Identities,)),
        TakeStep: Handler(partner_step, reads=_GRADIENTS),
        Settle: Handler(partner_settle, reads=_GRADIENTS),
        Serve: Handler(partner_serve, reads=tuple(MAIL)),
    },
    reply_bytes=release_bytes,
    result=Result(
        model, party=lambda private, config, limits: own_model(private, config.agreement, limits),
        facts=lambda private, config: facts_of(private, config.agreement), promises=promises, spends=spends,
        warnings=warnings,
        holds=holds,
    ),
    inboxes={
        Identities: inbox_of(TOKEN_BYTES),
        **dict.fromkeys((UserGradients, ItemGradients, LayerGradients), inbox_of_gradients),
        **{kind: inbox_of(width) for kind, width in MAIL.items()},
    },
)  # fmt: skip
