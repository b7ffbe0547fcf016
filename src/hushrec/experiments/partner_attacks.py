"""What a partner finds out: attacks on FedCORE's gradients and answers, scored against the truth.

The attacker is partner b, the second one. It has what a sent it (rows of common users, layers' gradients), its own
copies of common users' vectors, its own item vectors and ratings. All else here is truth, for scoring.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.attacks.gradient_inversion import invert_blind, invert_known_errors, priors_from_own_items
from hushrec.attacks.gradient_matching import match_gradients
from hushrec.attacks.item_identification import twin_ranks
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models import neucf
from hushrec.models.co_training import Rows, pmf_gradients
from hushrec.models.neucf_scoring import predict
from hushrec.models.partnership import Partner, Partnership
from hushrec.privacy.laplace import private_rows, scale_of

Floats = NDArray[np.float64]

NUM_USERS, NUM_ITEMS = 100, 5  # of the paper's tables: users, and items of each
_QUADRATIC = (float(neucf.SQUARE), float(neucf.SLOPE), float(neucf.OFFSET))
_BATCH = 128  # ratings of the batch that a row is taken from


@dataclass(frozen=True)
class Sample:
    """Ratings of common users at partner a, and what b receives about them."""

    owners: NDArray[np.int64]  # the user of each rating, 0 to NUM_USERS - 1
    errors: Floats  # prediction less rating (truth)
    ratings: NDArray[np.float32]  # (truth)
    vectors: NDArray[np.float32]  # of the items (truth)
    twins: NDArray[np.int64]  # of the items, among b's (truth)
    rows: NDArray[np.float32]  # released gradients: one per rating, or one per user if averaged
    row_of: NDArray[np.int64]  # of each rating
    layer_rows: NDArray[np.float32]  # with NeuCF, the layers' gradient beside each row
    user_vectors: NDArray[np.float32]  # b's own copy, of each user


def twins_of(train: Interactions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items that a and b both have, by their numbers at each."""
    rows = train.by_partner()
    ids = [rows.item_ids[rows.item_starts[place] : rows.item_starts[place + 1]] for place in (0, 1)]
    _, at_a, at_b = np.intersect1d(ids[0], ids[1], return_indices=True)
    return at_a, at_b


def sample(train: Interactions, private: Partnership, config: Any, privatizer: str, draws: Draws) -> Sample:
    """What a would release of five ratings of each of 100 common users, at the vectors as they are now."""
    one, other = private.partners[:2]
    twin = np.full(len(one.item_factors), -1)
    at_a, at_b = twins_of(train)
    twin[at_a] = at_b
    rng = draws.generator(f"attacked-{privatizer}")
    usable = np.flatnonzero((one.common_users[one.users] >= 0) & (twin[one.items] >= 0))
    counts = np.bincount(one.users[usable], minlength=len(one.user_factors))
    users = rng.permutation(np.flatnonzero(counts >= NUM_ITEMS))[:NUM_USERS]
    if not len(users):
        raise HushrecError(f"no common user has {NUM_ITEMS} ratings of common items; nothing to attack")
    shuffled = rng.permutation(usable)
    chosen = [shuffled[one.users[shuffled] == user][:NUM_ITEMS] for user in users]
    places, owners = np.concatenate(chosen), np.repeat(np.arange(len(users)), NUM_ITEMS)
    rows, layer_rows = _gradients(one, places, config)
    row_of = np.arange(len(places))
    if "average" in privatizer:
        rows = rows.reshape(len(users), NUM_ITEMS, -1).mean(axis=1)
        layer_rows = layer_rows.reshape(len(users), NUM_ITEMS, -1).mean(axis=1)
        row_of = owners
    if privatizer.startswith("dp"):
        scale, key = scale_of(config.clip, config.epsilon), draws.key("attacked-noise")
        rows = private_rows(np.ascontiguousarray(rows), config.clip, scale, key, 0, 0, 0)
    place_at_b = np.empty(int(other.common_users.max()) + 1, np.int64)
    place_at_b[other.common_users[other.common_users >= 0]] = np.flatnonzero(other.common_users >= 0)
    return Sample(
        owners, _predictions(one, places, config) - one.ratings[places], one.ratings[places],
        one.item_factors[one.items[places]], twin[one.items[places]], rows, row_of, layer_rows,
        other.user_factors[place_at_b[one.common_users[users]]],
    )  # fmt: skip


