"""Access tokens, cookies and the middleware that checks them."""
