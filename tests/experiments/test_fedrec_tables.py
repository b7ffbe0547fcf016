"""Tables of the FedRec++ paper. The numbers below are copied by hand from it, apart from the TOML files."""

from itertools import product

import pytest

from hushrec import load
from hushrec.data import CATALOGUE
from hushrec.experiments.measures import measured
from hushrec.experiments.published import Row, Table, table_named
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

# Table 2: MAE and RMSE, for rho 0, 1, 2, 3. FedRec++ has no row of its own for rho 0.
TABLE_2: dict[tuple[str, str], dict[int, tuple[float, float]]] = {
    ("ml-100k", "fedrec"): {0: (0.7418, 0.9424), 1: (0.7440, 0.9432), 2: (0.7445, 0.9431), 3: (0.7447, 0.9431)},
    ("ml-100k", "fedrec++"): {1: (0.7417, 0.9422), 2: (0.7422, 0.9430), 3: (0.7416, 0.9421)},
    ("ml-1m", "fedrec"): {0: (0.7193, 0.9106), 1: (0.7217, 0.9129), 2: (0.7239, 0.9152), 3: (0.7263, 0.9178)},
    ("ml-1m", "fedrec++"): {1: (0.7198, 0.9113), 2: (0.7195, 0.9109), 3: (0.7196, 0.9109)},
    ("nf5k5k", "fedrec"): {0: (0.7139, 0.9090), 1: (0.7148, 0.9102), 2: (0.7152, 0.9104), 3: (0.7160, 0.9110)},
    ("nf5k5k", "fedrec++"): {1: (0.7137, 0.9088), 2: (0.7137, 0.9089), 3: (0.7138, 0.9090)},
}
# About these: the standard deviations of MAE and RMSE.
DEVIATIONS = {"ml-100k": (0.0045, 0.0060), "ml-1m": (0.0011, 0.0013), "nf5k5k": (0.0005, 0.0007)}

# Table 3, by eta: vectors of a denoising client, of an ordinary one, and per client.
TABLE_3 = {
    "ml-100k": {"0": (0, 170, 170), "1": (81550, 254, 258), "n/4": (571, 256, 350), "n/2": (251, 256, 294)},
    "ml-1m": {"0": (0, 265, 265), "1": (804058, 397, 399), "n/4": (903, 397, 551), "n/2": (393, 397, 460)},
    "nf5k5k": {
        "0": (0, 2535, 2535),
        "1": (6324227, 3799, 3801),
        "n/4": (7309, 3800, 4608),
        "n/2": (3537, 3799, 4172),
    },
}
ADDED_MB = {"ml-100k": 1.37, "ml-1m": 2.18, "nf5k5k": 15.8}

# (T_predict, T_local) by rho, where it matters; gamma.
TUNED = {
    "ml-100k": {0: (5, 15), 1: (10, 10), 2: (5, 15), 3: (5, 15)},
    "ml-1m": {0: (10, 15), 1: (10, 15), 2: (10, 15), 3: (10, 15)},
    "nf5k5k": {0: (5, 10), 1: (5, 10), 2: (5, 10), 3: (5, 15)},
}
LEARNING_RATES = {"ml-100k": 0.8, "ml-1m": 0.8, "nf5k5k": 1.0}
NUM_USERS = {"ml-100k": 943, "ml-1m": 6040, "nf5k5k": 5000}

NAMES = ("table2", "table3", "figure2", "table-order", "table-sdcf")
TABLES = [table_named("fedrec++", name) for name in NAMES]
ROWS = [
    pytest.param(table, row, id=f"{table.name} {row.data} {row.label}")
    for table in TABLES[:3]
    for row in table.rows
]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_settings_are_the_papers(table: Table, row: Row) -> None:
    config = build(system_named(row.system).config, row.settings(NUM_USERS[row.data]))
    assert CATALOGUE[row.data].num_users == NUM_USERS[row.data]
    assert (config.num_factors, config.num_rounds) == (20, 100)
    assert (config.decay, config.regularization) == (0.9, 0.001)
    assert (config.filling, config.resample) == ("hybrid", "every-round")
    assert (config.update, config.predict_after_counts) == ("simultaneous", "own")
    assert config.user_update == ("rated" if row.system == "fedrec++" else "rated-and-virtual")
    if table.name != "table3":  # its vectors are counted, whatever is in them
        assert f"rho {config.rho}" in row.label
        assert config.learning_rate == LEARNING_RATES[row.data]
        assert (config.predict_after, config.local_steps) == TUNED[row.data][config.rho]


