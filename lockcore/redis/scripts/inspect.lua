-- INSPECT (docs/protocol.md, require_live, HOLDS): tests that a lease is the caller's with the token T and has its
-- hold, and confirms the hold. Writes no counter.
-- A caller that watches the lease leaves its wake mark in it, as a waiter does (ACQUIRE).
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, T, id of the hold, wake mark ('' = none)
-- Reply one string for each lease: '0 ms renewals ttl ids\ntombstones\nclosed' with its PTTL, and the ttl that it was
--       last given
--       | '2' lost, or the lease has not this hold: on this node it would end with the other holds
--       | '2 version' the lease is the caller's but does not count for T: another token, or a stamp below the node's
--       base (docs/protocol.md, UPGRADE)
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: all resources of a lease are read at one moment.
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

local function inspect(k, n, nonce, text, id, wake_mark)
  local leases, is_owned = read_group(k, n, nonce)
  local all, is_held, left, renewals = merge_group(leases, k, n, text), true, nil, 0
  for i, l in pairs(leases) do
    local ttl = time_left(KEYS[i], l)
    if not left or ttl < left then left = ttl end
    is_held, renewals = is_held and has_hold(l.ids, id), math.max(renewals, tonumber(l.renewals))
  end
  if not is_owned or all.stamp == '' or is_released(all.tombstones, id) then return '2' end
  if not all.has_token or tonumber(all.stamp) < base then return '2 ' .. version_of(all.stamp, base) end
  if not is_held then return '2' end
  for i, l in pairs(leases) do
    local ids = confirm_id(l.ids, id)
    if ids ~= l.ids or all.close_marks ~= l.close_marks then
      l.ids, l.close_marks = ids, all.close_marks
      write_lease(KEYS[i], l)
    end
    leave_wake_mark(KEYS[i], l, wake_mark)
  end
  local last = leases[k + n - 1]
  return '0 ' .. left .. ' ' .. renewals .. ' ' .. last.ttl .. ' ' .. format_holds(last)
end

return (for_each_lease(1, 5, inspect))
