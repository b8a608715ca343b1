-- RELEASE (docs/protocol.md R7, HOLDS): releases one hold, or the whole lease; deletes the lease with its last hold. It never changes a counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, wake mark of the caller, scope, id of the hold
--       scope: '0' the hold, '1' the whole lease, '2' the hold and its idempotency key, unless the hold is confirmed (undo)
-- Reply one string for each lease: '0 notified ids\ntombstones\nclosed' with the number of other managers that were notified; no ids: it is deleted
--       | '2' not all of its keys were the caller's; the hold is released on those that were. Undo: or the hold is confirmed; no effect
--       error UNINIT if the node is not admitted under this run id.
-- The tombstone of the hold makes a repeated RELEASE harmless, and a later HOLD with this id has no effect.
-- Managers with waiters or watchers left a wake mark in the lease (ACQUIRE, INSPECT) and are notified by PUBLISH fg:wake:MARK 'nonce resource', with
-- ' revoked' at the end if the whole lease was released.
-- Why atomic: a lease that another holder has acquired meanwhile must not be deleted.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end

-- Releases a lease with any holds and returns the reply for it.
local function release(k, n, nonce, own_wake_mark, scope, id)
  local matching, notified, leases, merged = 0, 0, {}, nil
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l and l.nonce == nonce then
      if scope == '2' and id ~= confirmed(id) and contains(l.ids, confirmed(id)) then return '2' end
      matching, leases[i] = matching + 1, l
      if not merged then
        merged = n == 1 and l or {ids = l.ids, tombstones = l.tombstones, close_marks = l.close_marks}
      else
        merged.ids, merged.tombstones = merge_ids(merged.ids, l.ids), merge_ids(merged.tombstones, l.tombstones)
        merged.close_marks = merge_marks(merged.close_marks, l.close_marks)
      end
    end
  end
  if not merged then merged = {ids = '', tombstones = '', close_marks = ''} end
  release_id(merged, id)
  if scope == '1' then merged.ids = '' end
  for i, l in pairs(leases) do
    if merged.ids == '' then
      redis.call('DEL', KEYS[i])
      if l.wake_marks ~= '' then
        local text = nonce .. ' ' .. string.sub(KEYS[i], 10) .. (scope == '1' and ' revoked' or '')
        for mark in string.gmatch(l.wake_marks, '\1(%x+)') do
          if mark ~= own_wake_mark then notified = notified + redis.call('PUBLISH', 'fg:wake:' .. mark, text) end
        end
      end
    else
      l.ids, l.tombstones, l.close_marks = merged.ids, merged.tombstones, merged.close_marks
      if scope == '2' then
        local other_keys = ''
        for entry in string.gmatch(l.keys, '[^,]+') do
          if string.sub(entry, -16) ~= id then other_keys = other_keys == '' and entry or other_keys .. ',' .. entry end
        end
        l.keys = other_keys == '' and '-' or other_keys
      end
      write_lease(KEYS[i], l)
    end
  end
  return matching == n and '0 ' .. notified .. ' ' .. format_holds(merged) or '2'
end

local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, own_wake_mark, scope, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  -- The fast path for most leases: one resource, one hold, no tombstone, no wake mark. A value that begins with the caller's nonce and ends with
  -- its hold id, or the tentative one, is the caller's lease, so it is not parsed.
  local text = n == 1 and read_text(KEYS[k], LEASE_BYTES)
  local holds = text and string.sub(text, -19)
  if text and string.sub(text, 1, 33) == nonce .. ' ' and (holds == '\n' .. id .. '\n\n' or (scope ~= '2' and holds == '\n' .. tentative(id) .. '\n\n')) then
    redis.call('DEL', KEYS[k])
    out[#out + 1] = '0 0 \n' .. id .. '\n'
  else
    out[#out + 1] = release(k, n, nonce, own_wake_mark, scope, id)
  end
  k, a = k + n, a + 5
end
return out
