-- The most talkative nicks are sorted when they are asked for.
DROP INDEX people_lines;
