"""Systems on a real network: kits, nodes, the server's job and who watches over it."""
