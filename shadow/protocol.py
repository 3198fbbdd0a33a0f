"""The number of what gates, recorder and operator say to each other.

Read by shadow/recorder/api.py, which states it, and by controller/adapters/recorder_client.py, which demands it.
"""

PROTOCOL = 3
"""Raised with every change after which a recorder of the release before would misread the gates' access log (the tags
of shadow/envoy/routes.py, what shadow/envoy/lua/gate.lua writes) or count otherwise by the same setup, or after which
an operator would misread blocks."""

UNSTATED = 1
"""What a recorder speaks that states none: it is from before there was a number."""
