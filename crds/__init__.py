"""The API of Weighlock. Imports nothing of ours."""
