"""Open-loop load generator for the demo and the tests: ``python -m tools.load --targets URL --rate 144``.

Planned times do not move when the system is slow; how late requests were really sent is reported.
"""
