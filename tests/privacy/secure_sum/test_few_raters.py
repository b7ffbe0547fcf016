"""Items with few raters are left out: the server has no row of them, and others' rows are as they were."""

from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.attempts import AskedOtherwiseError
from hushrec.privacy.secure_sum.few_raters import LeavesOut, counting
from hushrec.privacy.secure_sum.messages import LeaveOut, SendCounts
from hushrec.privacy.secure_sum.parties import without_items
from hushrec.privacy.secure_sum.settings import SecureItemSums
from hushrec.protocol import Ask, Cohort, Collect, Ragged
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.systems import fedrec
from systems.test_secure_sums import job_of, run_of


def ragged(*rows: list[int]) -> Ragged:
    return Ragged(np.cumsum([0, *map(len, rows)]), np.array([item for row in rows for item in row], np.int32))


def counts(config: SecureItemSums, num_clients: int, num_items: int = 200, number: int = 1) -> Any:
    numbers = np.arange(num_clients, dtype=np.int32)
    private = LeavesOut(np.zeros(num_items, np.bool_))
    cohort: Cohort[LeavesOut] = Cohort(numbers, numbers.astype(np.int64), private, number)
    lists = lambda *_: ragged(*([1, 3] for _ in numbers))  # noqa: E731
    reply = counting(lists)(cohort, SendCounts(np.array(num_items), np.array(num_clients)), config, Draws(0))
    return reply.message.words.values.reshape(num_clients, num_items)  # type: ignore[attr-defined]


def test_counts_by_hand() -> None:
    rows = counts(SecureItemSums(secure_sums=True), 2, 5)
    assert rows.tolist() == [[0, 1, 0, 1, 0]] * 2


def test_noise_has_its_deviation_and_is_the_same_in_all_rounds() -> None:
    """Of 200 sums of 400 clients' noise: the deviation of a deviation is 5%; false alarm below 1e-4."""
    config = SecureItemSums(secure_sums=True, secure_count_noise=3.0)
    rows = counts(config, 400)
    rows[:, [1, 3]] -= 1
    assert set(np.unique(rows).tolist()) == {-1, 0, 1}
    assert rows.sum(axis=0).std() == pytest.approx(3.0, rel=0.2)
    again = counts(config, 400, number=7)
    again[:, [1, 3]] -= 1
    np.testing.assert_array_equal(again, rows)


def test_rows_without_some_items() -> None:
    gradients = Ragged(np.array([0, 2, 3]), np.array([[1.0], [2.0], [3.0]], np.float32))
    reply = fedrec.ItemGradients(ragged([0, 2], [2]), gradients)
    left: Any = without_items(reply, np.array([False, False, True]))
    assert left.items.starts.tolist() == [0, 1, 1]
    assert left.items.values.tolist() == [0]
    assert left.gradients.values.tolist() == [[1.0]]
    assert without_items(reply, np.zeros(3, np.bool_)) is reply


@pytest.mark.parametrize("masks", ["counted", "real"])
def test_items_with_few_raters_do_not_move_and_others_do_as_before(masks: str) -> None:
    """In the first round; later ones start from another V."""
    values = {"rho": 0, "secure_sums": True, "secure_masks": masks}
    job = job_of("fedrec", **values)
    plain, least = run_of(job), run_of(job_of("fedrec", **values, secure_least_raters=10))
    raters = np.bincount(job.train.items, minlength=job.train.num_items)
    is_few = raters < 10
    assert 0 < is_few.sum() < len(is_few)
    start = job.start().state.item_factors
    first, other = least.states[1].item_factors, plain.states[1].item_factors
    np.testing.assert_array_equal(first[is_few], start[is_few])
    np.testing.assert_array_equal(first[~is_few], other[~is_few])
    (told,) = {tuple(one.message.items.tolist()) for one in least.sent(LeaveOut, 1)}  # type: ignore[attr-defined]
    assert list(told) == np.flatnonzero(is_few).tolist()


def test_a_sum_that_is_begun_is_not_masked_again_without_other_items() -> None:
    """Else the difference of two answers would be somebody's rows in the clear."""
    job = job_of("fedrec", rho=0, secure_sums=True, secure_masks="real", secure_least_raters=5)
    start, draws = job.start(), Draws(0)
    runtime = InProcess(job.system, job.config, draws, start.private, start.transcript, RuntimeOptions(1))
    steps = job.system.round(start.state, 1, job.config, draws)
    ask = next(steps)
    while not isinstance(ask.request, fedrec.ItemFactors):
        ask = steps.send(runtime.serve(ask, 1))
    runtime.serve(ask, 1)
    runtime.serve(ask, 1)  # the same again
    runtime.serve(Ask(ask.to, LeaveOut(np.array([0], np.int32)), Collect()), 1)
    with pytest.raises(AskedOtherwiseError, match="asked to mask twice"):
        runtime.serve(ask, 1)


def test_systems_without_lists_do_not_have_it() -> None:
    with pytest.raises(HushrecError, match="unknown setting secure_least_raters"):
        job_of("fcf", secure_least_raters=5)
