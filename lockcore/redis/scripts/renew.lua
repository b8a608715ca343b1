-- RENEW and RE-ENTRANT (PROTOCOL.md): more time for a lease that is still the caller's under the token T; never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, longest hold in ms, most renewals, holds, idempotency key
--       most renewals: '' makes it another hold of a re-entrant owner: one hold more, no renewal counted.
--       holds: how many it then has at least, for a node that missed an earlier one
--       idempotency key: of that hold, '-' = none; the last eight are kept.
-- Reply one string a lease: '0 renewals holds held' with the ms held so far | '2' lost | '5 renewals' as often or as long as allowed
--       error UNINIT when the node is not admitted under this run id.
-- It never cuts the time that is left: whoever was answered may count on it.
-- Why atomic: the lease must not change hands between the test and the write.
-- How long a lease was held is the sum of what was used up of each ttl: by the node's own clock, which nobody's wall clock can stretch.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local longest, most, at_least, key = tonumber(ARGV[a + 4]), ARGV[a + 5], tonumber(ARGV[a + 6]), ARGV[a + 7]
  local mine, renewals, holds, held, rests = tonumber(text) >= base, 0, 0, 0, {}
  for i = k, k + n - 1 do
    local lease = redis.pcall('GET', KEYS[i])
    if type(lease) == 'table' then lease = '?' end  -- a key of another type: somebody else's
    local by, token, renewed, holding, given, before, rest
    if lease then by, token, renewed, holding, given, before, rest = string.match(lease, '^(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$') end
    if by ~= nonce or token ~= text then
      mine = false
    else
      local left = redis.call('PTTL', KEYS[i])
      renewals, holds, rests[i] = math.max(renewals, tonumber(renewed)), math.max(holds, tonumber(holding)), rest
      held = math.max(held, before + math.max(given - left, 0))
      ttl = math.max(ttl, left)
    end
  end
  if not mine then
    out[#out + 1] = '2'
  elseif held + ttl > longest or (most ~= '' and renewals >= tonumber(most)) then
    out[#out + 1] = '5 ' .. renewals
  else
    if most == '' then holds = math.max(holds + 1, at_least) else renewals = renewals + 1 end
    local head = string.format('%s %s %d %d %.0f %.0f ', nonce, text, renewals, holds, ttl, held)
    for i = k, k + n - 1 do
      local rest = rests[i]
      if key ~= '-' then
        local granted, keys, who = string.match(rest, '^(%d+) (%S+)(.*)$')
        if keys == '-' then keys = key else keys = string.sub(keys .. ',' .. key, -199) end  -- eight of 24 digits, and commas
        rest = granted .. ' ' .. keys .. who
      end
      redis.call('SET', KEYS[i], head .. rest, 'PX', ttl)
    end
    out[#out + 1] = string.format('0 %d %d %.0f', renewals, holds, held)
  end
  k, a = k + n, a + 8
end
return out
