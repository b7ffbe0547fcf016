"""All systems on one dataset, as published and repaired: accuracy, bytes, CPU time, and what attackers learn.

In comes a dataset; out comes a `Survey`, row by row. Settings that repair are declared by the systems themselves
(`About.repairs`). It may use everything that runs and audits, and knows no system by name.
"""