def test_table_2_is_the_papers() -> None:
    table = TABLES[0]
    assert (table.kind, table.metrics, table.num_folds) == ("accuracy", ["MAE", "RMSE"], 5)
    found: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for row in table.rows:
        means = (row.published["MAE"][0], row.published["RMSE"][0])
        found.setdefault((row.data, row.system), {})[row.config["rho"]] = means
        for metric, about in zip(("MAE", "RMSE"), DEVIATIONS[row.data], strict=True):
            assert row.published[metric][1] == pytest.approx(about, abs=0.0006)
        assert row.settings(943).get("denoisers", 1) == 1
    assert found == TABLE_2


def test_table_3_is_the_papers() -> None:
    table = TABLES[1]
    assert (table.kind, table.metrics) == ("communication", ["denoising", "ordinary", "client", "added MB"])
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in table.rows:
        assert (row.system, row.config["rho"]) == ("fedrec++", 1)
        eta, _, at_random = row.label.removeprefix("eta ").partition(", ")
        num_users = NUM_USERS[row.data]
        expected = {"0": 0, "1": 1, "n/4": num_users // 4, "n/2": num_users // 2}
        assert row.settings(num_users)["denoisers"] == expected[eta]
        assert row.config.get("assignment", "dealt") == ("random" if at_random else "dealt")
        assert bool(row.published) != bool(at_random)
        if row.published:
            values = tuple(row.published[metric][0] for metric in table.metrics[:3])
            found.setdefault(row.data, {})[eta] = values
            added = row.published.get("added MB")
            assert (added[0] if added else None) == (ADDED_MB[row.data] if eta == "n/4" else None)
    assert found == TABLE_3


@pytest.mark.parametrize("data", TABLE_3)
def test_the_papers_megabytes_follow_from_its_vectors(data: str) -> None:
    """180 x 80 x 100 bytes = 1.37 MB: 100 rounds, and a MB of 2^20 bytes."""
    of_client = {eta: values[2] for eta, values in TABLE_3[data].items()}
    added = (of_client["n/4"] - of_client["0"]) * 80 * 100 / 2**20
    assert added == pytest.approx(ADDED_MB[data], abs=0.05 if data == "nf5k5k" else 0.005)


def test_added_megabytes_of_a_run() -> None:
    """Without denoisers nothing; with them, what a client sends beyond the gradients of an ordinary client."""
    data, system, table = load("synthetic:users=40,items=60,ratings=400"), system_named("fedrec++"), TABLES[1]
    added = {}
    for denoisers in (0, 10):
        config = system.configure({"rho": 1, "denoisers": denoisers, "num_rounds": 1})
        done = run(system, config, data, settings_for(system, data=data), RuntimeOptions(threads=1))
        (added[denoisers],) = measured(table, "added MB", done)
        counts = {one.type: (one.messages, one.rows) for one in done.folds[0].messages}
    assert added[0] == 0.0
    (uploads, gradients), (_, noise), (_, sums) = (
        counts[kind] for kind in ("ItemGradients", "Noise", "DenoisingSums")
    )
    vectors = (gradients + noise + 2 * sums) / 40 - gradients / uploads
    assert uploads == 30
    assert added[10] == pytest.approx(vectors * 8000 / 2**20)


def test_figure_2_has_every_combination() -> None:
    table = TABLES[2]
    expected = set(product(("ml-100k", "ml-1m"), ("fedrec", "fedrec++"), range(4), (0.2, 0.6, 1.0)))
    found = {(row.data, row.system, row.config["rho"], row.config["participation"]) for row in table.rows}
    assert found == expected
    assert len(table.rows) == len(expected)
    assert table.x_label == "rho"
    for row in table.rows:
        assert f"c {row.config['participation']}n" in row.label
        name = {"fedrec": "FedRec", "fedrec++": "FedRec++"}[row.system]
        assert row.series == f"{name}, c = {row.config['participation']}n"
        assert row.x == row.config["rho"]
        assert not row.published


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_claims_are_about_rows_and_measures_of_the_table(table: Table) -> None:
    labels = {row.label for row in table.rows}
    for claim in table.claims:
        assert set(claim.rows) <= labels
        assert len(set(claim.rows)) == len(claim.rows) >= 2
        assert set(claim.metrics) <= {*table.metrics, "bits"}
        assert (claim.relation == "identical") == (claim.metrics == ["bits"])
    assert len({claim.text for claim in table.claims}) == len(table.claims)
    assert bool(table.claims) == (table.name != "table-order")


def test_the_update_order_is_all_that_differs() -> None:
    once, first, *slower = TABLES[3].rows
    assert first.config == {**once.config, "update": "sequential"}
    assert [row.config for row in slower] == [{**first.config, "learning_rate": rate} for rate in (0.7, 0.6)]
    assert TABLES[3].num_seeds == 5
