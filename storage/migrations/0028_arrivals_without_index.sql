-- An event is seldom looked for in a table of 20,000 rows; the index was written with each line.
DROP INDEX arrivals_event;
