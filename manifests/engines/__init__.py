"""What is particular to engines: flag grammars, environment twins, config files, metrics, witnesses."""
