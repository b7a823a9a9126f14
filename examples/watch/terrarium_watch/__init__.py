"""Terrarium tendril that watches addresses, disks and processes."""
