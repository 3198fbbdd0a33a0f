"""Benchmarks of the development tools and of the product's hot paths; each is a command that prints JSON."""
