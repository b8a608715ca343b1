-- INSTALL (docs/protocol.md, FAST READMISSION): writes a page of the leases that other nodes hold to a node that is not
-- admitted yet.
-- KEYS  fg:node, then the lease keys
-- ARGV  live run id, mark, then for each lease key: value, remaining time in ms
-- Reply 'OK' | 'GONE' (the server was restarted, its data was wiped or loaded anew, or it has another mark): no effect
--       | 'ALREADY' the node is admitted: no effect
-- It overwrites the node's own value of each key. A shared lease is named in the index, which replaces another lease.
-- Why atomic: the leases were read for this life of the node, and an admitted node has leases of its own.
local node = redis.call('HMGET', KEYS[1], 'run', 'mark')
if string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') ~= ARGV[1] then return 'GONE' end
if node[1] == ARGV[1] then return 'ALREADY' end
local life = ARGV[1] .. ' ' .. command_marks() .. ' '
if node[2] ~= ARGV[2] or string.sub(ARGV[2], 1, #life) ~= life then return 'GONE' end
for i = 2, #KEYS do
  local key, ttl = KEYS[i], ARGV[2 * i]
  redis.call('SET', key, ARGV[2 * i - 1], 'PX', ttl)
  if is_shared(key) then
    if not read_index(index_of(key)) then redis.call('DEL', index_of(key)) end
    add_holder(key, read_any(key), tonumber(ttl))
  end
end
return 'OK'
