"""Ratings from one upload: rows e_ui U_u + lambda V_i give a client's ratings, as they are on a scale's steps.

The server knows the V that it sent and lambda, so it has e_ui U_u: all rows are multiples of U_u, and one number
is left to find, |U_u| (with biases: b_u, for the errors themselves are uploaded). See `grid_search`. What is on a
step of the scale then is rated, with that rating; what is on none is virtual. A client of whom no number puts
enough on steps told nothing: all that it lists is taken for its own, and its ratings are guessed blindly.

The scale is found, too: of usual ones, of those between the ends that all know, and of the steps that ratings of
some clients have in common, that which explains most with the fewest steps.

Symbols: U = user_factors, V = item_factors, e_ui = error of a rating, lambda = regularization, b_u = user's bias.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.grid_search import Fits, Floats, Grid, Starts, fit, most_together, projected
from hushrec.audit.scoreboard import Outcome, Own, Truth
from hushrec.audit.uploads import Answered, Pairs, answered, clients_of, is_own, lists, paired, places_of
from hushrec.draws import Draws
from hushrec.protocol import Message, View

SETTINGS = ("decay", "regularization", "learning_rate")
REPAIRS = ("--secure-sums", "--shares 2")

# Whole and half stars, and others in use: of equal fits the first is taken.
_USUAL = (Grid(1, 1, 5), Grid(0.5, 0.5, 10), Grid(1, 1, 10), Grid(0, 1, 11), Grid(1, 0.5, 9), Grid(0, 1, 2))
_STEPS_OF_UNITS = (5, 10, 2, 3, 4, 6, 7, 8, 9, 11, 19, 20, 21, 101)  # with biases a scale goes from -2 to 2
_ONE_DIRECTION = 1e-3  # of the squares of an upload: what may be along no common direction
_NUM_TRIED = 24  # clients by which the scale is found
_NUM_PAIRS = 1500
_BETTER = 1.15  # by how much a scale that is found must explain more than a usual one
_ENOUGH = 0.15  # of the items that must be rated: those on steps, below which nothing is told
_FEWEST = 3  # on steps: two are by chance, of the numbers that are tried, unless an offset is known beforehand
_MOST_ALIKE = 0.45  # of a whole catalogue: no more items have the same rating, if they are rated
_EACH_HIT = 500.0  # one over the share of numbers that are on a given step by chance


class Read(NamedTuple):
    """What uploads told: of each listed pair whether it is rated, and the rating; NaN: no better than blind."""

    pairs: Pairs  # ascending
    is_rated: NDArray[np.bool_]
    ratings: Floats
    clients: NDArray[np.int64]  # ascending, with what is known of them
    offsets: Floats  # of the next round's ratings, with biases: b_u as it will be; else 0


class _Batch(NamedTuple):
    """Uploads of some clients, with what they are the answer to."""

    clients: NDArray[np.int64]
    starts: Starts
    items: NDArray[np.int64]
    along: Floats  # a, or the errors with biases
    products: Floats  # b, or U V + b_i with biases
    has_form: NDArray[np.bool_]  # of each client
    has_biases: bool
    num_items: int


def has_rows(message_type: type[Message]) -> bool:
    """Whether clients list items with a row of numbers for each."""
    return lists(message_type, "gradients")


def read_uploads(before: Read | None, view: View, own: Own) -> Read:
    """What the uploads of a round tell, each by itself."""
    kinds = {type(one.message) for one in view if has_rows(type(one.message))}
    round_number = view[0].round_number if view else 1
    known = _nothing() if before is None else before
    parts = [
        _read(_batch(one, own.settings, round_number), known, own, round_number)
        for kind in kinds
        for one in answered(view, "item_factors", kind)
    ]
    return _joined(parts, known)


def _nothing() -> Read:
    none, numbers = np.empty(0, np.int64), np.empty(0)
    return Read(none, np.empty(0, np.bool_), numbers, none, numbers)


def _joined(parts: list[Read], before: Read) -> Read:
    """All parts; of pairs that came twice, and of clients, what came last."""
    pairs = np.concatenate([one.pairs for one in parts]) if parts else before.pairs[:0]
    last = _last_of(pairs)
    parts = parts or [_nothing()]
    clients, offsets = (
        np.concatenate([getattr(one, name) for one in (before, *parts)]) for name in Read._fields[3:]
    )
    last_client = _last_of(clients)
    is_rated, ratings = (np.concatenate([getattr(one, name) for one in parts])[last] for name in Read._fields[1:3])
    return Read(pairs[last], is_rated, ratings, clients[last_client], offsets[last_client])


def _last_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each number is for the last time, in ascending order of numbers."""
    _, places = np.unique(numbers[::-1], return_index=True)
    return len(numbers) - 1 - places


