-- Keys of channels are not logged: beside a mode k all parameters of a change are left out.
UPDATE events SET text = substr(text, 1, instr(text, ' ')) || '*'
WHERE type = 'MODE' AND instr(text, ' ') > 0
    AND instr(substr(text, 1, instr(text, ' ')), 'k') > 0;
