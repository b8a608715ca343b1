-- RENEW and HOLD (docs/protocol.md, RENEW, RE-ENTRANT, HOLDS): more time for a lease that is still the caller's under the token T; never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, longest hold in ms, most renewals, id of the hold, idempotency key
--       most renewals: '' makes it HOLD, another hold of a re-entrant owner: no renewal is counted.
--       id: added where it is missing and has no tombstone. HOLD adds it also where the token is another: that keeps the key there, and counts for nobody.
--       idempotency key: of that hold, '-' = none; the last eight are kept.
-- Reply one string a lease: '0 renewals held ids\ntombstones\nclosed' with the ms held so far
--       | '2' lost: not the caller's under T, or the id was released; HOLD: or the lease is closed to further holds
--       | '5 renewals' as often or as long as allowed; HOLD: '5 holds', as many as a lease may have, or '5 0', as long as allowed
--       error UNINIT when the node is not admitted under this run id.
-- It never cuts the time that is left: whoever was answered may count on it.
-- Why atomic: the lease must not change hands between the test and the write.
-- How long a lease was held is the sum of what was used up of each ttl: by the node's own clock, which nobody's wall clock can stretch.
local HOLDS_MAX = 64
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local longest, most, id, key = tonumber(ARGV[a + 4]), ARGV[a + 5], ARGV[a + 6], ARGV[a + 7]
  local holding = most == ''
  local there, current, renewals, held, leases, ids, dead, closed = true, tonumber(text) >= base, 0, 0, {}, '', '', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.by ~= nonce then
      there = false
    else
      local left = math.max(redis.call('PTTL', KEYS[i]), 0)
      leases[i], ids, dead = l, merge(ids, l.ids), merge(dead, l.dead)
      if l.closed ~= '' then closed = l.closed end
      current = current and l.token == text
      renewals, held = math.max(renewals, tonumber(l.renewals)), math.max(held, l.held + math.max(l.ttl - left, 0))
      ttl = math.max(ttl, left)
    end
  end
  if not there or has(dead, id) or (holding and closed ~= '') or not (current or holding) then
    out[#out + 1] = '2'
  elseif holding and not has(ids, id) and (#ids + 1) / 17 >= HOLDS_MAX then
    out[#out + 1] = current and '5 ' .. HOLDS_MAX or '2'
  elseif held + ttl > longest or (not holding and renewals >= tonumber(most)) then
    out[#out + 1] = current and '5 ' .. (holding and 0 or renewals) or '2'
  else
    if not holding then renewals = renewals + 1 end
    ids = with_id(ids, id)
    for i = k, k + n - 1 do
      local l = leases[i]
      l.renewals, l.ttl, l.held = string.format('%d', renewals), string.format('%.0f', ttl), string.format('%.0f', held)
      l.ids, l.dead, l.closed = ids, dead, closed
      if key ~= '-' then
        local entry = key .. ':' .. id
        l.keys = l.keys == '-' and entry or string.sub(l.keys .. ',' .. entry, -KEYS_BYTES)
      end
      write_lease(KEYS[i], l, ttl)
    end
    out[#out + 1] = current and string.format('0 %d %.0f ', renewals, held) .. holds_of(leases[k]) or '2'
  end
  k, a = k + n, a + 8
end
return out
