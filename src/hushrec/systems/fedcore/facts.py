"""What is told with a run of partners beside its quality: what was common, who was served, what noise promises."""

from collections.abc import Mapping

import numpy as np

from hushrec.errors import option
from hushrec.privacy.ledger import Ledger, told_of
from hushrec.systems.fedcore.budget import Budget
from hushrec.systems.fedcore.partners import Agreement, Partnership
from hushrec.systems.fedcore.visitors import largest_difference


def facts_of(private: Partnership, terms: Agreement) -> Mapping[str, float]:
    """Each fact by its name."""
    partners = private.partners
    facts: dict[str, float] = {
        "common users": max(int(np.count_nonzero(partner.common_users >= 0)) for partner in partners)
    }
    if any(partner.common_items.max(initial=-1) >= 0 for partner in partners):
        facts["aligned items"] = max(int(np.count_nonzero(partner.common_items >= 0)) for partner in partners)
    if (private.asked >= 0).any():
        facts["visitors asked about"] = int((private.asked >= 0).sum())
        facts["visitors served"] = int(np.isfinite(private.answers).any(axis=2).sum())
        if not terms.top_k and not terms.answer_noise:
            facts["largest error of encrypted scores"] = _largest_error(private, terms)
    return facts


def promises_of(private: Partnership, budget: Budget, is_averaged: bool) -> dict[str, float]:
    """What noise on gradients promises, of one release and of a run: the largest numbers of the partners here."""
    # After a round the clock tells how many steps it had.
    num_steps = max(1, int(private.clock[:, 1].max()))
    releases = [budget.release(partner, num_steps, is_averaged) for partner in private.partners]
    return told_of([Ledger([release]) for release in releases], budget.unit, budget.delta)


def _largest_error(private: Partnership, terms: Agreement) -> float:
    """Decrypted scores against the same products in the clear, where the partner that answered is here, too."""
    worst, ids_of = 0.0, [private.ids_of(place)[0] for place in range(len(private.partners))]
    number_of = [{str(name): number for number, name in enumerate(ids)} for ids in ids_of]
    place_of = {partner.number: place for place, partner in enumerate(private.partners)}
    for ids, partner in zip(ids_of, private.partners, strict=True):
        for visitor, helper, answers in zip(partner.asked, partner.helpers, partner.answers, strict=True):
            scores = answers[: len(partner.item_factors)]
            if helper in place_of and np.isfinite(scores).all():
                home = private.partners[place_of[helper]]
                vector = home.shown_users[number_of[place_of[helper]][str(ids[visitor])]]
                worst = max(worst, largest_difference(partner, scores[None], vector[None], terms))
    return worst


def warnings_of(
    privatizer: str, protects: str, has_noise: bool, has_layers: bool, epsilon_total: float
) -> tuple[str, ...]:
    """What of the gradients goes out without noise."""
    found = []
    # DEVIATION: the paper's method puts noise of epsilon 15 on gradients. The default has none, and says so aloud:
    # noise costs 2 to 3% of the RMSE on ML-100K at rate .3, and its epsilon over a run adds up to over 1,000.
    if not has_noise:
        found.append(
            f"UNPROTECTED: with {option('privatizer', privatizer)}, gradients of common users go to "
            "other partners without noise and tell them most ratings (see hushrec audit fedcore); use "
            f"{option('privatizer', 'dp+average')}"
        )
    elif has_layers:
        found.append("UNPROTECTED: gradients of neucf's layers go to other partners without noise")
    elif epsilon_total:
        found.append(
            f"PROTECTED IN PART: {option('epsilon_total', epsilon_total)} is of the gradients that a "
            f"{protects} is in; what it does to item vectors, and so to other gradients, is not counted"
        )
    return tuple(found)
