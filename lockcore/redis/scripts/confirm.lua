-- CONFIRM (docs/protocol.md R3): sets the token T of the attempt, as token and stamp of the lease, and in the counter.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T
-- Reply one string for each lease: '0' done | '2' a lease is not the caller's | '3 counter' the counter is above T | 'E' a counter key has no counter
--       error UNINIT if the node is not admitted under this run id.
-- It never shortens the ttl, for a renewal may have run before it.
-- Why atomic: the counter must not rise above T between the test and the write.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local T, eff, is_owned, leases = tonumber(text), base, true, {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      leases[i] = l
      ttl = math.max(ttl, time_left(KEYS[i], l))
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  if not is_owned then
    out[#out + 1] = '2'
  elseif not eff then
    out[#out + 1] = 'E'
  elseif eff > T then
    out[#out + 1] = '3 ' .. string.format('%.0f', eff)
  else
    for i = k, k + n - 1 do
      redis.call('SET', KEYS[i + n], text)
      leases[i].stamp, leases[i].token = text, text
      write_lease(KEYS[i], leases[i], ttl)
    end
    out[#out + 1] = '0'
  end
  k, a = k + 2 * n, a + 4
end
return out
