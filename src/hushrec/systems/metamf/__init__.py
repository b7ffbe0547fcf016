"""MetaMF: the server generates every user's recommender. `system.py` is the protocol."""

from hushrec.systems.metamf.system import SYSTEM as SYSTEM
