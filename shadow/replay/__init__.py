"""`weighlock replay`: sends the requests of a recorded trace, open loop, and measures the answers as the gate does.

Order to read: `traces` (files of many formats -> rows), `schedule` (rows -> what is sent when, with which text),
`sender` (sends it and keeps the records). Called by controller/cli/replay.py.
"""
