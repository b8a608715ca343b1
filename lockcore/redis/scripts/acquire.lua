-- ACQUIRE (docs/protocol.md R1, HAND-OVER, SEVERAL RESOURCES): grants any number of leases in one call, each for all of its resources or none.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' = none), id of the previous hold, tail,
--       wake mark ('' = none)
--       tail: the lease without nonce and token, see docs/protocol.md, "State"
--       wake mark: names the caller's channel, fg:wake:MARK; the end of the conflicting lease is published there
-- Reply one string for each lease:
--       '0 counter' granted; '0 counter 1' granted, and the previous lease was replaced
--       '1 ms number' another holder's: its PTTL (-1 = no ttl) and the higher of its stamp and its token, 0 if the value is no lease
--       '4' the tokens of the epoch are used up
--       '6 ms lease' the same holder's (equal principal, owner and resources), or that of the same principal and resources with the same idempotency key
--       '7 ids\ntombstones\nclosed' the previous hold is released; its lease has other holds and lives on
--       'E' a counter key has no counter: no effect
--       error UNINIT if the node is not admitted under this run id: no effect for any lease.
-- Why atomic: no other ACQUIRE may run between the test that the lease is free and the new counter.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

-- Returns whether the same caller asks again: equal principal, named owner and resources; or an equal idempotency key of the same principal, with any owner.
local function without_owner(identity) return (string.gsub(identity, '^(\n[^\n]*\n)[^\n]*', '%1')) end
local function is_same_caller(l, request)
  if request.keys ~= '-' and contains(l.keys, string.sub(request.keys, 1, 16)) then return without_owner(l.identity) == without_owner(request.identity) end
  return l.identity == request.identity and not string.find(request.identity, '^\n[^\n]*\n\n')
end

local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, hint, tail, wake_mark = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 6], ARGV[a + 7]
  local previous, previous_hold = ARGV[a + 4], ARGV[a + 5]
  local held, number, previous_found, other_holds, eff, leases = nil, '0', 0, '', base, {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l then
      leases[i] = l
      if l.nonce == previous then
        previous_found, other_holds = previous_found + 1, merge_ids(other_holds, remove_id(l.ids, previous_hold))
      elseif l.nonce ~= nonce then
        local left = time_left(KEYS[i], l)
        if not held or left < 0 or (held >= 0 and left > held) then
          held, number = left, l == FOREIGN and '0' or tonumber(l.stamp) > tonumber(l.token) and l.stamp or l.token
        end
      end
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  local value, answer = math.max((eff or 0) + 1, hint), nil
  if held then
    answer = '1 ' .. held .. ' ' .. number
    local first, is_own, request = leases[k], true, parse_lease(nonce .. ' 0 ' .. tail)
    local text = first and first ~= FOREIGN and redis.call('GET', KEYS[k])
    for i = k, k + n - 1 do
      local l = leases[i]
      if not l or l == FOREIGN or not text or l.nonce ~= first.nonce or not is_same_caller(l, request) then is_own = false end
      if l and l ~= FOREIGN then leave_wake_mark(KEYS[i], l, wake_mark) end
    end
    if is_own then answer = '6 ' .. held .. ' ' .. text end
  elseif other_holds ~= '' then
    for i = k, k + n - 1 do
      local l = leases[i]
      if l and l.nonce == previous then
        release_id(l, previous_hold)
        l.ids = other_holds
        write_lease(KEYS[i], l)
        answer = '7 ' .. format_holds(l)
      end
    end
  elseif not eff then
    answer = 'E'
  elseif value % 4294967296 == 0 then
    answer = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      local wake_marks = ''
      if previous_found > 0 and leases[i] then
        -- The wake marks of other managers go over to the new lease; the caller's own one is in the tail already.
        local own = string.match(tail, '\1%x+$')
        wake_marks = leases[i].wake_marks
        if own then wake_marks = string.gsub(wake_marks, own, '') end
      end
      redis.call('SET', KEYS[i + n], text)
      local l = leases[i]
      if l and l.nonce == nonce then
        -- A late request finds the lease here already, put back by TOP-UP or INSTALL, perhaps extended and with other holds: only its number changes.
        l.stamp, l.token = text, text
        if not is_released(l.tombstones, string.sub(nonce, 17)) then l.ids = add_id(l.ids, string.sub(nonce, 17)) end
        write_lease(KEYS[i], l, math.max(tonumber(ttl), time_left(KEYS[i], l)))
      else
        redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail .. wake_marks, 'PX', ttl)
      end
    end
    answer = '0 ' .. text
    if previous_found == n then answer = answer .. ' 1' end
  end
  out[#out + 1] = answer
  k, a = k + 2 * n, a + 8
end
return out
