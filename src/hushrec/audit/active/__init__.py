"""Lies of an active server, one file each: what it asks, and what the answers tell.

A lie knows what a server knows: settings, what it sent and got, and the types of messages by their columns. It
imports no system. Requests are made of those of the last honest round, with other values in some columns.
"""
