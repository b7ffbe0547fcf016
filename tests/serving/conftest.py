from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.serving.model import ServedModel, load_served

DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(scope="session")
def pmf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose server may rank; users 1 to 80, items 1 to 50, ratings 1 to 5."""
    folder = tmp_path_factory.mktemp("serving") / "pmf"
    data = hushrec.load(DATA)
    titled = replace(data, titles=np.array([f"Title {item}" for item in data.item_ids]))
    hushrec.PMF(num_rounds=10, num_factors=5).fit(titled).save(folder)
    return folder


@pytest.fixture(scope="session")
def fedrec_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation: all clients' vectors in one folder."""
    folder = tmp_path_factory.mktemp("serving") / "fedrec"
    hushrec.FedRec(num_rounds=5, num_factors=5).fit(hushrec.load(DATA)).save(folder)
    return folder


@pytest.fixture(scope="session")
def served(pmf_folder: Path) -> ServedModel:
    return load_served(pmf_folder)
