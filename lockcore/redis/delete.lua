-- In front of release.lua: deletes a lease.
local function name_of(key) return string.sub(key, 10) end
-- Deletes the lease under a key, and notifies the managers that left a wake mark in it. Returns how many.
local function delete_lease(key, l, own_wake_mark, text)
  redis.call('DEL', key)
  local notified = 0
  for mark in string.gmatch(l.wake_marks, '\1(%x+)') do
    if mark ~= own_wake_mark then notified = notified + redis.call('PUBLISH', 'fg:wake:' .. mark, text) end
  end
  return notified
end
