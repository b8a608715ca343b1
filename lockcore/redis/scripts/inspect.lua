-- INSPECT (docs/protocol.md, require_live, HOLDS): tests that a lease is the caller's with the token T and has its hold, and confirms the hold. Writes no counter.
-- A caller that watches the lease leaves its wake mark in it, as a waiter does (ACQUIRE).
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, T, id of the hold, wake mark ('' = none)
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
  local n, nonce, text, id, wake_mark = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local is_owned, is_held, has_token, stamp, left, renewals, last_ttl, tombstones, marks, leases = true, true, true, nil, nil, 0, '0', '', '', {}
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      leases[i] = l
      is_held, has_token, stamp = is_held and has_hold(l.ids, id), has_token and l.token == text, join_stamps(stamp, l)
      tombstones, marks = merge_ids(tombstones, l.tombstones), merge_marks(marks, l.close_marks)
      local ttl = time_left(KEYS[i], l)
      if not left or ttl < left then left = ttl end
      renewals, last_ttl = math.max(renewals, tonumber(l.renewals)), l.ttl
    end
  end
  if not is_owned or stamp == '' or is_released(tombstones, id) then
    out[#out + 1] = '2'
  elseif not has_token or tonumber(stamp) < base then
    out[#out + 1] = '2 ' .. version_of(stamp, base)
  elseif not is_held then
    out[#out + 1] = '2'
  else
    for i = k, k + n - 1 do
      local l = leases[i]
      local ids = confirm_id(l.ids, id)
      if ids ~= l.ids or marks ~= l.close_marks then
        l.ids, l.close_marks = ids, marks
        write_lease(KEYS[i], l)
      end
      leave_wake_mark(KEYS[i], l, wake_mark)
    end
    out[#out + 1] = '0 ' .. left .. ' ' .. renewals .. ' ' .. last_ttl .. ' ' .. format_holds(leases[k + n - 1])
  end
  k, a = k + n, a + 5
end
return out
