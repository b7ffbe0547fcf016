"""A catalogue of items is the same whether it comes from a dataset or from an operator's file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushrec.data import k_folds, synthetic
from hushrec.data.holdings.node_files import Catalogue, catalogue_of, read_catalogue
from hushrec.errors import HushrecError

TRAIN = next(iter(k_folds(synthetic(30, 40, 400), 5, 0))).train


def written(folder: Path, text: str) -> Path:
    path = folder / "items.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_are_ordered_by_value(tmp_path: Path) -> None:
    assert read_catalogue(written(tmp_path, "10\n9\n-3\n100\n")) == Catalogue(["-3", "9", "10", "100"], True)


def test_texts_are_ordered_by_code_point(tmp_path: Path) -> None:
    """As NumPy sorts them, and as datasets number their items."""
    texts = ["b", "a", "Z", "10", "9", "é", "😀", "zz"]
    found = read_catalogue(written(tmp_path, "\n".join(texts)))
    assert found.ids == np.sort(np.array(texts)).tolist()
    assert not found.are_numbers


@pytest.mark.parametrize("item", ["007", "1.5", "+1", "1e3", "9223372036854775808", "٣", "²", "-", "1_000"])
def test_what_is_not_plainly_a_number_is_a_text(tmp_path: Path, item: str) -> None:
    found = read_catalogue(written(tmp_path, f"5\n{item}\n"))
    assert not found.are_numbers
    assert set(found.ids) == {"5", item}


def test_titles_follow_their_items(tmp_path: Path) -> None:
    found = read_catalogue(written(tmp_path, "2\tThe second\n\n1\tThe first\n3\n"))
    assert found == Catalogue(["1", "2", "3"], True, ["The first", "The second", ""])
    assert read_catalogue(written(tmp_path, "2\n1\n")).titles is None


def test_a_file_and_a_dataset_agree(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    lines = drawn.permutation([str(item) for item in TRAIN.item_ids.tolist()])
    assert read_catalogue(written(tmp_path, "\n".join(lines))) == catalogue_of(TRAIN)
    named = replace(TRAIN, item_ids=np.array([f"film {item}" for item in range(TRAIN.num_items)]))
    named = replace(named, item_ids=np.sort(named.item_ids))
    lines = drawn.permutation(named.item_ids)
    assert read_catalogue(written(tmp_path, "\n".join(lines))) == catalogue_of(named)


def test_a_dataset_s_titles_are_kept() -> None:
    train = replace(TRAIN, titles=np.array([f"Film {number}" for number in range(40)]))
    assert catalogue_of(train).titles == [f"Film {number}" for number in range(40)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no list of items"),
        ("\n\n", "no list of items"),
        ("\ttitle only\n", "no list of items"),
        ("1\n2\n1\n", "names an item twice"),
        ("1\tone\n 1 \tuno\n", "names an item twice"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(HushrecError, match=told):
        read_catalogue(written(tmp_path, text))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="cannot read the items"):
        read_catalogue(tmp_path / "missing")
    (tmp_path / "items.tsv").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(HushrecError, match="cannot read the items"):
        read_catalogue(tmp_path / "items.tsv")
