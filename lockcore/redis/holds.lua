-- After lease.lua: the holds of a lease.
-- Lists of hold ids: 16 digits each, separated by commas.
local function contains(list, id) return string.find(list, id, 1, true) ~= nil end
local function confirmed(id)
  local digit = tonumber(string.sub(id, 16), 16) or 0 -- 0: another writer's id is shorter
  return string.sub(id, 1, 15) .. string.format('%x', digit - digit % 2 + 1)
end
local function has_hold(list, id)
  return contains(list, id) or contains(list, confirmed(id)) or contains(list, tentative(id))
end
-- The tombstone of a tentative id, left by an undo, says nothing about the confirmed one.
local function is_released(tombstones, id)
  return tombstones ~= '' and (contains(tombstones, id) or contains(tombstones, confirmed(id)))
end
local function add_id(list, id)
  if contains(list, id) or contains(list, confirmed(id)) then return list end
  if contains(list, tentative(id)) then return (string.gsub(list, tentative(id), id)) end
  return list == '' and id or list .. ',' .. id
end
local function remove_id(list, id)
  if list == id then return '' end
  if not contains(list, id) then id = tentative(id) end
  if not contains(list, id) then return list end
  return string.sub(string.gsub(',' .. list .. ',', ',' .. id .. ',', ','), 2, -2)
end
-- Replaces the tentative id of this hold by the confirmed one, which an undo does not remove; where it is not there,
-- nothing is added.
local function confirm_id(list, id) return contains(list, tentative(id)) and add_id(list, id) or list end
local function merge_ids(list, more)
  if list == '' then return more end
  for id in string.gmatch(more, '%x+') do list = add_id(list, id) end
  return list
end
local function format_holds(l) return l.ids .. '\n' .. l.tombstones .. '\n' .. l.close_marks end
-- Removes the hold from the live ids and adds its tombstone; changes only the table. A lease keeps the newest 64
-- tombstones: without its tombstone a released hold that a late HOLD, RENEW or TOP-UP adds again stays until the ttl.
local function release_id(l, id)
  local TOMBSTONES_BYTES = 64 * 17 - 1
  l.ids = remove_id(l.ids, id)
  l.tombstones = l.tombstones == '' and id or string.sub(add_id(l.tombstones, id), -TOMBSTONES_BYTES)
end
-- Names a manager to which the end of the lease is published. At most 16 of them are notified; others find out by
-- themselves.
local function leave_wake_mark(key, l, mark)
  if mark == '' or contains(l.wake_marks, '\1' .. mark) then return end
  if select(2, string.gsub(l.wake_marks, '\1', '')) < 16 then redis.call('APPEND', key, '\1' .. mark) end
end
