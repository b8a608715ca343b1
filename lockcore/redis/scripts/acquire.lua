-- ACQUIRE (PROTOCOL.md R1, HAND-OVER, SEVERAL RESOURCES), any number of leases in one call, each all or nothing over its resources.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, hint (0 = none), previous nonce ('' = none), tail, mark ('' = none)
--       tail: what stands behind nonce and token in the lease, see lockcore/README.md, "On a node"
--       mark: a name under which the caller wants to be told when the lease that is in its way ends
-- Reply one string a lease:
--       '0 counter' granted; '0 counter 1' granted, and the previous lease was there
--       '1 ms token' held by another: ms until it runs out (-1 = never), its token
--       '4' the epoch's tokens are used up
--       '6 ms lease' held by this very holder (same principal, owner and resources) or by an earlier try with the same idempotency key
--       '7 holds' the previous lease has holds left, now one fewer, and stays
--       error UNINIT when the node is not admitted under this run id: nothing was done for any of them.
-- Why atomic: between the test that the lease is free and the new counter no other acquire may run.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local HEAD = '^(%x+) (%d+) (%d+) (%d+) (.*)$'  -- nonce token renewals holds rest

-- Whether the holder asks again: the same principal, a named owner, the same resources; or the same idempotency key.
local function is_callers(lease, tail)
  local from, mine = string.find(lease, '\n', 1, true), string.find(tail, '\n', 1, true)
  local who = string.match(string.sub(tail, mine), '^[^\1]*')  -- without the mark of a kept one
  if not from then return false end  -- not a lease
  local after = string.sub(lease, from + #who, from + #who)
  if string.sub(lease, from, from + #who - 1) ~= who or (after ~= '' and after ~= '\1') then return false end
  if not string.find(who, '^\n[^\n]*\n\n') then return true end
  local key = string.match(tail, '^%d+ %d+ %d+ %d+ %d+ (%x+)')
  return key and string.find(string.match(lease, '^%x+ %d+ %d+ %d+ %d+ %d+ %d+ (%S+)'), string.sub(key, 1, 16), 1, true)
end

local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, hint, prev, tail, mark = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  local held, token, found, kept, eff, leases = nil, '0', 0, 0, base, {}
  for i = k, k + n - 1 do
    local lease = redis.pcall('GET', KEYS[i])
    if type(lease) == 'table' then lease = '?' end  -- a key of another type: somebody else's
    if lease then
      leases[i] = lease
      local by = string.sub(lease, 1, 32)
      if by == prev then
        found = found + 1
        kept = math.max(kept, tonumber(string.match(lease, '^%x+ %d+ %d+ (%d+)')) - 1)
      elseif by ~= nonce then
        local left = redis.call('PTTL', KEYS[i])
        if not held or left < 0 or (held >= 0 and left > held) then
          held, token = left, string.match(lease, '^%x+ (%d+)') or '0'
        end
      end
    end
    local counter = tonumber(redis.call('GET', KEYS[i + n]) or '0')
    if counter > eff then eff = counter end
  end
  local value, answer = math.max(eff + 1, hint), nil
  if held then
    answer = '1 ' .. held .. ' ' .. token
    local first, mine = leases[k], true
    for i = k, k + n - 1 do
      local lease = leases[i]
      if not lease or string.sub(lease, 1, 32) ~= string.sub(first or '', 1, 32) or not is_callers(lease, tail) then mine = false end
      -- At most 16 who wait are told; the others look again by themselves.
      if lease and mark ~= '' and string.find(lease, '\n', 1, true) and not string.find(lease, '\1' .. mark, 1, true) and select(2, string.gsub(lease, '\1', '')) < 16 then
        redis.call('APPEND', KEYS[i], '\1' .. mark)
      end
    end
    if mine then answer = '6 ' .. held .. ' ' .. first end
  elseif kept > 0 then
    for i = k, k + n - 1 do
      if leases[i] and string.sub(leases[i], 1, 32) == prev then
        local by, T, renewals, holds, rest = string.match(leases[i], HEAD)
        redis.call('SET', KEYS[i], by .. ' ' .. T .. ' ' .. renewals .. ' ' .. math.max(tonumber(holds) - 1, 1) .. ' ' .. rest, 'KEEPTTL')
      end
    end
    answer = '7 ' .. kept
  elseif value % 4294967296 == 0 then
    answer = '4'
  else
    local text = string.format('%.0f', value)
    for i = k, k + n - 1 do
      local marks = ''
      if found > 0 and leases[i] then
        -- Who waits elsewhere is still to be told; the caller's own mark is in the tail already.
        local own = string.match(tail, '\1%x+$')
        marks = string.match(leases[i], '\1.*$') or ''
        if own then marks = string.gsub(marks, own, '') end
      end
      redis.call('SET', KEYS[i + n], text)
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail .. marks, 'PX', ttl)
    end
    answer = '0 ' .. text
    if found == n then answer = answer .. ' 1' end
  end
  out[#out + 1] = answer
  k, a = k + 2 * n, a + 7
end
return out
