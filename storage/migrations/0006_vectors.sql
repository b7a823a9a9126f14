-- What lines mean, as one embedding model sees it; a vector goes with its event.
CREATE TABLE vectors (
    event_id INTEGER PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    vector BLOB NOT NULL -- float32, of length one
) STRICT;
-- One row: the model of all vectors, and whether they have once reached the oldest line.
CREATE TABLE vector_model (name TEXT NOT NULL, complete INTEGER NOT NULL) STRICT;
