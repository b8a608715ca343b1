-- RENEW and RE-ENTRANT (PROTOCOL.md): more time for a lease that is still the caller's under the token T; never creates one.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, ttl in ms, T, most renewals, holds, idempotency key
--       most renewals: '' makes it another hold of a re-entrant owner: one hold more, no renewal counted, and never less time than there was.
--       holds: how many it then has at least, for a node that missed an earlier one
--       idempotency key: of that hold, '-' = none; the last eight are kept.
-- Reply one string a lease: '0 renewals holds' | '2' lost | '5 renewals' as many renewals as allowed
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: the lease must not change hands between the test and the write.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text, most, at_least, key = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4], tonumber(ARGV[a + 5]), ARGV[a + 6]
  local mine, renewals, holds, rests = tonumber(text) >= base, 0, 0, {}
  for i = k, k + n - 1 do
    local lease = redis.call('GET', KEYS[i])
    local by, token, renewed, held, rest
    if lease then by, token, renewed, held, rest = string.match(lease, '^(%x+) (%d+) (%d+) (%d+) %d+ (.*)$') end
    if by ~= nonce or token ~= text then
      mine = false
    else
      renewals, holds, rests[i] = math.max(renewals, tonumber(renewed)), math.max(holds, tonumber(held)), rest
      if most == '' then ttl = math.max(ttl, redis.call('PTTL', KEYS[i])) end
    end
  end
  if not mine then
    out[#out + 1] = '2'
  elseif most ~= '' and renewals >= tonumber(most) then
    out[#out + 1] = '5 ' .. renewals
  else
    if most == '' then holds = math.max(holds + 1, at_least) else renewals = renewals + 1 end
    for i = k, k + n - 1 do
      local rest = rests[i]
      if key ~= '-' then
        local granted, keys, who = string.match(rest, '^(%d+) (%S+)(.*)$')
        if keys == '-' then keys = key else keys = string.sub(keys .. ',' .. key, -199) end  -- eight of 24 digits, and commas
        rest = granted .. ' ' .. keys .. who
      end
      redis.call('SET', KEYS[i], nonce .. ' ' .. text .. ' ' .. renewals .. ' ' .. holds .. ' ' .. string.format('%.0f', ttl) .. ' ' .. rest, 'PX', ttl)
    end
    out[#out + 1] = '0 ' .. renewals .. ' ' .. holds
  end
  k, a = k + n, a + 7
end
return out
