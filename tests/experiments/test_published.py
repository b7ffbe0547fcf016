"""The numbers below are copied by hand from the FedRec++ paper, apart from the TOML files that are tested."""

from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import hushrec.experiments
from hushrec.data import CATALOGUE
from hushrec.errors import HushrecError
from hushrec.experiments.published import Kind, Row, Table, published_for, table_named, tables
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.record import Provenance, Run
from hushrec.settings import build, to_dict

# Table 2: MAE and RMSE, for rho 0, 1, 2, 3. FedRec++ has no row of its own for rho 0.
TABLE_2: dict[tuple[str, str], dict[int, tuple[float, float]]] = {
    ("ml-100k", "fedrec"): {0: (0.7418, 0.9424), 1: (0.7440, 0.9432), 2: (0.7445, 0.9431), 3: (0.7447, 0.9431)},
    ("ml-100k", "fedrec++"): {1: (0.7417, 0.9422), 2: (0.7422, 0.9430), 3: (0.7416, 0.9421)},
    ("ml-1m", "fedrec"): {0: (0.7193, 0.9106), 1: (0.7217, 0.9129), 2: (0.7239, 0.9152), 3: (0.7263, 0.9178)},
    ("ml-1m", "fedrec++"): {1: (0.7198, 0.9113), 2: (0.7195, 0.9109), 3: (0.7196, 0.9109)},
}
# (T_predict, T_local) by rho, where it matters.
TUNED = {
    "ml-100k": {0: (5, 15), 1: (10, 10), 2: (5, 15), 3: (5, 15)},
    "ml-1m": {0: (10, 15), 1: (10, 15), 2: (10, 15), 3: (10, 15)},
}
NUM_USERS = {"ml-100k": 943, "ml-1m": 6040}

ROWS = [
    pytest.param(table, row, id=f"{system} {table.name} {row.data} {row.label}")
    for (system, _), table in tables().items()
    for row in table.rows
]

# PTF-FedRec, Table III: Recall@20 and NDCG@20 of NeuMF, NGCF, LightGCN; FCF, FedMF, MetaMF; PTF with the three.
TABLE_III = {
    "ml-100k": [
        (0.1357, 0.1544), (0.1883, 0.2045), (0.1794, 0.1954), (0.1108, 0.1241), (0.1192, 0.1351), (0.1138, 0.1301),
        (0.1319, 0.1482), (0.1623, 0.1775), (0.1606, 0.1739),
    ],
    "steam-200k": [
        (0.3033, 0.2074), (0.3777, 0.2674), (0.3708, 0.2640), (0.2341, 0.1524), (0.2444, 0.1543), (0.2356, 0.1397),
        (0.2554, 0.1571), (0.3484, 0.2306), (0.3246, 0.2186),
    ],
    "gowalla-20": [
        (0.0214, 0.0177), (0.0420, 0.0334), (0.0442, 0.0333), (0.0150, 0.0093), (0.0160, 0.0108), (0.0153, 0.0112),
        (0.0202, 0.0159), (0.0345, 0.0268), (0.0330, 0.0261),
    ],
}  # fmt: skip
METHODS = [
    ("neumf", None), ("ngcf", None), ("lightgcn", None), ("fcf", None), ("fedmf", None), ("metamf", None),
    ("ptf-fedrec", "neumf"), ("ptf-fedrec", "ngcf"), ("ptf-fedrec", "lightgcn"),
]  # fmt: skip
# Table IV in kB per client and round: FCF, FedMF, MetaMF, PTF-FedRec.
TABLE_IV = {
    "ml-100k": [460, 7320, 540, 3.02],
    "steam-200k": [1310, 20980, 1630, 1.21],
    "gowalla-20": [2590, 41430, 3220, 1.59],
}
# Table V: F1 of the attack by defence.
TABLE_V = {
    "ml-100k": [0.9836, 0.5873, 0.5171, 0.4539],
    "steam-200k": [0.9838, 0.8423, 0.4706, 0.4016],
    "gowalla-20": [0.9710, 0.6782, 0.4944, 0.4236],
}
DEFENSES = ["none", "ldp", "sampling", "sampling+swapping"]


