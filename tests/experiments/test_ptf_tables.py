"""PTF-FedRec's tables as files: numbers of the paper, splits, presets, claims that can be decided."""

from collections import defaultdict

import pytest

from hushrec.experiments.published import Row, Table, table_named
from hushrec.registry import system_named

NAMES = ["table3", "table4", "table5", "table6", "table7", "table8", "figure3", "figure4"]
DATA = ("ml-100k", "steam-200k", "gowalla-20")
# Table VII: Recall@20 and NDCG@20 of both, -hard, -confidence, neither.
TABLE_VII = {
    "ml-100k": [(0.1623, 0.1775), (0.1611, 0.1724), (0.1602, 0.1706), (0.1566, 0.1674)],
    "steam-200k": [(0.3484, 0.2306), (0.3294, 0.2126), (0.3256, 0.2059), (0.3107, 0.1895)],
    "gowalla-20": [(0.0345, 0.0268), (0.0334, 0.0262), (0.0323, 0.0243), (0.0316, 0.0247)],
}
# Table VIII: a row per client, a column per server.
TABLE_VIII = [[0.1482, 0.1775, 0.1739], [0.1327, 0.1711, 0.1544], [0.1386, 0.1640, 0.1549]]


def table(name: str) -> Table:
    return table_named("ptf-fedrec", name)


def once(name: str, data: str) -> list[Row]:
    """The rows on a dataset, with the first of its splits."""
    rows = [row for row in table(name).rows if row.data == data]
    return [row for row in rows if row.where == rows[0].where]


def published(name: str, data: str, metric: str) -> list[float]:
    return [row.published[metric][0] for row in once(name, data) if row.published]


@pytest.mark.parametrize("data", DATA)
def test_table_6_follows_from_table_5(data: str) -> None:
    """Its published numbers are the quotients of Table V's, rounded or cut off to a tenth."""
    first, *others = zip(
        published("table5", data, "top guess F1"), published("table5", data, "NDCG@20"), strict=True
    )
    printed = published("table6", data, "F1 lost per NDCG lost")
    assert len(printed) == len(others) == 3
    for (f1, ndcg), ours in zip(others, printed, strict=True):
        assert abs((first[0] - f1) / (first[1] - ndcg) - ours) < 0.1, (data, f1)


def test_tables_5_and_6_are_the_same_runs() -> None:
    one, other = table("table5"), table("table6")
    assert [(row.label, row.where, row.config) for row in one.rows] == [
        (row.label, row.where, row.config) for row in other.rows
    ]
    assert other.ratio is not None
    assert {other.ratio.of, other.ratio.to} < set(one.metrics)
    assert all({other.ratio.of, other.ratio.to, *row.probes} == set(one.metrics) for row in other.rows)
    assert other.ratio.baseline == one.rows[0].label == "none"
    assert one.presets == other.presets


def test_without_sampling_table_5_shows_told_items_and_has_a_scale_for_each_dataset() -> None:
    for row in table("table5").rows:
        is_whole = row.config["defense"] in ("none", "ldp")
        assert (row.config.get("unsampled") == "trained") == is_whole
    scales = {row.data: row.config["laplace_scale"] for row in table("table5").rows if row.label == "ldp"}
    assert scales == {"ml-100k": 0.57, "steam-200k": 0.27, "gowalla-20": 0.44}


@pytest.mark.parametrize("data", DATA)
def test_table_7_is_the_papers(data: str) -> None:
    columns = (published("table7", data, metric) for metric in ("Recall@20", "NDCG@20"))
    assert list(zip(*columns, strict=True)) == TABLE_VII[data]
    strategies = [row.config["dispersal"] for row in once("table7", data)]
    assert strategies == ["confidence+hard", "confidence", "hard", "random"]


def test_table_8_is_the_papers() -> None:
    assert published("table8", "ml-100k", "NDCG@20") == [number for row in TABLE_VIII for number in row]
    assert not any(row.published for data in DATA[1:] for row in once("table8", data)), "said without numbers"


@pytest.mark.parametrize("name", NAMES)
def test_ml_100k_is_split_by_time_first_and_then_at_random(name: str) -> None:
    """But for bytes, which do not depend on it."""
    wheres = list(dict.fromkeys(row.where for row in table(name).rows))
    of_ml = ["ml-100k"] if name == "table4" else ["ml-100k, by time", "ml-100k, at random"]
    assert wheres == [*of_ml, "steam-200k", "gowalla-20"]


@pytest.mark.parametrize("name", NAMES)
def test_claims_name_rows_and_metrics_that_are_there(name: str) -> None:
    labels = defaultdict(set)
    for row in table(name).rows:
        assert row.label not in labels[row.where], "a label stands for one row"
        labels[row.where].add(row.label)
    assert table(name).claims
    for claim in table(name).claims:
        assert set(claim.metrics) <= set(table(name).metrics)
        assert len(set(claim.rows)) == len(claim.rows)
        assert all(set(claim.rows) <= here for here in labels.values()), claim.text


@pytest.mark.parametrize("name", NAMES)
def test_presets_and_settings_of_all_rows_exist(name: str) -> None:
    several = {"table3": ["paper", "released", "fitted"], "table4": ["paper", "released"]}
    expected = several.get(name, ["paper"])
    for row in table(name).rows:
        presets = table(name).presets_of(row)
        assert presets == (expected if row.system == "ptf-fedrec" else presets)
        for preset in presets:
            system_named(row.system).configure(row.config | ({"preset": preset} if preset else {}))


def test_models_in_one_place_stop_by_validation() -> None:
    for row in table("table3").rows:
        assert row.stop_by == ("NDCG@20" if row.system in ("neumf", "ngcf", "lightgcn") else "")


@pytest.mark.parametrize(("name", "usual"), [("figure3", "table5"), ("figure4", "table3")])
def test_figures_have_points_and_what_is_published_of_the_usual_settings(name: str, usual: str) -> None:
    assert table(name).x_label
    label = "sampling+swapping" if usual == "table5" else "PTF-FedRec(NGCF)"
    system = system_named("ptf-fedrec")
    for data in DATA:
        (known,) = (row.published for row in once(usual, data) if row.label == label)
        points = [(row.series, row.x) for row in once(name, data)]
        assert len(set(points)) == len(points)
        for row in once(name, data):
            is_usual = system.configure(row.config) == system.configure({})
            assert row.published == (known if is_usual else {})
