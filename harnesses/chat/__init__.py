"""`terrarium chat`: a conversation in the terminal."""
