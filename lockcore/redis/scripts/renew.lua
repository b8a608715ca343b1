-- RENEW (PROTOCOL.md): a new ttl for a lease that is still the caller's under the token T; never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, most renewals
-- Reply {status, value, 0} for each lease, flat: 0 ok, renewals so far | 2 lost, 0 | 5 exhausted, renewals so far
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: the lease must not change hands between the test and the write.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text, most = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], tonumber(ARGV[a + 4])
  local mine, renewals, holder = tonumber(text) >= base, 0, ''
  for i = k, k + n - 1 do
    local lease = redis.call('GET', KEYS[i])
    local by, token, count, rest
    if lease then by, token, count, rest = string.match(lease, '^(%x+) (%d+) (%d+) (.*)$') end
    if by ~= nonce or token ~= text then
      mine = false
    else
      renewals, holder = math.max(renewals, tonumber(count)), rest
    end
  end
  local status = 0
  if not mine then
    status, renewals = 2, 0
  elseif renewals >= most then
    status = 5
  else
    renewals = renewals + 1
    for i = k, k + n - 1 do
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. renewals .. ' ' .. holder, 'PX', ttl)
    end
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = status, renewals, 0
  k, a = k + n, a + 5
end
return out
