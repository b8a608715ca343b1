-- In front of each script that reads leases: parses and writes the value of a lease key (docs/protocol.md, "State").
-- A script never fails on a value of another writer: a value of any other type or form is treated as another holder's
-- lease (FOREIGN).
-- The second word is the stamp of the lease on this node, `S`, which is its token too, or `S:T` with another token T
-- (0: none yet).
local FORM = '^(%x+) (%d+)(:?%d*) (%d+) (%d+) (%d+) (%d+) (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\n'
  .. '([%x,]*)\n([%x,]*)\n([0-9a-f]*)(.*)$'
local FOREIGN = {}
-- A lease keeps the newest 8 idempotency keys and the newest 64 tombstones. Without its tombstone a released hold that
-- a late HOLD, RENEW or TOP-UP adds again stays until the ttl.
local KEYS_BYTES, TOMBSTONES_BYTES = 8 * 42 - 1, 64 * 17 - 1
-- CLOSE marks: 32 digits each, the id of the hold and 16 of the call. CLOSE keeps eight; of a merge the newest 64 are
-- kept.
local MARK_BYTES, MARKS_BYTES = 32, 8 * 8 * 32

local function parse_lease(text)
  local nonce, stamp, token, renewals, ttl, held, granted, keys, identity, ids, tombstones, close_marks, wake_marks =
    string.match(text, FORM)
  if not nonce or #nonce ~= 32 or #stamp > 16 or #token > 17 or token == ':' then return FOREIGN end
  if #renewals > 9 or #ttl > 13 or #held > 13 or #granted > 15 or #keys > KEYS_BYTES then return FOREIGN end
  if #close_marks % MARK_BYTES ~= 0 or #close_marks > MARKS_BYTES then return FOREIGN end
  if wake_marks ~= '' and string.byte(wake_marks) ~= 1 then return FOREIGN end
  token = token == '' and stamp or string.sub(token, 2)
  return {nonce = nonce, stamp = stamp, token = token, renewals = renewals, ttl = ttl, held = held, granted = granted,
    keys = keys, identity = identity, ids = ids, tombstones = tombstones, close_marks = close_marks,
    wake_marks = wake_marks}
end
-- Another writer's value may be large: no more of it is read than a lease can have.
local LEASE_BYTES = 16384
-- Returns the text, at most one byte more than `bytes_max` of it; nil if there is no key, false if its value is no
-- string.
local function read_text(key, bytes_max)
  local text = redis.pcall('GETRANGE', key, 0, bytes_max)
  if type(text) ~= 'string' then
    if string.find(text.err, '^WRONGTYPE') then return false end
    error(text)
  end
  if text == '' and redis.call('PTTL', key) == -2 then return nil end
  return text
end
-- Returns nil if there is no lease.
local function read_lease(key)
  local text = read_text(key, LEASE_BYTES)
  if text == nil then return nil end
  return text and #text <= LEASE_BYTES and parse_lease(text) or FOREIGN
end
-- Returns the lease of an attempt under each of the n keys from KEYS[k] on, by the index of the key; whether it is
-- under all of them, and whether another lease is under one.
local function read_group(k, n, nonce)
  local leases, is_complete, has_others = {}, true, false
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l and l.nonce == nonce then
      leases[i] = l
    else
      is_complete, has_others = false, has_others or l ~= nil
    end
  end
  return leases, is_complete, has_others
end
-- The number by which UPGRADE recognizes a lease that does not count: it changes with each loss of the lease and with
-- each admission of the node.
local function version_of(stamp, base) return string.format('%.0f', math.max(tonumber(stamp), base)) end
-- `ttl` in ms, which the lease then has as its ttl; nil keeps the time of the key.
local function write_lease(key, l, ttl)
  if ttl then l.ttl = string.format('%.0f', ttl) end
  local stamp = l.token == l.stamp and l.stamp or l.stamp .. ':' .. l.token
  local text = l.nonce .. ' ' .. stamp .. ' ' .. l.renewals .. ' ' .. l.ttl .. ' ' .. l.held .. ' ' .. l.granted .. ' '
    .. l.keys .. l.identity .. '\n' .. l.ids .. '\n' .. l.tombstones .. '\n' .. string.sub(l.close_marks, -MARKS_BYTES)
    .. l.wake_marks
  if ttl then redis.call('SET', key, text, 'PX', l.ttl) else redis.call('SET', key, text, 'KEEPTTL') end
