"""DRIFT: data owners learn from encrypted interactions. Also here: its blocks, cipher, store and live mode.

`system.py` is the protocol; start there. It and all that it imports are without I/O: the store joins it here.
"""

from dataclasses import replace

from hushrec.systems.drift.store import open_store
from hushrec.systems.drift.system import PROTOCOL

SYSTEM = replace(PROTOCOL, open_store=open_store)
