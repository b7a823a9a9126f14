"""`terrarium init`: the first configuration."""
