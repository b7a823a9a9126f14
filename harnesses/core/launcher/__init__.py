"""`terrarium up` and `terrarium doctor`: the processes of one machine."""
