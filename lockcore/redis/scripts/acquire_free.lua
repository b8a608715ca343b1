-- The first part of ACQUIRE (acquire.lua follows): grants the leases of the call, up to the first one that needs more
-- than this: a key has another lease than the previous one, or that has another hold.
-- KEYS and ARGV  those of acquire.lua
-- Reply if each lease is granted or refused here: those of acquire.lua; otherwise none, acquire.lua goes on with the
--       next lease
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

-- The leases that were read, by the index of their key.
local leases = {}

-- Writes the lease under each of its keys with the next number, and the counters. The leases that are there are the
-- previous ones, which are replaced, and the caller's own, for which it calls `raise_own`. Returns the reply.
local function grant(k, n, nonce, ttl, hint, tail, previous_found, raise_own)
  local counter = read_counters(k + n, n, base)
  if not counter then return 'E' end
  local value = math.max(counter + 1, tonumber(hint))
  if value % 4294967296 == 0 then return '4' end
  local text = string.format('%.0f', value)
  for i = k, k + n - 1 do
    redis.call('SET', KEYS[i + n], text)
    local l = leases[i]
    if l and l.nonce == nonce then
      raise_own(KEYS[i], l, ttl, text)
    else
      -- The wake marks of other managers go over from the previous lease. The caller's own one is in the tail already.
      local own = l and string.match(tail, '\1%x+$')
      local wake_marks = l and (own and string.gsub(l.wake_marks, own, '') or l.wake_marks) or ''
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. tail .. wake_marks, 'PX', ttl)
    end
  end
  return '0 ' .. text .. (previous_found == n and ' 1' or '')
end

local function acquire_free(k, n, nonce, ttl, hint, previous, previous_hold, tail)
  local previous_found = 0
  for i = k, k + n - 1 do
    -- For a free key PTTL alone is enough.
    local l = (previous ~= '' or redis.call('PTTL', KEYS[i]) ~= -2) and read_lease(KEYS[i])
    if l then
      leases[i] = l
      local is_replaced = l.nonce == previous and (l.ids == previous_hold or l.ids == tentative(previous_hold))
      if not is_replaced then return nil end
      previous_found = previous_found + 1
    end
  end
  return grant(k, n, nonce, ttl, hint, tail, previous_found)
end

local replies, next_argument, next_key = for_each_lease(2, 8, acquire_free)
if next_argument > #ARGV then return replies end
