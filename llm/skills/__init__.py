"""Skills: abilities that enter a prompt only for questions that call for them."""
