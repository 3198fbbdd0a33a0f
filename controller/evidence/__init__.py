"""The evidence API of the operator: what is known of a rollout, for whoever may `get` it."""
