"""FedMF: item vectors under homomorphic encryption. `system.py` is the protocol."""

from hushrec.systems.fedmf.system import SYSTEM as SYSTEM
