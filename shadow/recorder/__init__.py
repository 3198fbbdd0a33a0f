"""The recorder: access logs in, closed blocks and records out."""
