-- TOP-UP (docs/protocol.md): restores a lease on a node that lost it, while a majority still holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T, tail (as in ACQUIRE), id of the caller's hold
-- Reply one string for each lease: '0 counter' the token of the lease on this node; the node counts for the holder only if that is T
--       | '1' another holder's | '2' its token is below the node's base, or its last hold was released: the node does not count
--       | '4' the tokens of the epoch are used up | 'E' a counter key has no counter
--       error UNINIT if the node is not admitted under this run id.
-- If the lease is there, the id is added if it is missing and has no tombstone.
-- Why atomic: it must not replace a lease of another holder. It writes (nonce, T) only with the counter: this node may have stamped a newer grant.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, T, tail, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5]
  local is_foreign, missing, eff, known_token, leases, ids, tombstones = false, false, base, 0, {}, '', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l then
      missing = true
    elseif l.nonce ~= nonce then
      is_foreign = true
    else
      leases[i], ids, tombstones, known_token = l, merge_ids(ids, l.ids), merge_ids(tombstones, l.tombstones), math.max(known_token, tonumber(l.token))
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  if not contains(tombstones, id) then ids = add_id(ids, id) end
  local value = math.max((eff or 0) + 1, T)
  if is_foreign then
    out[#out + 1] = '1'
  elseif not missing then
    for i = k, k + n - 1 do
      leases[i].ids, leases[i].tombstones = ids, tombstones
      write_lease(KEYS[i], leases[i])
    end
    out[#out + 1] = known_token >= base and '0 ' .. string.format('%.0f', known_token) or '2'
  elseif not eff then
    out[#out + 1] = 'E'
  elseif ids == '' then
    out[#out + 1] = '2'  -- its last hold was released before
  elseif value % 4294967296 == 0 then
    out[#out + 1] = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      local l = parse_lease(nonce .. ' ' .. text .. ' ' .. tail)
      l.ids, l.tombstones = ids, tombstones
      redis.call('SET', KEYS[i + n], text)
      write_lease(KEYS[i], l, ttl)
    end
    out[#out + 1] = '0 ' .. text
  end
  k, a = k + 2 * n, a + 6
end
return out