def test_every_file_of_the_folder_is_a_table() -> None:
    folder = Path(hushrec.experiments.__file__).parent
    names = {path.stem for path in folder.glob("*.toml")}
    assert names == {f"{system}-{table.name}" for (system, _), table in tables().items()}
    assert {"fedrec++-table2", "fedrec++-table3", "fedrec++-figure2"} <= names
    assert {system for system, _ in tables()} <= set(SYSTEMS)
    for (_, name), table in tables().items():
        assert table.name == name
        assert table.kind in get_args(Kind)
        assert table.claim
        assert table.paper.endswith(")")


def test_files_have_no_key_that_is_not_read() -> None:
    """msgspec ignores unknown keys: a typing error such as `denoiser-share` would go unseen."""
    for entry in files("hushrec.experiments").iterdir():
        if entry.name.endswith(".toml"):
            said: dict[str, Any] = msgspec.toml.decode(entry.read_bytes())
            assert set(said) <= set(Table.__dataclass_fields__), entry.name
            for row in said["rows"]:
                assert set(row) <= set(Row.__dataclass_fields__), row


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_rows_build_valid_configs(table: Table, row: Row) -> None:
    """With every preset that the table asks for."""
    assert row.data in CATALOGUE
    num_users = CATALOGUE[row.data].num_users
    assert num_users == NUM_USERS.get(row.data, num_users)
    for preset in table.presets_of(row):
        values = row.settings(num_users) | ({"preset": preset} if preset else {})
        assert system_named(row.system).configure(values).num_rounds > 0
    assert set(row.published) <= set(table.metrics)
    assert all(1 <= len(values) <= 2 for values in row.published.values())


def test_labels_name_rows() -> None:
    for table in tables().values():
        labels = [(row.where, row.label) for row in table.rows]
        assert len(set(labels)) == len(labels)


# --- DRIFT: published in words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["figure6.1", "figure6.2", "figure6.3"])
def test_claims_of_drift_are_about_rows_and_measures_of_the_table(name: str) -> None:
    table = table_named("drift", name)
    assert len(table.claims) >= 2
    for data in ("ml-1m", "ml-100k"):
        labels = {row.label for row in table.rows if row.data == data}
        for claim in table.claims:
            assert set(claim.rows) <= labels
            assert len(claim.rows) >= (1 if claim.relation in ("at most", "at least") else 2)
    for row in table.rows:
        assert not row.published
        config = system_named(row.system).configure(row.config)
        for metric in table.metrics:
            _, _, when = metric.partition(", epoch ")
            assert not when or int(when) <= config.epochs
        assert (row.owners, getattr(config, "theta", 2)) == ("genre" if row.system == "drift" else "", 2)


def test_the_numbers_in_the_text_of_drift() -> None:
    """Sec. 6.3: less than 10% for security, encryption 1.52%; most of the time is spent in the update parts."""
    claims = table_named("drift", "figure6.3").claims
    assert [(claim.metrics, claim.relation, claim.limit) for claim in claims] == [
        (["security layer"], "at most", 0.1),
        (["AES-GCM"], "at most", 0.0152),
        (["gradients and update"], "at least", 0.5),
    ]


def test_extensions_of_drift_have_every_setting() -> None:
    for data in ("ml-100k", "ml-1m"):
        thetas = [row.config["theta"] for row in table_named("drift", "theta").rows if row.data == data]
        owners = [row.owners for row in table_named("drift", "owners").rows if row.data == data]
        assert (thetas, owners) == ([1, 2, 5, 20], ["1", "5", "genre", "50"])
    rows = table_named("drift", "datasets").rows
    assert {(row.data, row.system) for row in rows} == set(
        product(("ml-100k", "steam-200k-hours", "gowalla-20"), ("drift", "saros"))
    )
    assert {row.data for row in rows if row.passed_over} == {"gowalla-20"}


# --- PTF-FedRec --------------------------------------------------------------------------------------------


