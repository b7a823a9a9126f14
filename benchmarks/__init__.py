"""What Terrarium costs, measured on real parts: `make bench`."""
