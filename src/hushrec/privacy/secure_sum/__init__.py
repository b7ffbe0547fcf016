"""Secure sums: a server learns the sum of the parties' numbers, and no single party's.

After Bell, Bonawitz, Gascón, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead
(CCS 2020), which is Bonawitz et al. (CCS 2017) on a sparse random graph. In: a system whose server only adds up
what it is sent, and its settings. Out: the same system with a switch. It touches no file and no socket.
"""
