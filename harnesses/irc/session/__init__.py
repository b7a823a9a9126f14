"""One connection as a state machine: registration, SASL, channels, handlers."""
