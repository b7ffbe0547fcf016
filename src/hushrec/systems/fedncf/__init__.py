"""FedNCF: neural collaborative filtering by federated averaging. `system.py` is the protocol."""

from hushrec.systems.fedncf.system import SYSTEM as SYSTEM
