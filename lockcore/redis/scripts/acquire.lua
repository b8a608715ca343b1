-- ACQUIRE (docs/protocol.md R1, HAND-OVER, SEVERAL RESOURCES): grants any number of leases in one call, each for all of
-- its resources or none.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys; the key of a shared resource ends with a
--       tab and the nonce (shared.lua)
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' =
--       none), id of the previous hold, tail, wake mark ('' = none)
--       tail: the lease without nonce and token, see docs/protocol.md, "State"
--       wake mark: names the caller's channel, fg:wake:MARK; the end of the conflicting lease is published there
-- Reply one string for each lease:
--       '0 counter' granted; '0 counter 1' granted, and the previous lease was replaced
--       '1 ms number' another holder's: its PTTL (-1 = no ttl) and the higher of its stamp and its token, 0 if the
--       value is no lease; for an index or a wait mark the highest counter
--       '4' the tokens of the epoch are used up
--       '6 ms lease' the same holder's (equal principal, owner and resources), or that of the same principal and
--       resources with the same idempotency key
--       '7 ids\ntombstones\nclosed' the previous hold is released; its lease has other holds and lives on
--       'E' a counter key has no counter: no effect
--       error UNINIT if the node is not admitted under this run id: no effect for any lease.
-- Why atomic: no other ACQUIRE may run between the test that the lease is free and the new counter.
-- acquire_free.lua is in front of it: here begins what it leaves over. What needs shared leases is left to
-- acquire_shared.lua.

-- The higher of the stamp and the token of a lease; '0' if the value is no lease.
local function highest_number(l)
  if l == FOREIGN then return '0' end
  return tonumber(l.stamp) > tonumber(l.token) and l.stamp or l.token
end

-- Answers that other leases are there, under the keys `places`, of which the last one ends after `left`.
local function refuse(k, n, places, left, number, tail, wake_mark)
  local keys, identity = parse_caller(tail)
  local first, is_own = leases[k], true
  for i = k, k + n - 1 do
    local l = leases[i]
    is_own = is_own and l and l ~= FOREIGN and l.nonce == first.nonce and is_same_caller(l, keys, identity)
  end
  local reply = is_own and '6 ' .. left .. ' ' .. redis.call('GET', places[k]) or '1 ' .. left .. ' ' .. number
  for i = k, k + n - 1 do
    local l = leases[i]
    if l and l ~= FOREIGN then leave_wake_mark(places[i], l, wake_mark) end
  end
  return reply
end

-- Releases the previous hold, whose lease has other holds.
local function release_previous(k, n, previous, previous_hold, other_holds)
  local answer
  for i = k, k + n - 1 do
    local l = leases[i]
    if l and l.nonce == previous then
      release_id(l, previous_hold)
      l.ids = other_holds
      write_lease(KEYS[i], l)
      answer = '7 ' .. format_holds(l)
    end
  end
  return answer
end

-- Gives the caller's own lease this number. A late request finds it here, put back by TOP-UP or INSTALL, perhaps
-- extended and with other holds: nothing else changes.
local function raise_own(key, l, ttl, text)
  l.stamp, l.token = text, text
  local id = string.sub(l.nonce, 17)
  if not is_released(l.tombstones, id) then l.ids = add_id(l.ids, id) end
  write_lease(key, l, math.max(tonumber(ttl), time_left(key, l)))
end

local function has_index(key) return redis.pcall('GETRANGE', key, '0', '6') == 'shared ' end

local function acquire(k, n, nonce, ttl, hint, previous, previous_hold, tail, wake_mark)
  local previous_found, other_holds, longest, number = 0, '', nil, nil
  for i = k, k + n - 1 do
    local l = leases[i] or read_lease(KEYS[i])
    leases[i] = l
    if l == FOREIGN and has_index(KEYS[i]) then return nil end
    if l and l.nonce == previous then
      previous_found, other_holds = previous_found + 1, merge_ids(other_holds, remove_id(l.ids, previous_hold))
    elseif l and l.nonce ~= nonce then
      local left = time_left(KEYS[i], l)
      if not longest or left < 0 or (longest >= 0 and left > longest) then longest, number = left, highest_number(l) end
    end
  end
  if longest then
    return refuse(k, n, KEYS, longest, number, tail, wake_mark)
  elseif other_holds ~= '' then
    return release_previous(k, n, previous, previous_hold, other_holds)
  end
  return grant(k, n, nonce, ttl, hint, tail, previous_found, raise_own)
end

replies, next_argument, next_key = for_each_lease(2, 8, acquire, replies, next_argument, next_key)
if next_argument > #ARGV then return replies end
