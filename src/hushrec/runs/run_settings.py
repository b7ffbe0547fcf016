"""What to run, apart from a system's own settings: the split of the data, the lengths of lists, the seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from hushrec.data import (
    Deal,
    Interactions,
    Measure,
    Split,
    SplitKind,
    copies,
    global_time,
    k_folds,
    latest_share,
    leave_one_out,
    random_share,
    with_passed_over,
)
from hushrec.data.splits import check_seed, seconds_of
from hushrec.errors import HushrecError, option
from hushrec.evaluation.feedback import positive_from
from hushrec.protocol import AnySystem

NUM_FOLDS = 5
_DEALT = ("partners", "pooled")
_WITH_SHARE = ("random", "latest", "shared", "global-time")
_USUAL_SHARE = 0.2
_SHARED_LENGTHS = (10,)


@dataclass(frozen=True)
class RunSettings:
    """What to run, apart from the system's own settings."""

    seed: int = 0
    num_folds: int = 1
    split: SplitKind = "folds"
    test_share: float = _USUAL_SHARE
    at: tuple[int, ...] = (10,)
    relevant_from: float | None = None
    deal: Deal = field(default_factory=Deal)  # for the splits partners and pooled
    owners: str = ""  # who holds the items, see `owned`; empty: as the data say
    passed_over: int = 0  # items drawn for each one that a user took, see `with_passed_over`
    measure: Measure = "test"
    sampled: int = 0  # negatives that one test item is ranked among, as well; see `hushrec.evaluation.sampled`
    # How many raters an item needs to be listed, see `hushrec.evaluation.candidates`; None: what is usual for the
    # feedback. Papers rank all items.
    min_raters: int | None = 0
    split_at: str | None = None  # with the split global-time: the first moment of the test, see `global_time`

    def __post_init__(self) -> None:
        check_seed(self.seed)
        self._check_split()
        if not 1 <= self.num_folds <= self.most_folds:
            raise HushrecError(
                f"{option('folds', self.num_folds)} with {option('split', self.split)}: choose 1 to "
                f"{self.most_folds}"
            )
        if not self.at or min(self.at) < 1 or len(set(self.at)) < len(self.at):
            raise HushrecError(
                f"{option('at')} takes different list lengths of at least 1, as in {option('at', (5, 10, 20))}"
            )
        if self.min_raters is not None and self.min_raters < 0:
            raise HushrecError(f"{option('min_raters', self.min_raters)}: a number of users is 0 or more")
        if self.sampled and self.split != "leave-one-out":
            raise HushrecError(
                f"{option('sampled', self.sampled)} needs one test item per user: add "
                f"{option('split', 'leave-one-out')}"
            )

    def _check_split(self) -> None:
        if not 0 < self.test_share < 1:
            raise HushrecError(
                f"{option('test_share', self.test_share)} is no share; use a number between 0 and 1"
            )
        if self.test_share != _USUAL_SHARE and self.split not in _WITH_SHARE:
            known = ", ".join(_WITH_SHARE)
            raise HushrecError(
                f"{option('test_share', self.test_share)} has no meaning with {option('split', self.split)}; "
                f"choose of: {known}"
            )
        if self.split_at is not None:
            if self.split != "global-time":
                raise HushrecError(f"{option('split_at', self.split_at)} needs {option('split', 'global-time')}")
            seconds_of(self.split_at)

    @property
    def most_folds(self) -> int:
        """How many folds there are with this split."""
        return NUM_FOLDS if self.split == "folds" or self.is_dealt else 1

    @property
    def is_dealt(self) -> bool:
        """Whether partners have the data, or had it."""
        return self.split in _DEALT


def settings_for(
    system: AnySystem,
    seed: int = 0,
    num_folds: int = 1,
    split: SplitKind | None = None,
    test_share: float = 0.2,
    at: tuple[int, ...] | None = None,
    relevant_from: float | None = None,
    deal: Deal | None = None,
    owners: str = "",
    passed_over: int = 0,
    measure: Measure = "test",
    data: Interactions | None = None,
    sampled: int = 0,
    min_raters: int | None = 0,
    split_at: str | None = None,
) -> RunSettings:
    """What to run, with the split and the length of lists that papers on this kind of feedback use.

    The split `shared` is measured in one way with all kinds of feedback.

    Data without times, where they are needed for that, is split at random. Without a number of raters (None), an
    item needs as many as is usual for the feedback to be listed.
    """
    feedback, holders = system.feedback, system.holders
    if passed_over and not feedback.takes_passed_over:
        raise HushrecError(
            f"{option('passed_over', passed_over)}: {system.name} takes no such items; leave it out"
        )
    if split is None:
        split = holders.usual_split or feedback.usual_split
        split = "random" if split == "latest" and data is not None and not _has_all_times(data) else split
    at = at or (_SHARED_LENGTHS if split == "shared" else feedback.usual_lengths)
    return RunSettings(
        seed, num_folds, split, test_share, at, relevant_from, deal or Deal(), owners,
        passed_over, measure, sampled, min_raters, split_at,
    )  # fmt: skip


