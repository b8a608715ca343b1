-- ACQUIRE (docs/protocol.md R1, HAND-OVER, SEVERAL RESOURCES), any number of leases in one call, each all or nothing over its resources.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' = none), id of the previous hold, tail, mark ('' = none)
--       tail: what stands behind nonce and token in the lease, see docs/protocol.md, "State"
--       mark: a name under which the caller wants to be told when the lease that is in its way ends
-- Reply one string a lease:
--       '0 counter' granted; '0 counter 1' granted, and the previous lease was there
--       '1 ms token' held by another: ms until it runs out (-1 = never), its token, 0 where the value is no lease
--       '4' the epoch's tokens are used up
--       '6 ms lease' held by this very holder (same principal, owner and resources) or by an earlier try with the same idempotency key
--       '7 ids\ntombstones\nclosed' the previous hold is given back; its lease has others left, and stays
--       'E' a counter key holds no counter: nothing was done
--       error UNINIT when the node is not admitted under this run id: nothing was done for any of them.
-- Why atomic: between the test that the lease is free and the new counter no other acquire may run.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

-- Whether the holder asks again: the same principal, a named owner, the same resources; or the same idempotency key.
local function is_callers(l, asks)
  if l.who ~= asks.who then return false end
  if not string.find(asks.who, '^\n[^\n]*\n\n') then return true end
  return asks.keys ~= '-' and has(l.keys, string.sub(asks.keys, 1, 16))
end

local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, hint, tail, mark = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 6], ARGV[a + 7]
  local prev, prev_id = ARGV[a + 4], ARGV[a + 5]
  local held, token, found, others, eff, leases = nil, '0', 0, '', base, {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l then
      leases[i] = l
      if l.by == prev then
        found, others = found + 1, merge(others, without_id(l.ids, prev_id))
      elseif l.by ~= nonce then
        local left = redis.call('PTTL', KEYS[i])
        if not held or left < 0 or (held >= 0 and left > held) then held, token = left, l.token or '0' end
      end
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  local value, answer = math.max((eff or 0) + 1, hint), nil
  if held then
    answer = '1 ' .. held .. ' ' .. token
    local first, mine, asks = leases[k], true, parse_lease(nonce .. ' 0 ' .. tail)
    local text = first and first ~= ANOTHERS and redis.call('GET', KEYS[k])
    for i = k, k + n - 1 do
      local l = leases[i]
      if not l or l == ANOTHERS or not text or l.by ~= first.by or not is_callers(l, asks) then mine = false end
      -- At most 16 who wait are told; the others look again by themselves.
      if l and l ~= ANOTHERS and mark ~= '' and not has(l.marks, '\1' .. mark) and select(2, string.gsub(l.marks, '\1', '')) < 16 then
        redis.call('APPEND', KEYS[i], '\1' .. mark)
      end
    end
    if mine then answer = '6 ' .. held .. ' ' .. text end
  elseif others ~= '' then
    for i = k, k + n - 1 do
      local l = leases[i]
      if l and l.by == prev then
        release_id(l, prev_id)
        l.ids = others
        write_lease(KEYS[i], l)
        answer = '7 ' .. holds_of(l)
      end
    end
  elseif not eff then
    answer = 'E'
  elseif value % 4294967296 == 0 then
    answer = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      local marks = ''
      if found > 0 and leases[i] then
        -- Who waits elsewhere is still to be told; the caller's own mark is in the tail already.
        local own = string.match(tail, '\1%x+$')
        marks = leases[i].marks
        if own then marks = string.gsub(marks, own, '') end
      end
      redis.call('SET', KEYS[i + n], text)
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail .. marks, 'PX', ttl)
    end
    answer = '0 ' .. text
    if found == n then answer = answer .. ' 1' end
  end
  out[#out + 1] = answer
  k, a = k + 2 * n, a + 8
end
return out
