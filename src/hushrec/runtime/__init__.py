"""What drives a system: in one process, over a network, from a checkpoint.

Goes in: any `System`. Threads, packets and files of arrays are here; no system and no model is known by name.
"""
