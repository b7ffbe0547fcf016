"""What is told with a run of partners: counts, and what noise promises for one rating."""

from collections import Counter
from typing import Any

import pytest

from hushrec.privacy.ledger import DELTA
from hushrec.protocol import Answer, Ask
from hushrec.registry import SYSTEMS
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.system import TakeStep
from systems.partner_runs import partners, watched

FEDCORE = SYSTEMS["fedcore"]


def released(finished_with: dict[str, Any], **values: Any) -> tuple[dict[str, float], int]:
    """The facts of a run of 2 rounds, and the most releases that a rating was in, counted in the batches.

    a has 12 ratings and b 5. Batches of 4 make 3 steps a round, so b goes through its ratings up to three times.
    """
    many = {f"u{number}": {f"p{number % 4}": 3.0, f"q{number % 3}": 2.0} for number in range(6)}
    ratings = partners(a=many, b={f"u{number}": {"p1": 4.0} for number in range(5)})
    counts: Counter[tuple[int, int]] = Counter()

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if isinstance(ask.request, TakeStep):
            for number, partner in enumerate(private.partners):
                for place in partner.pending.places:
                    rows = [partner.common_users[partner.users[place]], partner.common_items[partner.items[place]]]
                    counts[number, int(place)] += sum(common >= 0 for common in rows)

    finished = watched(ratings, look, num_rounds=2, batch_size=4, **finished_with, **values)
    told = (FEDCORE.result.facts, FEDCORE.result.promises)
    facts = {name: value for tell in told for name, value in tell(finished.private, finished.config).items()}
    return facts, max(counts.values())


@pytest.mark.parametrize(("unaligned", "expected"), [(1.0, 6), (0.0, 12)])
@pytest.mark.parametrize("privatizer", ["dp", "dp+average"])
def test_the_ledger_counts_the_releases_that_a_rating_is_in(
    unaligned: float, expected: int, privatizer: str
) -> None:
    """Up to 3 passes in each of 2 rounds; aligned items' rows are releases as well."""
    facts, most = released({"privatizer": privatizer, "unaligned": unaligned})
    assert facts["releases that one rating is in"] == expected
    assert expected / 2 < most <= expected, "never more than what is told"
    assert facts["epsilon of one release"] == 15.0
    assert facts[f"epsilon of these together, delta {DELTA:g}"] >= 15.0


def test_without_noise_nothing_is_promised() -> None:
    for privatizer in ("none", "average"):
        facts, _ = released({"privatizer": privatizer})
        assert facts == {"common users": 5}


def test_aligned_items_are_counted() -> None:
    facts, _ = released({"unaligned": 0.0})
    assert facts == {"common users": 5, "aligned items": 1}
