-- TOP-UP (docs/protocol.md): puts a lease back where it is missing, while a majority still holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, tail (as in ACQUIRE), id of the caller's hold
-- Reply one string a lease: '0 counter' what it stands under, now or already; it counts for the holder only if that is T | '1' it is another's | '2' it is there from before the node forgot, and counts for nobody | '4' the epoch's tokens are used up
--       | 'E' a counter key holds no counter
--       error UNINIT when the node is not admitted under this run id.
-- Where it is there, the id is added if it is missing and has no tombstone.
-- Why atomic: it must not take a lease that another has taken meanwhile. Never (nonce, T) without the counter: a newer grant may have been stamped here.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, T, tail, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5]
  local anothers, missing, eff, known, leases, ids, dead = false, false, base, 0, {}, '', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l then
      missing = true
    elseif l.by ~= nonce then
      anothers = true
    else
      leases[i], ids, dead, known = l, merge(ids, l.ids), merge(dead, l.dead), math.max(known, tonumber(l.token))
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  if not has(dead, id) then ids = with_id(ids, id) end
  local value = math.max((eff or 0) + 1, T)
  if anothers then
    out[#out + 1] = '1'
  elseif not missing then
    for i = k, k + n - 1 do
      leases[i].ids, leases[i].dead = ids, dead
      write_lease(KEYS[i], leases[i])
    end
    out[#out + 1] = known >= base and '0 ' .. string.format('%.0f', known) or '2'
  elseif not eff then
    out[#out + 1] = 'E'
  elseif ids == '' then
    out[#out + 1] = '2'  -- its last hold was released meanwhile
  elseif value % 4294967296 == 0 then
    out[#out + 1] = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      local l = parse_lease(nonce .. ' ' .. text .. ' ' .. tail)
      l.ids, l.dead = ids, dead
      redis.call('SET', KEYS[i + n], text)
      write_lease(KEYS[i], l, ttl)
    end
    out[#out + 1] = '0 ' .. text
  end
  k, a = k + 2 * n, a + 6
end
return out
