-- ACQUIRE (PROTOCOL.md R1), any number of leases in one call, each all or nothing over its resources.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' = none), holder
-- Reply {status, value, extra} for each lease, flat:
--       0 ok, counter, 0 | 1 held, ms until it runs out (-1 = never), holder's token | 4 overflow, 0, 0
--       error UNINIT when the node is not admitted under this run id: nothing was done for any of them.
-- Why atomic: between the test that the lease is free and the new counter no other acquire may run.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, hint, prev, holder = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5]
  local held, token, eff = nil, 0, base
  for i = k, k + n - 1 do
    local lease = redis.call('GET', KEYS[i])
    if lease then
      local by = string.sub(lease, 1, 32)
      if by ~= nonce and by ~= prev then
        local left = redis.call('PTTL', KEYS[i])
        if not held or left < 0 or (held >= 0 and left > held) then
          held, token = left, tonumber(string.match(lease, '^%x+ (%d+)'))
        end
      end
    end
    local counter = tonumber(redis.call('GET', KEYS[i + n]) or '0')
    if counter > eff then eff = counter end
  end
  local status, value, extra = 0, math.max(eff + 1, hint), 0
  if held then
    status, value, extra = 1, held, token
  elseif value % 4294967296 == 0 then
    status, value = 4, 0
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      redis.call('SET', KEYS[i + n], text)
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' 0 ' .. holder, 'PX', ttl)
    end
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = status, value, extra
  k, a = k + 2 * n, a + 6
end
return out
