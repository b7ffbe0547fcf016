"""Federated recommender systems."""
