"""A tendril of Terrarium that posts what is new in feeds."""
