"""Messages between a tendril and a model: their parts, log lines, escaping, errors."""
