"""Model extraction: the other partner's item vectors from the scores of one's own users.

In collaborative inference (FedCORE, Algorithm 2) the partner that owns the users decrypts V.u for each of them. It
knows every u, the noise that it added itself included, so as many independent users as there are factors give V
exactly. Noise on the users' vectors hides these from the other partner; it does not hide its items.
"""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.vector_recovery import Solved, solve_products
from hushrec.errors import HushrecError


def extract_items(
    sent_vectors: NDArray[np.floating],
    answers: NDArray[np.floating] | None,
    rating_range: tuple[float, float] | None = None,
) -> Solved:
    """Item vectors from answers: a row for each vector as it was sent (with its noise), a column for each item.

    Answers at the ends of `rating_range` are left out: they may be cut off. For scores as they were decrypted give
    none. Answers without scores are None: an error.
    """
    if answers is None:
        raise HushrecError(
            "answers are only the places of the best items: the attack cannot start without scores; decrypt them"
        )
    usable = np.isfinite(answers)
    if rating_range is not None:
        usable &= (answers > rating_range[0]) & (answers < rating_range[1])
    return solve_products(sent_vectors, answers.T, usable.T)
