from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions
from hushrec.data.holdings import USERS
from hushrec.data.item_choice import Mask, may_be_listed, read_choice
from hushrec.errors import HushrecError


@pytest.fixture(scope="module")
def numbered() -> Interactions:
    """Items 1 to 50."""
    return hushrec.load("synthetic:users=80,items=50,ratings=1500")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Interactions:
    file = tmp_path_factory.mktemp("named") / "shop.csv"
    file.write_text("user,item,rating\n" + "".join(f"u,sku/{item},3\nv,sku/{item},4\n" for item in "abc"))
    return hushrec.read(file)


def known(data: Interactions) -> Callable[[list[str]], Mask]:
    return lambda ids: np.array([len(own) > 0 for own in USERS.copies(data, np.array(ids))], np.bool_)


def test_nothing_chosen_is_no_choice(numbered: Interactions) -> None:
    assert may_be_listed(numbered, None, None, USERS.copies) is None


@pytest.mark.parametrize(
    ("only", "leave_out", "expected"),
    [
        ([3, 7], None, {3, 7}),
        (None, [3, 7], set(range(1, 51)) - {3, 7}),
        ([3, 7, 9], ["7"], {3, 9}),
        (None, [], set(range(1, 51))),
        ([], None, set()),
        (5, None, {5}),
    ],
)
def test_what_may_be_listed(numbered: Interactions, only: Any, leave_out: Any, expected: set[int]) -> None:
    mask = may_be_listed(numbered, only, leave_out, USERS.copies)
    assert mask is not None
    assert set(numbered.item_ids[mask].tolist()) == expected


def test_unknown_ids_are_an_error_in_python(numbered: Interactions) -> None:
    with pytest.raises(HushrecError, match="no item '99' in synthetic"):
        may_be_listed(numbered, [3, 99], None, USERS.copies)


def test_typed_ids(numbered: Interactions, named: Interactions) -> None:
    assert read_choice("3, 7,50", "--only", known(numbered)) == (["3", "7", "50"], 0)
    assert read_choice("sku/b,sku/a", "--only", known(named)) == (["sku/b", "sku/a"], 0)


@pytest.mark.parametrize("text", ["3,99", "missing.csv", "", "3,,4", "x" * 5000, "a\0b"])
def test_typed_ids_must_be_known(numbered: Interactions, text: str) -> None:
    with pytest.raises(HushrecError, match=r"^--not .* is no file; as ids, \d+ of \d+ are unknown") as caught:
        read_choice(text, "--not", known(numbered))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["3\n7\n", "\ufeff3\r\n\r\n 7 \r\n", "item\n3\n7\n", "price,Item\n1.50,3\n2,7\n", "item\tstock\n3\t1\n7\t0\n"],
)
def test_a_file_of_ids(numbered: Interactions, tmp_path: Path, content: str) -> None:
    file = tmp_path / "stock.txt"
    file.write_text(content, encoding="utf-8")
    assert read_choice(str(file), "--only", known(numbered)) == (["3", "7"], 0)


def test_a_file_may_know_more_items_than_the_run(numbered: Interactions, tmp_path: Path) -> None:
    file = tmp_path / "stock.csv"
    file.write_text("item\n3\n99\nx7\n7\n")
    assert read_choice(str(file), "--only", known(numbered)) == (["3", "7"], 2)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty; give one id per line"),
        (b"\n\n", "the file is empty"),
        (b"item\n", "has a header and no ids"),
        (b"3" * 200_000, "is no list of ids; give a text file with one id per line"),
        (b"98\n99\n", "none of its 2 ids is an item of this run"),
        (b"sku,price\n3,4\n", "has 2 columns, none named item"),
        (b"\xff\xfe3", "cannot be read; give a text file"),
    ],
)
def test_bad_files_are_refused(numbered: Interactions, tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "stock.csv"
    file.write_bytes(content)
    with pytest.raises(HushrecError, match=told) as caught:
        read_choice(str(file), "--only", known(numbered))
    assert str(caught.value).startswith(f"--only {file}")
    assert "\n" not in str(caught.value)


def test_a_mask_is_of_items(numbered: Interactions) -> None:
    mask = may_be_listed(numbered, [1], None, USERS.copies)
    assert mask is not None
    assert (mask.shape, mask.dtype) == ((50,), np.bool_)
