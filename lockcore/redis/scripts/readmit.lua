-- READMIT (docs/protocol.md R8c, R10, FORGETTING IN ONE LIFE): lets a node vote under its live run id, with the drawn epoch as the floor of its
-- tokens. Of a node that is admitted already: settings were changed, have been looked at, and the register knows how it syncs.
-- KEYS  fg:node
-- ARGV  run id for which the epoch was drawn, base = epoch × 2^32, claim written before the draw, marks as last looked at,
--       'yes' | 'no': it synced every write when it was looked at
-- Reply 'OK' | 'ALREADY' (another gateway was faster, or only the marks are new) | 'GONE' (another process lives there by now, the data was
--       wiped meanwhile, or a command ran that is to be looked at first)
-- Why atomic: the epoch is good only for the life of the process, and of its data, that was seen before the draw.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] or command_marks() ~= ARGV[4] then return 'GONE' end
local evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')
local node = redis.call('HMGET', KEYS[1], 'run', 'claim', 'marks', 'evicted')
if node[1] == ARGV[1] then
  local lost = '^%d+ %d+'
  if string.match(node[3] or '0 0 0', lost) == string.match(ARGV[4], lost) and (node[4] or '0') == evicted then
    redis.call('HSET', KEYS[1], 'marks', ARGV[4], 'evicted', evicted)
  end
  if ARGV[5] == 'no' then redis.call('HSET', KEYS[1], 'sync', 'no') end
  return 'ALREADY'
end
if node[2] ~= ARGV[3] then return 'GONE' end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'base', ARGV[2], 'marks', ARGV[4], 'evicted', evicted, 'sync', ARGV[5])
return 'OK'
