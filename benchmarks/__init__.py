"""Benchmarks of Terrarium on real components: `make bench`."""
