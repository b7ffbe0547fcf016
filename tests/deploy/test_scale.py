"""docs/scale.md shows what `benchmarks.devices` computes, and that computes what frames and sums really are."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.sealing import LETTER_BYTES
from hushrec.runtime.wire import encode

BASE = Path(__file__).parents[2]
PAGE = BASE / "docs" / "scale.md"


@pytest.fixture(scope="module")
def devices() -> Iterator[Any]:
    """The program behind the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BASE)
        yield importlib.import_module("benchmarks.devices")


def test_the_page_shows_what_the_program_computes(devices: Any) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert devices.written(text, devices.MEASURED) == text


def test_a_table_without_a_place_is_noticed(devices: Any) -> None:
    with pytest.raises(SystemExit, match="no place for the table"):
        devices.written("a page without tables", devices.MEASURED)


def test_sizes_are_those_of_frames_and_sums(devices: Any) -> None:
    costs = importlib.import_module("benchmarks.device_costs")
    number = np.zeros(1, np.int32)
    assert len(encode(costs.uploads(1), 1, number)) == costs.SIZES.up
    assert len(encode(costs.noise(1), 1, number)) + LETTER_BYTES == costs.SIZES.mail
    total = ExactSum.zeros((costs.NUM_ITEMS, costs.NUM_FACTORS), 1)
    assert total.totals.nbytes + total.counts.nbytes == costs.SIZES.sum_bytes
    assert costs.SIZES.down // costs.SIZES.listed_rows == 119


def test_loads_add_up(devices: Any) -> None:
    """100,000 devices of FedRec: 4 MB of V each make 400 GB; 400 rows each make 0.04 s per ns of a row."""
    load = devices.Load(0.01, is_denoised=False)
    assert load.devices == 100_000
    assert round(load.bytes_down / 1e9) == 400
    assert load.cpu_seconds(devices.MEASURED)["fold"] == pytest.approx(0.04 * devices.MEASURED.fold_ns)
    assert devices.Load(0.01, is_denoised=True).bytes_up > load.bytes_up