def _gradients(
    partner: Partner, places: NDArray[np.int64], config: Any
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows of single ratings in a batch of 128, and the layers' gradient of each."""
    rows, unused = np.empty((2, len(places), partner.user_factors.shape[1]), np.float32)
    users, items, ratings = partner.users[places], partner.items[places], partner.ratings[places]
    if config.model == "pmf":
        everything, regularization = np.arange(len(places)), config.regularization
        pmf_gradients(
            partner.user_factors, partner.item_factors, users, items, ratings, everything, regularization,
            rows, unused,
        )  # fmt: skip
        return rows * np.float32(len(places) / _BATCH), np.empty((len(places), 0), np.float32)
    layers = np.empty((len(places), len(partner.layers)), np.float32)
    for place in range(len(places)):
        only = slice(place, place + 1)
        out = neucf.Gradients(rows[only], unused[only], layers[place])
        neucf.batch_gradients(
            partner.user_factors, partner.item_factors, partner.layers, users[only], items[only], ratings[only],
            config.activation, out,
        )  # fmt: skip
    return rows / np.float32(_BATCH), layers / np.float32(_BATCH)


def _predictions(partner: Partner, places: NDArray[np.int64], config: Any) -> Floats:
    users, items = partner.users[places], partner.items[places]
    if config.model == "pmf":
        products: Floats = np.sum(partner.user_factors[users] * partner.item_factors[items], axis=1, dtype=float)
        return products
    return predict(
        partner.user_factors, partner.item_factors, partner.layers, users, items, config.activation
    ).astype(np.float64)


class Recovered(NamedTuple):
    """Item vectors and ratings as an attack recovers them, a row per rating."""

    vectors: Floats
    ratings: Floats | None


def recovered(found: Sample, private: Partnership, config: Any, draws: Draws) -> dict[str, Recovered]:
    """What attacks find, by their names: the paper's attack (""), and for PMF a blind one."""
    other, is_single = private.partners[1], len(found.rows) == len(found.row_of)
    users = found.user_vectors[found.owners] if is_single else found.user_vectors
    if config.model == "neucf":
        matched = match_gradients(
            found.rows, found.layer_rows, users, other.layers, draws.generator("gradient-matching"),
            num_ratings=1 if is_single else NUM_ITEMS, batch_size=_BATCH,
            quadratic=_QUADRATIC if config.activation == "quadratic" else None,
        )  # fmt: skip
        return {"": Recovered(matched.vectors.reshape(len(found.row_of), -1), matched.ratings.ravel())}
    known = invert_known_errors(found.rows, found.errors, found.row_of, _BATCH)
    counts = np.bincount(other.items, minlength=len(other.item_factors))
    priors = priors_from_own_items(found.rows, users, other.item_factors, counts)
    blind = invert_blind(found.rows, users, np.unique(other.ratings), priors, _BATCH)
    return {
        "": Recovered(known, None),
        "blind ": Recovered(blind.vectors[found.row_of], blind.ratings[found.row_of]),
    }


def cosines(one: NDArray[Any], other: NDArray[Any]) -> Floats:
    """Of rows with each other; 0 where one is zero."""
    left, right = one.astype(np.float64), other.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    found: Floats = np.divide(np.sum(left * right, axis=1), norms, out=np.zeros(len(left)), where=norms > 0)
    return found


def similarity(
    train: Interactions, private: Partnership, config: Any, privatizer: str, draws: Draws
) -> dict[str, float]:
    """The columns of the paper's tables of cosines, for the attack of the paper, and for the blind one (PMF)."""
    found = sample(train, private, config, privatizer, draws)
    # The paper measures NeuCF on the half of its dense branch.
    part = slice(None) if config.model == "pmf" else slice(found.vectors.shape[1] // 2, None)
    truth, twins = found.vectors[:, part], private.partners[1].item_factors[found.twins][:, part]
    metrics: dict[str, float] = {}
    for name, attack in recovered(found, private, config, draws).items():
        half = attack.vectors[:, part]
        metrics[f"{name}Sim(1)"] = float(cosines(half, truth).mean())
        metrics[f"{name}Sim(2)"] = float(cosines(half, twins).mean())
        metrics[f"{name}Sim(3)"] = float(cosines(truth, twins).mean())
        errors = _predicted(found, attack.vectors, private.partners[1], config, train) - found.ratings
        metrics[f"{name}RMSE"] = float(np.sqrt(np.mean(errors**2)))
    metrics.pop("blind Sim(3)", None)
    return metrics


def _predicted(found: Sample, vectors: Floats, other: Partner, config: Any, train: Interactions) -> Floats:
    """What the recovered vectors predict for their users."""
    scores: Floats
    users = found.user_vectors[found.owners]
    if config.model == "pmf":
        scores = np.sum(users * vectors, axis=1, dtype=np.float64)
    else:
        numbers = np.arange(len(vectors), dtype=np.int32)
        items = np.clip(vectors, -1e6, 1e6).astype(np.float32)
        scores = predict(users, items, other.layers, numbers, numbers, config.activation).astype(np.float64)
    low, high = train.rating_range or (-np.inf, np.inf)
    clipped: Floats = np.clip(scores, low, high)
    return clipped


def identified(train: Interactions, theirs: Rows, own: Rows, config: Any) -> dict[str, float]:
    """How many of a's common items have their twin among the top 1% and 5% of b's, by the cosine of vectors."""
    at_a, at_b = twins_of(train)
    width = theirs.shape[1]
    parts = (
        {"": slice(None)} if config.model == "pmf" else {"GMF ": slice(width // 2), "": slice(width // 2, None)}
    )
    counts: dict[str, float] = {}
    for name, part in parts.items():
        ranks = twin_ranks(theirs[at_a][:, part], own[:, part], at_b)
        for percent in (1, 5):
            counts[f"{name}top {percent}%"] = float(np.count_nonzero(ranks < round(percent / 100 * len(at_a))))
    return counts
