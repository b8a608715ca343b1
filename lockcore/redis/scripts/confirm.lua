-- CONFIRM (docs/protocol.md R3): brings this node to the token T that the attempt settled on.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T
-- Reply one string a lease: '0' done | '2' a lease is not the caller's | '3 counter' the node is past T | 'E' a counter key holds no counter
--       error UNINIT when the node is not admitted under this run id.
-- It never cuts the time that is left: a renewal may have been faster.
-- Why atomic: the counter must not pass T between the test and the write.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local T, eff, mine, leases = tonumber(text), base, true, {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.by ~= nonce then
      mine = false
    else
      leases[i] = l
      ttl = math.max(ttl, redis.call('PTTL', KEYS[i]))
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  if not mine then
    out[#out + 1] = '2'
  elseif not eff then
    out[#out + 1] = 'E'
  elseif eff > T then
    out[#out + 1] = '3 ' .. string.format('%.0f', eff)
  else
    for i = k, k + n - 1 do
      redis.call('SET', KEYS[i + n], text)
      leases[i].token = text
      write_lease(KEYS[i], leases[i], ttl)
    end
    out[#out + 1] = '0'
  end
  k, a = k + 2 * n, a + 4
end
return out
