-- INSPECT (docs/protocol.md, require_live): tests that a lease is the caller's with the token T and has its hold. Writes no
-- lease and no counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, T, id of the hold
-- Reply one string for each lease: '0 ms renewals ttl ids\ntombstones\nclosed' with its PTTL, and the ttl that it was last given
--       | '2' lost, or the lease has not this hold: on this node it would end with the other holds
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: all resources of a lease are read at one moment.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, text, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local is_owned, left, renewals, last_ttl, holds = tonumber(text) >= base, nil, 0, '0', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce or l.token ~= text or not contains(l.ids, id) then
      is_owned = false
    else
      local ttl = redis.call('PTTL', KEYS[i])
      if not left or ttl < left then left = ttl end
      renewals, last_ttl, holds = math.max(renewals, tonumber(l.renewals)), l.ttl, format_holds(l)
    end
  end
  out[#out + 1] = is_owned and ('0 ' .. left .. ' ' .. renewals .. ' ' .. last_ttl .. ' ' .. holds) or '2'
  k, a = k + n, a + 4
end
return out
