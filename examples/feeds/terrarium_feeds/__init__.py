"""Terrarium tendril that posts new entries of feeds."""
