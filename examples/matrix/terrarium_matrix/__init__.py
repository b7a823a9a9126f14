"""Terrarium tendril for rooms of Matrix."""
