-- INSPECT (docs/protocol.md, require_live): whether a lease is still the caller's under the token T, and its hold not released. Changes nothing.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, T, id of the hold
-- Reply one string a lease: '0 ms renewals ttl ids\ntombstones\nclosed' with the ms until it runs out, and the ttl last given
--       | '2' lost, or this node does not know of the hold: the lease would not outlive the other holds here
--       error UNINIT when the node is not admitted under this run id.
-- Why atomic: all resources of a lease are seen at one moment.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, text, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local mine, left, renewals, given, holds = tonumber(text) >= base, nil, 0, '0', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.by ~= nonce or l.token ~= text or not has(l.ids, id) then
      mine = false
    else
      local ttl = redis.call('PTTL', KEYS[i])
      if not left or ttl < left then left = ttl end
      renewals, given, holds = math.max(renewals, tonumber(l.renewals)), l.ttl, holds_of(l)
    end
  end
  out[#out + 1] = mine and ('0 ' .. left .. ' ' .. renewals .. ' ' .. given .. ' ' .. holds) or '2'
  k, a = k + n, a + 4
end
return out
