-- INSPECT (docs/protocol.md, require_live, HOLDS): tests that a lease is the caller's with the token T and has its hold. Writes no counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, T, id of the hold, idempotency key
--       idempotency key: the digest of the key by which a repeated request found the hold; where the answer is '0', the hold is then taken over, and
--       the undo of the first request has no effect on it. '-' = none; writes nothing
-- Reply one string for each lease: '0 ms renewals ttl ids\ntombstones\nclosed' with its PTTL, and the ttl that it was last given
--       | '2' lost, or the lease has not this hold: on this node it would end with the other holds
--       | '2 version' the lease is the caller's but does not count for T: another token, or a stamp below the node's base (docs/protocol.md, UPGRADE)
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: all resources of a lease are read at one moment.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, text, id, key = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local is_owned, has_hold, has_token, stamp, left, renewals, last_ttl, holds, tombstones, leases = true, true, true, nil, nil, 0, '0', '', '', {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      leases[i] = l
      has_hold, has_token, stamp = has_hold and contains(l.ids, id), has_token and l.token == text, join_stamps(stamp, l)
      tombstones = merge_ids(tombstones, l.tombstones)
      local ttl = redis.call('PTTL', KEYS[i])
      if not left or ttl < left then left = ttl end
      renewals, last_ttl, holds = math.max(renewals, tonumber(l.renewals)), l.ttl, format_holds(l)
    end
  end
  if not is_owned or stamp == '' or contains(tombstones, id) then
    out[#out + 1] = '2'
  elseif not has_token or tonumber(stamp) < base then
    out[#out + 1] = '2 ' .. version_of(stamp, base)
  elseif not has_hold then
    out[#out + 1] = '2'
  else
    if key ~= '-' then
      for i = k, k + n - 1 do take_over(KEYS[i], leases[i], key, id) end
    end
    out[#out + 1] = '0 ' .. left .. ' ' .. renewals .. ' ' .. last_ttl .. ' ' .. holds
  end
  k, a = k + n, a + 5
end
return out
