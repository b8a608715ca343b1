-- TOP-UP (PROTOCOL.md): puts a lease back where it is missing, while a majority still holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, tail (as in ACQUIRE)
-- Reply one string a lease: '0 counter' what it stands under, now or already; it counts for the holder only if that is T | '1' it is another's | '2' it is there from before the node forgot, and counts for nobody | '4' the epoch's tokens are used up
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: it must not take a lease that another has taken meanwhile. Never (nonce, T) without the counter: a newer grant may have been stamped here.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, T, tail = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4]
  local anothers, missing, eff, known = false, false, base, 0
  for i = k, k + n - 1 do
    local lease = redis.pcall('GET', KEYS[i])
    if type(lease) == 'table' then lease = '?' end  -- a key of another type: somebody else's
    if not lease then
      missing = true
    elseif string.sub(lease, 1, 32) ~= nonce then
      anothers = true
    else
      known = math.max(known, tonumber(string.match(lease, '^%x+ (%d+)')))
    end
    local counter = tonumber(redis.call('GET', KEYS[i + n]) or '0')
    if counter > eff then eff = counter end
  end
  local value = math.max(eff + 1, T)
  if anothers then
    out[#out + 1] = '1'
  elseif not missing then
    out[#out + 1] = known >= base and '0 ' .. string.format('%.0f', known) or '2'
  elseif value % 4294967296 == 0 then
    out[#out + 1] = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      redis.call('SET', KEYS[i + n], text)
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail, 'PX', ttl)
    end
    out[#out + 1] = '0 ' .. text
  end
  k, a = k + 2 * n, a + 5
end
return out
