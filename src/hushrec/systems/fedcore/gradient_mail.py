"""Gradients between the partners of FedCORE: from what is released to messages, and back. Used by `system.py`."""

from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.protocol import Cohort, Message, Numbers, Ragged
from hushrec.systems.fedcore.mail import slices_to
from hushrec.systems.fedcore.messages import ItemGradients, LayerGradients, UserGradients
from hushrec.systems.fedcore.partners import Partner, Partnership, Release


def gradient_mail(
    writers: Numbers, step: int, releases: list[Release], has_items: bool, num_weights: int
) -> Iterator[Message]:
    """The messages that carry these releases of a step, one for each partner of a cohort."""
    steps = np.full(len(writers), step, np.int64)
    yield UserGradients(writers, steps, *_columns([(release.users, release.user_rows) for release in releases]))
    if has_items:
        columns = _columns([(release.items, release.item_rows) for release in releases])
        yield ItemGradients(writers, steps, *columns)
    if num_weights:
        starts = np.arange(len(releases) + 1) * num_weights
        layers = Ragged(starts, np.concatenate([release.layers for release in releases]))
        yield LayerGradients(writers, steps, layers)


def _columns(slices: list[tuple[Numbers, NDArray[np.float32]]]) -> tuple[Ragged, Ragged]:
    starts = np.array([0, *accumulate(len(numbers) for numbers, _ in slices)])
    numbers = np.concatenate([numbers for numbers, _ in slices])
    return Ragged(starts, numbers), Ragged(starts, np.concatenate([rows for _, rows in slices]))


def releases_to(
    cohort: Cohort[Partnership], partner: Partner, step: int, partners: Numbers, has_items: bool, most_rows: int
) -> list[Release]:
    """What the others sent in a step; no more rows than a batch has ratings."""
    said = partner.number, step, partners
    users = slices_to(cohort, UserGradients, *said)
    no_items, no_layers = _nothing(partner.item_factors.shape[1])
    items = slices_to(cohort, ItemGradients, *said) if has_items else []
    layers = slices_to(cohort, LayerGradients, *said) if len(partner.layers) else []
    if any(len(columns[0]) > most_rows for columns in (*users, *items)):
        raise PublicError(f"a partner sent more than {most_rows} rows in a step; agree on the same batch size")
    together = zip(users, items or [no_items] * len(users), layers or [no_layers] * len(users), strict=True)
    return [Release(*of_users, *of_items, *of_layers) for of_users, of_items, of_layers in together]


@cache
def _nothing(width: int) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Gradients of no item, and of no layers."""
    return [np.empty(0, np.int32), np.empty((0, width), np.float32)], [np.empty(0, np.float32)]