end
-- Returns the time left of a lease in ms; negative without one. Redis counts by the wall clock, and where that was set
-- back the key has more time than it was given: it gets the ttl of the lease (docs/protocol.md, CLOCK SET BACK).
local function time_left(key, l)
  local left = redis.call('PTTL', key)
  if l == FOREIGN or left <= tonumber(l.ttl) then return left end
  write_lease(key, l, math.max(tonumber(l.ttl), 1))
  return tonumber(l.ttl)
end
-- Returns nil if the value is no counter: this node can then neither grant nor confirm a token of the bucket.
local function read_counter(key)
  local text = read_text(key, 16)
  if text == nil then return 0 end
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  return tonumber(text)
end
-- Returns the effective counter of n counter keys: the highest of the base and the counters; nil if one key has no
-- counter.
local function read_counters(k, n, base)
  local highest = base
  for i = k, k + n - 1 do
    local counter = read_counter(KEYS[i])
    if not counter then return nil end
    highest = math.max(highest, counter)
  end
  return highest
end

-- Runs a command for each lease of the call, which has `keys` keys for each resource and `count` arguments, the first
-- of them the number of its resources: with the index of its first key, and with its arguments. Returns the replies.
local function for_each_lease(keys, count, command)
  local replies, k = {}, 2
  for a = 2, #ARGV, count do
    replies[#replies + 1] = command(k, tonumber(ARGV[a]), unpack(ARGV, a + 1, a + count - 1))
    k = k + keys * tonumber(ARGV[a])
  end
  return replies
end

-- Lists of hold ids: 16 digits each, separated by commas.
local function contains(list, id) return string.find(list, id, 1, true) ~= nil end
-- A hold with an idempotency key has two ids (docs/protocol.md, HOLDS): the tentative one, an even number, which its
-- first request sends and undoes, and the confirmed one, the next number, which its callers get. They are one hold, so
-- a list has at most one of them, and the confirmed one replaces the other.
local DIGITS = '0123456789abcdef'
local function confirmed(id)
  local at = string.find(DIGITS, string.sub(id, 16), 1, true)
  return string.sub(id, 1, 15) .. string.sub(DIGITS, at + at % 2, at + at % 2)
end
local function tentative(id)
  local at = string.find(DIGITS, string.sub(id, 16), 1, true)
  return string.sub(id, 1, 15) .. string.sub(DIGITS, at - 1 + at % 2, at - 1 + at % 2)
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
-- Removes the hold from the live ids and adds its tombstone; changes only the table.
local function release_id(l, id)
  l.ids = remove_id(l.ids, id)
  l.tombstones = l.tombstones == '' and id or string.sub(add_id(l.tombstones, id), -TOMBSTONES_BYTES)
end
local function remove_mark(marks, mark)
  for at = 1, #marks, MARK_BYTES do
    if string.sub(marks, at, at + MARK_BYTES - 1) == mark then
      return string.sub(marks, 1, at - 1) .. string.sub(marks, at + MARK_BYTES)
    end
  end
  return marks
end
-- Each mark once; those of `more` are the newest.
local function merge_marks(marks, more)
  for at = 1, #more, MARK_BYTES do
    local mark = string.sub(more, at, at + MARK_BYTES - 1)
    marks = remove_mark(marks, mark) .. mark
  end
  return marks
end
-- Returns what the leases of a group have together: holds, tombstones and CLOSE marks; their stamp, '' if they differ
-- and nil if there is none; and whether all have this token.
local function merge_group(leases, k, n, token)
  local all = {ids = '', tombstones = '', close_marks = '', has_token = true}
  for i = k, k + n - 1 do
    local l = leases[i]
    if l then
      all.ids, all.tombstones = merge_ids(all.ids, l.ids), merge_ids(all.tombstones, l.tombstones)
      all.close_marks = merge_marks(all.close_marks, l.close_marks)
      if all.stamp and all.stamp ~= l.stamp then all.stamp = '' elseif all.stamp == nil then all.stamp = l.stamp end
      all.has_token = all.has_token and l.token == token
    end
  end
  return all
end
-- Names a manager to which the end of the lease is published. At most 16 of them are notified; others find out by
-- themselves.
local function leave_wake_mark(key, l, mark)
  if mark == '' or contains(l.wake_marks, '\1' .. mark) then return end
  if select(2, string.gsub(l.wake_marks, '\1', '')) < 16 then redis.call('APPEND', key, '\1' .. mark) end
end
