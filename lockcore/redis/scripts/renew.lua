-- RENEW and HOLD (docs/protocol.md, RENEW, RE-ENTRANT, HOLDS): extends a lease that is the caller's with the token T; never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T, longest hold in ms, limit of renewals, id of the hold, idempotency key
--       limit of renewals: '' selects HOLD, a further hold of a re-entrant owner, which counts no renewal
--       id: is added if it is missing and has no tombstone; HOLD adds it also where the lease does not count for T, which keeps the key but is
--       answered '2 version'
--       idempotency key: the digest of the hold's key, '-' = none; a lease keeps the newest eight
-- Reply one string for each lease: '0 renewals held ids\ntombstones\nclosed' with the ms for which it has been held
--       | '2' lost: not all of its keys are the caller's with one stamp, or the id was released; HOLD: or the lease has a CLOSE mark
--       | '2 version' the lease is the caller's but does not count for T: another token, or a stamp below the node's base (docs/protocol.md, UPGRADE)
--       | '5 renewals' the limit of renewals or of time is reached; HOLD: '5 holds' the limit of holds is reached, '5 0' that of time
--       error UNINIT if the node is not admitted under this run id.
-- It never shortens the ttl, for an earlier caller may rely on it.
-- Why atomic: the holder must not change between the test and the write.
-- The time held is the sum of the elapsed part of each ttl, by the node's own timers; no wall clock changes it.
local HOLDS_MAX = 64
local RENEWALS_COUNTED = 999999999 -- a lease has nine digits for them; only a kept lease is renewed further
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local hold_max, renewals_max, id, key = tonumber(ARGV[a + 4]), ARGV[a + 5], ARGV[a + 6], ARGV[a + 7]
  local adds_hold = renewals_max == ''
  local is_owned, has_token, stamp, renewals, held, leases, ids, tombstones, close_marks = true, true, nil, 0, 0, {}, '', '', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      local left = math.max(time_left(KEYS[i], l), 0)
      leases[i], ids, tombstones = l, merge_ids(ids, l.ids), merge_ids(tombstones, l.tombstones)
      close_marks = merge_marks(close_marks, l.close_marks)
      has_token, stamp = has_token and l.token == text, join_stamps(stamp, l)
      renewals, held = math.max(renewals, tonumber(l.renewals)), math.max(held, l.held + math.max(l.ttl - left, 0))
      ttl = math.max(ttl, left)
    end
  end
  local counts, lost = is_owned and has_token and stamp ~= '' and tonumber(stamp) >= base, '2'
  if is_owned and not counts and stamp ~= '' then lost = '2 ' .. version_of(stamp, base) end
  if not is_owned or is_released(tombstones, id) or (adds_hold and close_marks ~= '') then
    out[#out + 1] = '2'
  elseif not counts and not adds_hold then
    out[#out + 1] = lost
  elseif adds_hold and not has_hold(ids, id) and (#ids + 1) / 17 >= HOLDS_MAX then
    out[#out + 1] = counts and '5 ' .. HOLDS_MAX or lost
  elseif held + ttl > hold_max or (not adds_hold and renewals >= tonumber(renewals_max)) then
    out[#out + 1] = counts and '5 ' .. (adds_hold and 0 or renewals) or lost
  else
    if not adds_hold then renewals = math.min(renewals + 1, RENEWALS_COUNTED) end
    ids = add_id(ids, id)
    for i = k, k + n - 1 do
      local l = leases[i]
      l.renewals, l.held = string.format('%d', renewals), string.format('%.0f', held)
      l.ids, l.tombstones, l.close_marks = ids, tombstones, close_marks
      if key ~= '-' then
        local entry = key .. ':' .. id
        if not contains(l.keys, entry) then l.keys = l.keys == '-' and entry or string.sub(l.keys .. ',' .. entry, -KEYS_BYTES) end
      end
      write_lease(KEYS[i], l, ttl)
    end
    out[#out + 1] = counts and string.format('0 %d %.0f ', renewals, held) .. format_holds(leases[k]) or lost
  end
  k, a = k + n, a + 8
end
return out