def splits_of(data: Interactions, settings: RunSettings) -> Iterator[Split]:
    """The folds to run; for validation the training part of each is split once more, its test part is not used."""
    splits = _test_splits(data, settings)
    if settings.measure == "test" or settings.is_dealt:
        return splits
    kind: SplitKind = "random" if settings.split == "folds" else settings.split
    inner = replace(settings, split=kind, num_folds=1, split_at=None)
    return (replace(next(_test_splits(split.train, inner)), fold=split.fold) for split in splits)


def _test_splits(data: Interactions, settings: RunSettings) -> Iterator[Split]:
    if settings.split == "folds":
        return islice(k_folds(data, NUM_FOLDS, settings.seed), settings.num_folds)
    if settings.is_dealt:
        is_pooled = settings.split == "pooled"
        dealt = copies(data, settings.deal, settings.seed, is_pooled, settings.measure)
        return islice(dealt, settings.num_folds)
    if settings.split in ("random", "shared"):
        return iter([random_share(data, settings.test_share, settings.seed)])
    if settings.split == "latest":
        return iter([latest_share(data, settings.test_share)])
    if settings.split == "global-time":
        return iter([global_time(data, settings.test_share, settings.split_at)])
    return iter([leave_one_out(data, "time" if _has_time(data) else "random", settings.seed)])


def _has_time(data: Interactions) -> bool:
    return data.timestamps is not None or data.order is not None


def _has_all_times(data: Interactions) -> bool:
    return data.order is not None or (data.timestamps is not None and bool((data.timestamps >= 0).all()))


def data_to_split(
    system: AnySystem, data: Interactions, settings: RunSettings, config: Any = None
) -> Interactions:
    """The data with the feedback that the system learns from, and dealt as was wished; the rest is the split's."""
    if settings.passed_over:
        data = with_passed_over(data, settings.passed_over, settings.seed)
    data = system.feedback.prepare(data, system.name, positive_from(config))
    return system.holders.dealt(data, settings.owners, settings.seed, system.name) if settings.owners else data


def splits_for(
    system: AnySystem, data: Interactions, settings: RunSettings, config: Any = None
) -> Iterator[Split]:
    """The folds to run, in the hands of the system's parties."""
    splits = splits_of(data_to_split(system, data, settings, config), settings)
    if settings.split == "shared" and data.ratings is not None and not system.result.losses:
        # All are judged by the ratings that people gave, also systems that do not learn from them.
        rated = splits_of(data, settings)
        splits = (_judged_by(split, other.test) for split, other in zip(splits, rated, strict=True))
    for split in splits:
        held = system.holders.held_in_run
        yield replace(split, train=held(split.train), test=held(split.test))


def check_held_back(split: Split, settings: RunSettings) -> None:
    """Refuse, before training, a split that holds no row back: there is nothing to measure a model by."""
    if len(split.test):
        return
    most = int(np.bincount(split.train.users, minlength=1).max())  # rows of a user
    name, kind = split.train.name, option("split", settings.split)
    part = "for validation" if settings.measure == "validation" else "for a test"
    others = [option("split", "folds")] if settings.split != "folds" else []
    others += [option("measure", "test")] if settings.measure == "validation" else []
    other = " and ".join(others)
    if most < 2:
        raise HushrecError(
            f"{name}: no user has two rows, so that {kind} holds none back {part}; choose {other}, or bring "
            "more rows"
        )
    if settings.split in _WITH_SHARE:
        least = math.ceil(50 / most) / 100
        raise HushrecError(
            f"{name}: {option('test_share', settings.test_share)} of at most {most} rows a user is less than one, "
            f"so that none is held back {part}; use {option('test_share', least)} or more"
        )
    raise HushrecError(f"{name}: {kind} holds no row back {part}; choose {other}, or bring more rows")


def _judged_by(split: Split, rated: Interactions) -> Split:
    test = replace(split.test, ratings=rated.ratings, rating_range=rated.rating_range)
    return replace(split, test=test.sorted_like(split.test))
