-- TOP-UP (PROTOCOL.md): puts a lease back where it is missing, while a majority still holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, holder
-- Reply {status, value, 0} for each lease, flat: 0 ok, the counter it stands under (it counts for the holder only if that is T) | 1 held, 0 (it is another's)
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: it must not take a lease that another has taken meanwhile. Never (nonce, T) without the counter: a newer grant may have been stamped here.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, T, holder = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4]
  local status, missing, eff, known = 0, false, base, 0
  for i = k, k + n - 1 do
    local lease = redis.call('GET', KEYS[i])
    if not lease then
      missing = true
    elseif string.sub(lease, 1, 32) ~= nonce then
      status = 1
    else
      known = tonumber(string.match(lease, '^%x+ (%d+)'))
    end
    local counter = tonumber(redis.call('GET', KEYS[i + n]) or '0')
    if counter > eff then eff = counter end
  end
  local value = known
  if status == 0 and missing then
    value = math.max(eff + 1, T)
    if value % 4294967296 == 0 then status = 4 end
  end
  if status == 0 then
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      if missing then redis.call('SET', KEYS[i + n], text) end
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' 0 ' .. holder, 'PX', ttl)
    end
  else
    value = 0
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = status, value, 0
  k, a = k + 2 * n, a + 5
end
return out
