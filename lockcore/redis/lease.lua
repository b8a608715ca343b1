-- In front of each script that reads leases: parses and writes the value of a lease key (docs/protocol.md, "State").
-- A script never fails on a value of another writer: a value of any other type or form is treated as another holder's lease (FOREIGN).
local FORM = '^(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\n([%x,]*)\n([%x,]*)\n(%x*)(.*)$'
local FOREIGN = {}
-- A lease keeps the newest 8 idempotency keys and the newest 64 tombstones. Without its tombstone a released hold that a late HOLD adds again
-- stays until the ttl, which is its only effect.
local KEYS_BYTES, TOMBSTONES_BYTES = 8 * 42 - 1, 64 * 17 - 1

local function parse_lease(text)
  local nonce, token, renewals, ttl, held, granted, keys, identity, ids, tombstones, close_mark, wake_marks = string.match(text, FORM)
  if not nonce or #nonce ~= 32 or #token > 16 or #renewals > 9 or #ttl > 13 or #held > 13 or #granted > 15 or #keys > KEYS_BYTES then return FOREIGN end
  if wake_marks ~= '' and string.byte(wake_marks) ~= 1 then return FOREIGN end
  return {nonce = nonce, token = token, renewals = renewals, ttl = ttl, held = held, granted = granted, keys = keys, identity = identity, ids = ids, tombstones = tombstones, close_mark = close_mark, wake_marks = wake_marks}
end
-- Another writer's value may be large: no more of it is read than a lease can have.
local LEASE_BYTES = 16384
-- Returns the text, at most one byte more than `bytes_max` of it; nil if there is no key, false if its value is no string.
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
-- `ttl` in ms; nil keeps the ttl of the key.
local function write_lease(key, l, ttl)
  local text = l.nonce .. ' ' .. l.token .. ' ' .. l.renewals .. ' ' .. l.ttl .. ' ' .. l.held .. ' ' .. l.granted .. ' ' .. l.keys .. l.identity
    .. '\n' .. l.ids .. '\n' .. l.tombstones .. '\n' .. l.close_mark .. l.wake_marks
  if ttl then redis.call('SET', key, text, 'PX', ttl) else redis.call('SET', key, text, 'KEEPTTL') end
end
-- Returns nil if the value is no counter: this node can then neither grant nor confirm a token of the bucket.
local function read_counter(key)
  local text = read_text(key, 16)
  if text == nil then return 0 end
  if not text or #text > 16 or not string.find(text, '^%d+$') then return nil end
  return tonumber(text)
end

-- Lists of hold ids: 16 digits each, separated by commas.
local function contains(list, id) return string.find(list, id, 1, true) ~= nil end
local function add_id(list, id)
  if contains(list, id) then return list end
  return list == '' and id or list .. ',' .. id
end
local function remove_id(list, id)
  if list == id then return '' end
  if not contains(list, id) then return list end
  return string.sub(string.gsub(',' .. list .. ',', ',' .. id .. ',', ','), 2, -2)
end
local function merge_ids(list, more)
  if list == '' then return more end
  for id in string.gmatch(more, '%x+') do list = add_id(list, id) end
  return list
end
local function format_holds(l) return l.ids .. '\n' .. l.tombstones .. '\n' .. l.close_mark end
-- Removes the hold from the live ids and adds its tombstone; changes only the table.
local function release_id(l, id)
  l.ids = remove_id(l.ids, id)
  l.tombstones = l.tombstones == '' and id or string.sub(add_id(l.tombstones, id), -TOMBSTONES_BYTES)
  if string.sub(l.close_mark, 1, 16) == id then l.close_mark = '' end
end
