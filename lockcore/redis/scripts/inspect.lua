-- INSPECT (PROTOCOL.md, require_live): whether a lease is still the caller's under the token T. Changes nothing.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, T
-- Reply one string a lease: '0 ms renewals holds ttl' with the ms until it runs out, and the ttl last given | '2' lost
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: all resources of a lease are seen at one moment.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, text = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2]
  local mine, left, renewals, holds, given = tonumber(text) >= base, nil, 0, 1, '0'
  for i = k, k + n - 1 do
    local lease = redis.pcall('GET', KEYS[i])
    if type(lease) == 'table' then lease = '?' end  -- a key of another type: somebody else's
    local by, token, renewed, held, last
    if lease then by, token, renewed, held, last = string.match(lease, '^(%x+) (%d+) (%d+) (%d+) (%d+) ') end
    if by ~= nonce or token ~= text then
      mine = false
    else
      local ttl = redis.call('PTTL', KEYS[i])
      if not left or ttl < left then left = ttl end
      renewals, holds, given = math.max(renewals, tonumber(renewed)), math.max(holds, tonumber(held)), last
    end
  end
  out[#out + 1] = mine and ('0 ' .. left .. ' ' .. renewals .. ' ' .. holds .. ' ' .. given) or '2'
  k, a = k + n, a + 3
end
return out
