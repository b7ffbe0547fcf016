"""Lists of a few people of a run, for its report: only where asked for, and without saying whose they are."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, option
from hushrec.estimators import load_run
from hushrec.report.tables import short_title
from hushrec.report.verdict_section import SampleList
from hushrec.runs.beside import main_length
from hushrec.runs.record import read_run


def sample_lists_of(folder: Path, num_people: int) -> list[SampleList]:
    """Lists of people with few to many training ratings, evenly spaced by their number; at most of everybody."""
    run, model = read_run(folder), load_run(folder)
    ranker = model.ranker()
    num_rated = np.diff(ranker.seen.starts)
    if not num_rated.any():
        raise HushrecError(
            f"{folder} holds no user's ratings, so it has no lists to show; leave out {option('sample_lists')}"
        )
    users = spaced_users(num_rated, num_people)
    lists = ranker.for_users(users, main_length(run.at))
    return [
        SampleList(
            short_title(model.system), int(num_rated[user]), tuple(entry.title or str(entry.item) for entry in one)
        )
        for user, one in zip(users, lists, strict=True)
    ]


def spaced_users(num_rated: NDArray[np.int64], num_people: int) -> NDArray[np.int32]:
    """Users at even steps of the order by their number of ratings: of three, a sixth, a half and five sixths."""
    having = np.flatnonzero(num_rated)
    order = having[np.argsort(num_rated[having], kind="stable")]
    num_people = min(num_people, len(order))
    places = (np.arange(num_people) * 2 + 1) * len(order) // (2 * num_people)
    return order[places].astype(np.int32)
