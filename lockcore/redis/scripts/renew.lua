-- RENEW and HOLD (docs/protocol.md, RENEW, RE-ENTRANT, HOLDS): extends a lease that is the caller's with the token T;
-- never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T, longest hold in ms, limit of renewals,
--       id of the hold, idempotency key
--       limit of renewals: '' selects HOLD, a further hold of a re-entrant owner, which counts no renewal
--       id: is added if it is missing and has no tombstone; HOLD adds it also where the lease does not count for T,
--       which keeps the key but is answered '2 version'
--       idempotency key: the digest of the hold's key, '-' = none; a lease keeps the newest eight
-- Reply one string for each lease: '0 renewals held ids\ntombstones\nclosed' with the ms for which it has been held
--       | '2' lost: not all of its keys are the caller's with one stamp, or the id was released; HOLD: or the lease has
--       a CLOSE mark
--       | '2 version' the lease is the caller's but does not count for T: another token, or a stamp below the node's
--       base (docs/protocol.md, UPGRADE)
--       | '5 renewals' the limit of renewals or of time is reached; HOLD: '5 holds' the limit of holds is reached, '5
--       0' that of time
--       error UNINIT if the node is not admitted under this run id.
-- It never shortens the ttl, for an earlier caller may rely on it.
-- Why atomic: the holder must not change between the test and the write.
-- The time held is the sum of the elapsed part of each ttl, by the node's own timers; no wall clock changes it.
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

local function renew(k, n, nonce, ttl, text, hold_max, renewals_max, id, key)
  local HOLDS_MAX = 64
  local RENEWALS_COUNTED = 999999999 -- a lease has nine digits for them; only a kept lease is renewed further
  local adds_hold = renewals_max == ''
  local leases, is_owned = read_group(k, n, nonce)
  local all, renewals, held = merge_group(leases, k, n, text), 0, 0
  ttl = tonumber(ttl)
  for i, l in pairs(leases) do
    local left = math.max(time_left(KEYS[i], l), 0)
    renewals, held = math.max(renewals, tonumber(l.renewals)), math.max(held, l.held + math.max(l.ttl - left, 0))
    ttl = math.max(ttl, left)
  end
  if not is_owned or is_released(all.tombstones, id) or (adds_hold and all.close_marks ~= '') then return '2' end
  local counts = all.has_token and all.stamp ~= '' and tonumber(all.stamp) >= base
  local lost = not counts and (all.stamp ~= '' and '2 ' .. version_of(all.stamp, base) or '2')
  if lost and not adds_hold then return lost end
  if adds_hold and not has_hold(all.ids, id) and (#all.ids + 1) / 17 >= HOLDS_MAX then
    return lost or '5 ' .. HOLDS_MAX
  end
  if held + ttl > tonumber(hold_max) or (not adds_hold and renewals >= tonumber(renewals_max)) then
    return lost or '5 ' .. (adds_hold and 0 or renewals)
  end
  if not adds_hold then renewals = math.min(renewals + 1, RENEWALS_COUNTED) end
  all.ids = add_id(all.ids, id)
  local renewals_text, held_text = string.format('%d', renewals), string.format('%.0f', held)
  for i, l in pairs(leases) do
    l.renewals, l.held = renewals_text, held_text
    l.ids, l.tombstones, l.close_marks = all.ids, all.tombstones, all.close_marks
    local entry = key ~= '-' and key .. ':' .. id
    if entry and not contains(l.keys, entry) then
      l.keys = l.keys == '-' and entry or string.sub(l.keys .. ',' .. entry, -KEYS_BYTES)
    end
    write_lease(KEYS[i], l, ttl)
  end
  return lost or '0 ' .. renewals_text .. ' ' .. held_text .. ' ' .. format_holds(all)
end

return (for_each_lease(1, 8, renew))
