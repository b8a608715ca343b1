-- RELEASE (PROTOCOL.md R7): deletes the lease where it is the caller's; never touches a counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce
-- Reply {status, value, 0} for each lease, flat: 0 ok, keys deleted | 2 lost, keys deleted (not all of them were the caller's)
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: a lease that another has taken meanwhile must not be deleted.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, deleted = tonumber(ARGV[a]), ARGV[a + 1], 0
  for i = k, k + n - 1 do
    local lease = redis.call('GET', KEYS[i])
    if lease and string.sub(lease, 1, 32) == nonce then deleted = deleted + redis.call('DEL', KEYS[i]) end
  end
  local status = 2
  if deleted == n then status = 0 end
  out[#out + 1], out[#out + 2], out[#out + 3] = status, deleted, 0
  k, a = k + n, a + 2
end
return out
