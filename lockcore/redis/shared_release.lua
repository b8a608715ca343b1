-- Between merge.lua and release.lua, in a call with shared leases: how they are deleted.
local function release_single() end
local function name_of(key) return string.sub(is_shared(key) and index_of(key) or key, 10) end
-- Removes a holder whose lease was deleted. With the last one it deletes the index, and publishes its end to each
-- manager that left a wake mark in it, the caller's own one too: that one does not know that it was the last. On each
-- node another one may be the last, so the message names none. Returns how many others were notified.
local function leave_index(key, own_wake_mark)
  local place, notified = index_of(key), 0
  local index = read_index(place)
  if not index then return 0 end
  remove_holder(index, nonce_of(key))
  if has_holders(place, index) then
    write_index(place, index)
    return 0
  end
  for mark in string.gmatch(index.wake_marks, '\1(%x+)') do
    local count = redis.call('PUBLISH', 'fg:wake:' .. mark, string.rep('0', 32) .. ' ' .. name_of(key))
    if mark ~= own_wake_mark then notified = notified + count end
  end
  index.wake_marks = ''
  local waits = redis.call('PTTL', wait_mark_of(place))
  if waits > 0 then write_index(place, index, waits) else redis.call('DEL', place) end
  return notified
end
local delete_any = delete_lease
local function delete_lease(key, l, own_wake_mark, text)
  local notified = delete_any(key, l, own_wake_mark, text)
  return notified + (is_shared(key) and leave_index(key, own_wake_mark) or 0)
end