# --- What an upload is --------------------------------------------------------------------------------------


def _batch(one: Answered, settings: Mapping[str, Any], round_number: int) -> _Batch:
    """Uploads as numbers of the search."""
    vectors: NDArray[np.float32] = one.request.item_factors  # type: ignore[attr-defined]
    items, gradients = one.upload.column("items"), one.upload.column("gradients")
    numbers = items.values.astype(np.int64)
    has_biases = bool(settings.get("biases", False))
    size = len(numbers), len(one.clients)
    empty = np.zeros(size[0]), np.zeros(size[0]), np.zeros(size[1], np.bool_)
    if gradients.values.shape[1:] == vectors.shape[1:] and numbers.max(initial=-1) < len(vectors):
        rows, listed = gradients.values.astype(np.float64), vectors[numbers].astype(np.float64)
        taken = _with_biases if has_biases else _without_biases
        empty = taken(items.starts, rows, listed, settings, round_number)
    return _Batch(one.clients, items.starts, numbers, *empty, has_biases, len(vectors))


def _without_biases(
    starts: Starts, rows: Floats, vectors: Floats, settings: Mapping[str, Any], round_number: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """a, b and whether there is a common direction: of rows e U + lambda V, or gamma (e U + Lambda V) + noise."""
    if "temperature" in settings:  # SDCF: the learning rate is inside, Lambda follows from a seed that all know
        public = Draws(settings["prior_seed"]).generator("precisions")
        weights = public.gamma(settings["prior_shape"], settings["prior_scale"], (1, vectors.shape[1]))
        rows = rows / (settings["learning_rate"] * settings["decay"] ** (round_number - 1))
    else:
        weights = np.full((1, vectors.shape[1]), float(settings["regularization"]))
    along, products, unexplained = projected(starts, rows - weights * vectors, vectors)
    return along, products, unexplained < _ONE_DIRECTION


def _with_biases(
    starts: Starts, rows: Floats, vectors: Floats, settings: Mapping[str, Any], _round_number: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Errors, U V + b_i, and whether the factors are the errors times one vector, which is U."""
    errors, multiples = rows[:, -1], rows[:, :-1] - float(settings["regularization"]) * vectors[:, :-1]
    who = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    squares = np.bincount(who, errors**2, len(starts) - 1)
    sums = np.stack([np.bincount(who, errors * column, len(squares)) for column in multiples.T], axis=1)
    users = np.divide(sums, squares[:, None], out=np.zeros_like(sums), where=squares[:, None] > 0)
    left = ((multiples - errors[:, None] * users[who]) ** 2).sum(axis=1)
    total, away = (np.bincount(who, one, len(squares)) for one in ((multiples**2).sum(axis=1), left))
    products = (vectors[:, :-1] * users[who]).sum(axis=1) + vectors[:, -1]
    return errors, products, (squares > 0) & (away <= _ONE_DIRECTION * total)


# --- What it tells -----------------------------------------------------------------------------------------


def _read(batch: _Batch, before: Read, own: Own, round_number: int) -> Read:
    """What each upload tells by itself; of the rounds before only b_u is used, where there is one."""
    lengths = np.diff(batch.starts)
    # Ratings that are drawn from the client's own are on steps as well: all that is listed is searched then.
    rho = int(own.settings.get("rho", 0)) if own.settings.get("filling") != "drawn" else 0
    num_rated = lengths / (1 + rho)  # or more, where the whole catalogue is listed
    most = np.where(lengths < batch.num_items, num_rated, _MOST_ALIKE * lengths) if rho else 1.0 * lengths
    expected = _known_offsets(batch.clients, before) if batch.has_biases else None
    grid = _grid_of(batch, most, expected, own)
    found = fit(batch.starts, batch.along, batch.products, grid, most, expected)
    fewest = 1 if batch.has_biases else _FEWEST
    is_told = batch.has_form & (found.hits >= np.maximum(_ENOUGH * num_rated, fewest))
    who = np.repeat(np.arange(len(lengths)), lengths)
    heights = (_ratings(batch, found, who) - grid.low) / grid.step
    with np.errstate(invalid="ignore"):
        levels = np.clip(np.rint(heights), 0, grid.count - 1)
        on_step = np.abs(heights - levels) <= found.close[who]
    is_rated = on_step & ~_too_many(levels, who, on_step, most, grid) if rho else on_step
    is_rated |= ~is_told[who]
    ratings = np.where(is_told[who], grid.low + grid.step * levels, np.nan)
    order = np.argsort(paired(batch.clients[who], batch.items), kind="stable")
    pairs = paired(batch.clients[who], batch.items)[order]
    offsets = _next_offsets(batch, found, who, is_rated, own.settings, round_number)
    return Read(pairs, is_rated[order], ratings[order], batch.clients, offsets)


def _ratings(batch: _Batch, found: Fits, who: NDArray[np.int64]) -> Floats:
    numbers = found.numbers[who]
    if batch.has_biases:
        return batch.products - batch.along + numbers
    with np.errstate(divide="ignore", invalid="ignore"):
        ratings: Floats = numbers * batch.products - batch.along / numbers
    return ratings


def _too_many(
    levels: Floats, who: NDArray[np.int64], on_step: NDArray[np.bool_], most: Floats, grid: Grid
) -> NDArray[np.bool_]:
    """Whether more of a client's ratings are on the same step than it can have rated: its mean is on it."""
    cells = who * grid.count + np.nan_to_num(levels).astype(np.int64)
    counts = np.bincount(cells, on_step, len(most) * grid.count)
    return np.asarray(counts[cells] > most[who])


def _known_offsets(clients: NDArray[np.int64], before: Read) -> Floats:
    """b_u as it was concluded from the rounds before; 0, where clients start, for the others."""
    places, is_known = places_of(clients, before.clients)
    offsets = np.zeros(len(clients))
    offsets[is_known] = before.offsets[places[is_known]]
    return offsets


def _next_offsets(
    batch: _Batch,
    found: Fits,
    who: NDArray[np.int64],
    is_rated: NDArray[np.bool_],
    settings: Mapping[str, Any],
    round_number: int,
) -> Floats:
    """b_u after the client's own step on what it learns from: rated items, or all that it lists."""
    if not batch.has_biases:
        return np.zeros(len(batch.clients))
    learned = np.ones(len(who)) if settings["user_update"] == "rated-and-virtual" else is_rated.astype(np.float64)
    sums, counts = (np.bincount(who, one, len(batch.clients)) for one in (learned * batch.along, learned))
    shrinkage = float(settings["shrinkage"])
    weights = np.maximum(counts + shrinkage, 1e-9)
    rate = settings["learning_rate"] * settings["decay"] ** (round_number - 1)
    moved: Floats = found.numbers - rate * (sums + shrinkage * found.numbers) / weights
    return moved


# --- The scale ---------------------------------------------------------------------------------------------


def _grid_of(batch: _Batch, most: Floats, expected: Floats | None, own: Own) -> Grid:
    """The scale that explains most ratings of some clients with the fewest steps."""
    tried = _tried(batch, own.generator)
    if batch.has_biases:
        usual, found = _between(-2, 2), list[Grid]()
    else:
        usual, found = list(_USUAL), _common_steps(tried, own.generator)
        if own.rating_range is not None and own.rating_range[0] < own.rating_range[1]:
            usual, found = _between(*own.rating_range), [*found, *usual]
    if not len(tried.clients):
        return usual[0]
    places = np.searchsorted(batch.clients, tried.clients)
    near = None if expected is None else expected[places]

    def explained(grid: Grid) -> float:
        hits = fit(tried.starts, tried.along, tried.products, grid, most[places], near).hits
        return float(hits.sum() * np.log(_EACH_HIT / grid.count))

    best = max(usual, key=explained)
    return next((grid for grid in found if explained(grid) > _BETTER * explained(best)), best)


def _between(low: float, high: float) -> list[Grid]:
    """Scales with these ends."""
    return [Grid(low, (high - low) / (count - 1), count) for count in _STEPS_OF_UNITS]


def _tried(batch: _Batch, generator: np.random.Generator) -> _Batch:
    """Some clients whose uploads have the form, with enough items, but not the most."""
    lengths = np.diff(batch.starts)
    order = np.argsort(lengths, kind="stable")
    usable = order[batch.has_form[order]]
    usable = usable[len(usable) // 4 : max(3 * len(usable) // 4, 1)]
    chosen = np.sort(generator.choice(usable, min(_NUM_TRIED, len(usable)), replace=False))
    starts = np.concatenate([[0], np.cumsum(lengths[chosen])])
    rows = np.arange(starts[-1]) + np.repeat(batch.starts[chosen] - starts[:-1], lengths[chosen])
    return batch._replace(
        clients=batch.clients[chosen],
        starts=starts,
        items=batch.items[rows],
        along=batch.along[rows],
        products=batch.products[rows],
        has_form=batch.has_form[chosen],
    )


def _common_steps(tried: _Batch, generator: np.random.Generator) -> list[Grid]:
    """The scale of ratings that several clients have in common, each several times; none, if there is none."""
    levels = [
        _levels(tried.along[first:last], tried.products[first:last], generator)
        for first, last in zip(tried.starts[:-1], tried.starts[1:], strict=True)
    ]
    found = np.sort(np.concatenate([*levels, np.empty(0)]))
    if len(found) < 4:
        return []
    groups = np.split(found, np.flatnonzero(np.diff(found) > 1e-3 * (found[-1] - found[0])) + 1)
    means = np.array([group.mean() for group in groups if len(group) >= 2])
    sizes = np.array([len(group) for group in groups if len(group) >= 2])
    common = means[sizes >= max(3, len(levels) // 4)]
    if len(common) < 3:
        return []
    step = _round_number(float(np.diff(common).min()), 2)
    low = round(float(common[0]) / (step / 10)) * (step / 10)
    heights = (means - low) / step
    on_grid = np.rint(heights[np.abs(heights - np.rint(heights)) < 0.02])
    if len(on_grid) < len(common):
        return []
    return [Grid(low + step * on_grid.min(), step, int(on_grid.max() - on_grid.min()) + 1)]


def _round_number(number: float, digits: int) -> float:
    """With so many digits: people make scales of such numbers, and what is found has an error."""
    return float(f"{number:.{digits}g}")


def _levels(along: Floats, products: Floats, generator: np.random.Generator) -> Floats:
    """Ratings that a client gave several times, with the |U| that makes most of them equal to others."""
    if len(along) < 8:
        return np.empty(0)
    pairs = generator.integers(0, len(along), (_NUM_PAIRS, 2))
    number = most_together(along, products, pairs)
    if number == 0:
        return np.empty(0)
    values = np.sort(number * products - along / number)
    values = values if values.mean() > 0 else -values[::-1]
    groups = np.split(values, np.flatnonzero(np.diff(values) > 1e-4 * (values[-1] - values[0])) + 1)
    return np.array([group.mean() for group in groups if len(group) >= 3])


# --- How right it is ---------------------------------------------------------------------------------------


def judge_items(read: Read, truth: Truth) -> Outcome:
    """Precision of what is said to be rated; blind: of all that is listed. Who has no guess is left out."""
    guessed = read.pairs[read.is_rated]
    blind = _shares(clients_of(read.pairs), is_own(read.pairs, truth.train))
    owners = clients_of(guessed)
    chance = blind[1][np.searchsorted(blind[0], owners)] if len(owners) else np.empty(0)
    return Outcome.of_marks(owners, is_own(guessed, truth.train), chance)


def judge_found(read: Read, truth: Truth) -> Outcome:
    """Recall: which share of the rated items that a client listed is said to be so; blind: as many of its list."""
    own = is_own(read.pairs, truth.train)
    owners = clients_of(read.pairs)
    clients, shares = _shares(owners, read.is_rated)
    return Outcome.of_marks(owners[own], read.is_rated[own], shares[np.searchsorted(clients, owners[own])])


def judge_ratings(read: Read, truth: Truth) -> Outcome:
    """The share of a client's listed ratings that are read exactly, whether or not they are said to be ratings.

    Blind: always the most common rating.
    """
    train = truth.train
    assert train.ratings is not None, "explicit feedback only"
    keys = paired(train.users, train.items)
    order = np.argsort(keys, kind="stable")
    places, is_there = places_of(read.pairs, keys[order])
    told, of = np.flatnonzero(is_there), order[places[is_there]]
    ratings = train.ratings[of].astype(np.float64)
    values, counts = np.unique(train.ratings, return_counts=True)
    is_usual = ratings == values[np.argmax(counts)]
    guessed = read.ratings[told]
    if truth.settings.get("biases", False) and train.rating_range is not None:
        low, high = train.rating_range
        guessed = (low + high) / 2 + guessed * (high - low) / 4  # ratings are trained on in these units
    is_right = np.where(np.isnan(guessed), is_usual, np.abs(guessed - ratings) < 1e-3)
    return Outcome.of_marks(clients_of(read.pairs[told]), is_right, is_usual)


def _shares(owners: NDArray[np.int64], marks: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Floats]:
    """Clients, and the share of marks of each that are set."""
    clients, place = np.unique(owners, return_inverse=True)
    counts = np.bincount(place, minlength=len(clients))
    return clients, np.bincount(place, marks, len(clients)) / np.maximum(counts, 1)
