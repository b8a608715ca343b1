-- ACQUIRE (docs/protocol.md R1, HAND-OVER, SEVERAL RESOURCES): grants any number of leases in one call, each for all of
-- its resources or none.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' =
--       none), id of the previous hold, tail, wake mark ('' = none)
--       tail: the lease without nonce and token, see docs/protocol.md, "State"
--       wake mark: names the caller's channel, fg:wake:MARK; the end of the conflicting lease is published there
-- Reply one string for each lease:
--       '0 counter' granted; '0 counter 1' granted, and the previous lease was replaced
--       '1 ms number' another holder's: its PTTL (-1 = no ttl) and the higher of its stamp and its token, 0 if the
--       value is no lease
--       '4' the tokens of the epoch are used up
--       '6 ms lease' the same holder's (equal principal, owner and resources), or that of the same principal and
--       resources with the same idempotency key
--       '7 ids\ntombstones\nclosed' the previous hold is released; its lease has other holds and lives on
--       'E' a counter key has no counter: no effect
--       error UNINIT if the node is not admitted under this run id: no effect for any lease.
-- Why atomic: no other ACQUIRE may run between the test that the lease is free and the new counter.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

-- Returns whether the same caller asks again: equal principal, named owner and resources; or an equal idempotency key
-- of the same principal, with any owner.
local function without_owner(identity) return (string.gsub(identity, '^(\n[^\n]*\n)[^\n]*', '%1')) end
local function is_same_caller(l, request)
  if request.keys ~= '-' and contains(l.keys, string.sub(request.keys, 1, 16)) then
    return without_owner(l.identity) == without_owner(request.identity)
  end
  return l.identity == request.identity and not string.find(request.identity, '^\n[^\n]*\n\n')
end

-- The higher of the stamp and the token of a lease; '0' if the value is no lease.
local function highest_number(l)
  if l == FOREIGN then return '0' end
  return tonumber(l.stamp) > tonumber(l.token) and l.stamp or l.token
end

-- Answers that other leases are there, of which the last one ends after `left`.
local function refuse(k, n, leases, left, number, request, wake_mark)
  local first = leases[k]
  local text = first and first ~= FOREIGN and redis.call('GET', KEYS[k])
  local is_own = text
  for i = k, k + n - 1 do
    local l = leases[i]
    if l and l ~= FOREIGN then
      is_own = is_own and l.nonce == first.nonce and is_same_caller(l, request)
      leave_wake_mark(KEYS[i], l, wake_mark)
    else
      is_own = false
    end
  end
  return is_own and '6 ' .. left .. ' ' .. text or '1 ' .. left .. ' ' .. number
end

-- Releases the previous hold, whose lease has other holds.
local function release_previous(k, n, leases, previous, previous_hold, other_holds)
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

-- Returns the wake marks that go over from the previous lease to the new one: those of other managers. The caller's own
-- one is in the tail already.
local function wake_marks_of_others(previous_lease, tail)
  local own = string.match(tail, '\1%x+$')
  return own and string.gsub(previous_lease.wake_marks, own, '') or previous_lease.wake_marks
end

-- Writes the lease with this number, and the counters.
local function grant(k, n, leases, nonce, ttl, tail, text)
  for i = k, k + n - 1 do
    redis.call('SET', KEYS[i + n], text)
    local l = leases[i]
    if l and l.nonce == nonce then
      -- A late request finds the lease here already, put back by TOP-UP or INSTALL, perhaps extended and with other
      -- holds: only its number changes.
      l.stamp, l.token = text, text
      local id = string.sub(nonce, 17)
      if not is_released(l.tombstones, id) then l.ids = add_id(l.ids, id) end
      write_lease(KEYS[i], l, math.max(tonumber(ttl), time_left(KEYS[i], l)))
    else
      local wake_marks = l and wake_marks_of_others(l, tail) or ''
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail .. wake_marks, 'PX', ttl)
    end
  end
end

local function acquire(k, n, nonce, ttl, hint, previous, previous_hold, tail, wake_mark)
  local leases, previous_found, other_holds, longest, number = {}, 0, '', nil, nil
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    leases[i] = l
    if l and l.nonce == previous then
      previous_found, other_holds = previous_found + 1, merge_ids(other_holds, remove_id(l.ids, previous_hold))
    elseif l and l.nonce ~= nonce then
      local left = time_left(KEYS[i], l)
      if not longest or left < 0 or (longest >= 0 and left > longest) then longest, number = left, highest_number(l) end
    end
  end
  if longest then
    return refuse(k, n, leases, longest, number, parse_lease(nonce .. ' 0 ' .. tail), wake_mark)
  elseif other_holds ~= '' then
    return release_previous(k, n, leases, previous, previous_hold, other_holds)
  end
  local counter = read_counters(k + n, n, base)
  if not counter then return 'E' end
  local value = math.max(counter + 1, tonumber(hint))
  if value % 4294967296 == 0 then return '4' end
  local text = string.format('%.0f', value)
  grant(k, n, leases, nonce, ttl, tail, text)
  return '0 ' .. text .. (previous_found == n and ' 1' or '')
end

return for_each_lease(2, 8, acquire)
