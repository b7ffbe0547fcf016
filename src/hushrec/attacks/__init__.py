"""Attacks on what a party really saw, one file each."""
