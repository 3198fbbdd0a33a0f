"""What benchmark tools leave behind, under our names: request records where a tool wrote its requests with their times,
else summaries, which are compared in one look. Called by `weighlock judge`; takes decoded documents, opens nothing.
"""
