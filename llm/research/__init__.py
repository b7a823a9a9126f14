"""Research: a question answered in steps, by claims that each name the lines that say them."""
