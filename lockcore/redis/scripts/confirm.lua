-- CONFIRM (docs/protocol.md R3): sets the token T of the attempt, as token and stamp of the lease, and in the counter.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T
-- Reply one string for each lease: '0' done | '2' a lease is not the caller's | '3 counter' the counter is above T |
--       'E' a counter key has no counter
--       error UNINIT if the node is not admitted under this run id.
-- It never shortens the ttl, for a renewal may have run before it.
-- Why atomic: the counter must not rise above T between the test and the write.
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

local function confirm(k, n, nonce, ttl, text)
  local leases, is_owned = read_group(k, n, nonce)
  ttl = tonumber(ttl)
  for i, l in pairs(leases) do
    ttl = math.max(ttl, time_left(KEYS[i], l))
  end
  if not is_owned then return '2' end
  local counter = read_counters(k + n, n, base)
  if not counter then return 'E' end
  if counter > tonumber(text) then return '3 ' .. string.format('%.0f', counter) end
  for i = k, k + n - 1 do
    redis.call('SET', KEYS[i + n], text)
    leases[i].stamp, leases[i].token = text, text
    write_lease(KEYS[i], leases[i], ttl)
  end
  return '0'
end

return (for_each_lease(2, 4, confirm))
