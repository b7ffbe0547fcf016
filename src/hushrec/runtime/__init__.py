"""What drives the systems: in one process, over a wire, from a checkpoint."""
