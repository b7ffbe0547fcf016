"""Pure maths of the models: no messages, no I/O."""