def once(name: str, data: str) -> list[Row]:
    """The published rows on a dataset, with the first of its splits; LightGCN without the head of the code."""
    rows = [row for row in table_named("ptf-fedrec", name).rows if row.data == data and row.published]
    return [row for row in rows if row.where == rows[0].where and "server_head" not in row.config]


def of_ptf_fedrec(name: str, data: str, metric: str) -> list[float]:
    """The published column of a table, without rows of our own."""
    rows = once(name, data)
    return [row.published[metric][0] for row in rows]


@pytest.mark.parametrize("data", TABLE_III)
def test_tables_of_ptf_fedrec_are_the_papers(data: str) -> None:
    rows = once("table3", data)
    pairs = [(row.published["Recall@20"][0], row.published["NDCG@20"][0]) for row in rows]
    methods = [(row.system, row.config.get("server_model")) for row in rows]
    assert dict(zip(methods, pairs, strict=True)) == dict(zip(METHODS, TABLE_III[data], strict=True))
    assert of_ptf_fedrec("table4", data, "kB") == TABLE_IV[data]
    assert of_ptf_fedrec("table5", data, "top guess F1") == TABLE_V[data]
    defenses = [row.config["defense"] for row in once("table5", data)]
    assert defenses == DEFENSES
    assert of_ptf_fedrec("table7", data, "Recall@20")[0] == TABLE_III[data][7][0]


def test_unknown_tables_are_refused_with_the_known() -> None:
    with pytest.raises(
        HushrecError,
        match=r"no table 'table9' of fedrec\+\+; choose from figure2, table-order, table-reduces, table-",
    ):
        table_named("fedrec++", "table9")
    with pytest.raises(HushrecError, match="no table 'table2' of pmf; no table of it comes with hushrec"):
        table_named("pmf", "table2")
    with pytest.raises(HushrecError, match="no system 'nosuch'"):
        table_named("nosuch", "table2")


# --- What the paper says about a run -----------------------------------------------------------------------


def run_of(system: str, data: str, split: Any = "folds", **settings: Any) -> Run:
    config = to_dict(build(system_named(system).config, settings))
    num_users = NUM_USERS.get(data, 80)
    provenance = Provenance("", False, num_users, 1, 1, (1.0, 5.0), split, 0.2, {}, "", "")
    return Run(system, data, 0, config, provenance, 5)


@pytest.mark.parametrize(("data", "system"), list(TABLE_2))
@pytest.mark.parametrize("rho", range(4))
def test_a_run_finds_its_row(data: str, system: str, rho: int) -> None:
    predict_after, local_steps = TUNED[data][rho]
    found = published_for(run_of(system, data, rho=rho, predict_after=predict_after, local_steps=local_steps))
    if (system, rho) == ("fedrec++", 0):
        assert found is None
        return
    assert found is not None
    assert found.table == "FedRec++, Table 2: accuracy of FedRec and FedRec++"
    assert found.label == f"{'FedRec' if system == 'fedrec' else 'FedRec++'} rho {rho}"
    assert (found.values["MAE"][0], found.values["RMSE"][0]) == TABLE_2[data, system][rho]


@pytest.mark.parametrize(
    "run",
    [
        run_of("fedrec", "synthetic", rho=0),
        run_of("fedrec", "ml-100k", rho=0, num_rounds=99),
        run_of("fedrec", "ml-100k", rho=0, participation=0.2),
        run_of("fedrec", "ml-100k", rho=1),  # tuned otherwise
        run_of("fedrec++", "ml-100k", rho=3, denoisers=2),
        run_of("fedrec++", "ml-100k", rho=3, denoisers=1, update="sequential"),
        run_of("pmf", "ml-100k"),
    ],
    ids=lambda run: f"{run.system} {run.data}",
)
def test_other_runs_find_none(run: Run) -> None:
    assert published_for(run) is None


@pytest.mark.parametrize("split", ["random", "latest", "leave-one-out"])
def test_a_run_with_another_split_finds_none(split: str) -> None:
    assert published_for(run_of("fedrec", "ml-100k", split, rho=0)) is None
