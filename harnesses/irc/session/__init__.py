"""The state machine of one connection: registration, SASL, channels, message handlers."""
