"""Server extraction by 50% of the clients: see `server_extraction.py`."""

from dataclasses import replace

from hushrec.audit.attacks import server_extraction

ATTACK = replace(
    server_extraction.ATTACK,
    name="server extraction 50%",
    sentence="If 50% of the clients collude, the copy recommends {score:.0%} of what the server's model would "
    "recommend to them; with their own data alone, {chance:.0%}.",
    share=0.5,
)
