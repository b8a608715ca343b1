-- RELEASE (docs/protocol.md R7, HOLDS): releases one hold, or the whole lease; deletes the lease with its last hold. It
-- never changes a counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, wake mark of the caller, scope, id of the hold
--       scope: '0' the hold, '1' the whole lease, '2' the hold and its idempotency key, unless the hold is confirmed
--       (undo)
-- Reply one string for each lease: '0 notified ids\ntombstones\nclosed' with the number of other managers that were
--       notified; no ids: it is deleted
--       | '2' not all of its keys were the caller's; the hold is released on those that were. Undo: or the hold is
--       confirmed; no effect
--       error UNINIT if the node is not admitted under this run id.
-- The tombstone of the hold makes a repeated RELEASE harmless, and a later HOLD with this id has no effect.
-- Managers with waiters or watchers left a wake mark in the lease (ACQUIRE, INSPECT) and are notified by
-- PUBLISH fg:wake:MARK 'nonce resource', with ' revoked' at the end if the whole lease was released.
-- Why atomic: a lease that another holder has acquired meanwhile must not be deleted.
-- release_single.lua is in front of it: here begins what it leaves over.

-- Returns the idempotency keys but the one of this hold.
local function remove_key(keys, id)
  local others = {}
  for entry in string.gmatch(keys, '[^,]+') do
    if string.sub(entry, -16) ~= id then others[#others + 1] = entry end
  end
  return #others == 0 and '-' or table.concat(others, ',')
end

-- Releases a lease with any holds.
local function release_any(k, n, nonce, own_wake_mark, scope, id)
  local leases, is_owned = read_group(k, n, nonce)
  local all, notified = merge_group(leases, k, n), 0
  for _, l in pairs(leases) do
    if scope == '2' and id ~= confirmed(id) and contains(l.ids, confirmed(id)) then return '2' end
  end
  release_id(all, id)
  if scope == '1' then all.ids = '' end
  for i, l in pairs(leases) do
    if all.ids == '' then
      local text = nonce .. ' ' .. name_of(KEYS[i]) .. (scope == '1' and ' revoked' or '')
      notified = notified + delete_lease(KEYS[i], l, own_wake_mark, text)
    else
      l.ids, l.tombstones, l.close_marks = all.ids, all.tombstones, all.close_marks
      if scope == '2' then l.keys = remove_key(l.keys, id) end
      write_lease(KEYS[i], l)
    end
  end
  return is_owned and '0 ' .. notified .. ' ' .. format_holds(all) or '2'
end

local function release(...) return release_single(...) or release_any(...) end

return (for_each_lease(1, 5, release, replies, next_argument, next_key))
