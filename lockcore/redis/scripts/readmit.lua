-- READMIT (docs/protocol.md R8c, R10, FORGETTING IN ONE LIFE): admits a node under its live run id, with the drawn
-- epoch as the lower bound of its tokens. For a node that is admitted already it writes the marks of the settings that
-- were checked, and 'sync'.
-- KEYS  fg:node
-- ARGV  run id for which the epoch was drawn, base = epoch × 2^32, claim written before the draw, marks at the last
--       check, 'yes' | 'no': whether it synced every write at the last check, mark for which leases were installed
--       ('' or missing = none were, docs/protocol.md, FAST READMISSION)
-- Reply 'OK' | 'ALREADY' (another gateway admitted it before, or only the marks were written) | 'GONE' (the server was
--       restarted, its data was wiped, its command marks have changed, or it has another mark: the node must be
--       identified again)
-- It deletes the mark, so that nothing is installed for it later.
-- Why atomic: the epoch is valid only for the process and the data that were identified before the draw.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] or command_marks() ~= ARGV[4] then return 'GONE' end
local evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')
local node = redis.call('HMGET', KEYS[1], 'run', 'claim', 'marks', 'evicted', 'mark')
if node[1] == ARGV[1] then
  local lost = '^%d+ %d+'
  if string.match(node[3] or '0 0 0', lost) == string.match(ARGV[4], lost) and (node[4] or '0') == evicted then
    redis.call('HSET', KEYS[1], 'marks', ARGV[4], 'evicted', evicted)
  end
  if ARGV[5] == 'no' then redis.call('HSET', KEYS[1], 'sync', 'no') end
  return 'ALREADY'
end
local mark, life = ARGV[6] or '', live .. ' ' .. ARGV[4] .. ' '
if node[2] ~= ARGV[3] or (mark ~= '' and (node[5] ~= mark or string.sub(mark, 1, #life) ~= life)) then return 'GONE' end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'base', ARGV[2], 'marks', ARGV[4], 'evicted', evicted, 'sync', ARGV[5])
redis.call('HDEL', KEYS[1], 'mark')
return 'OK'
