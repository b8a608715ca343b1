-- READMIT (PROTOCOL.md R8c, R10): lets a node vote under its live run id, with the drawn epoch as the floor of its tokens.
-- KEYS  fg:node
-- ARGV  run id for which the epoch was drawn, base = epoch × 2^32, claim written before the draw
-- Reply 'OK' | 'ALREADY' (another gateway was faster) | 'GONE' (another process lives there by now, or the data was wiped meanwhile)
-- Why atomic: the epoch is good only for the life of the process, and of its data, that was seen before the draw.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] then return 'GONE' end
local node = redis.call('HMGET', KEYS[1], 'run', 'claim')
if node[1] == ARGV[1] then return 'ALREADY' end
if node[2] ~= ARGV[3] then return 'GONE' end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'base', ARGV[2])
return 'OK'
