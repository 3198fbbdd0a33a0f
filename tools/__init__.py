"""Development tools: nothing here ships with the product, and the product imports none of it."""
