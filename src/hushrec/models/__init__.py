"""Maths of models that two systems share. What one system has to itself is in that system's folder.

Goes in: arrays and draws. No messages, no files, no clock.
"""
