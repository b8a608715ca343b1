-- In front of each script that reads leases: parses and writes the value of a lease key (docs/protocol.md, "State").
-- A script never fails on a value of another writer: a value of any other type or form is treated as another holder's lease (FOREIGN).
-- The second word is the stamp of the lease on this node, `S`, which is its token too, or `S:T` with another token T (0: none yet).
local FORM = '^(%x+) (%d+)(:?%d*) (%d+) (%d+) (%d+) (%d+) (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\n([%x,]*)\n([%x,]*)\n(%x*)(.*)$'
local FOREIGN = {}
-- A lease keeps the newest 8 idempotency keys and the newest 64 tombstones. Without its tombstone a released hold that a late HOLD adds again
-- stays until the ttl, which is its only effect.
local KEYS_BYTES, TOMBSTONES_BYTES = 8 * 42 - 1, 64 * 17 - 1

local function parse_lease(text)
  local nonce, stamp, token, renewals, ttl, held, granted, keys, identity, ids, tombstones, close_mark, wake_marks = string.match(text, FORM)
  if not nonce or #nonce ~= 32 or #stamp > 16 or #token > 17 or token == ':' or #renewals > 9 or #ttl > 13 or #held > 13 or #granted > 15 or #keys > KEYS_BYTES then return FOREIGN end
  if wake_marks ~= '' and string.byte(wake_marks) ~= 1 then return FOREIGN end
  token = token == '' and stamp or string.sub(token, 2)
  return {nonce = nonce, stamp = stamp, token = token, renewals = renewals, ttl = ttl, held = held, granted = granted, keys = keys, identity = identity, ids = ids, tombstones = tombstones, close_mark = close_mark, wake_marks = wake_marks}
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
-- A lease of several resources has one stamp under all of its keys; '' if they differ, and nil before the first key.
local function join_stamps(stamp, l) return (not stamp or stamp == l.stamp) and l.stamp or '' end
-- The number by which UPGRADE recognizes a lease that does not count: it changes with each loss of the lease and with each admission of the node.
local function version_of(stamp, base) return string.format('%.0f', math.max(tonumber(stamp), base)) end
-- `ttl` in ms; nil keeps the ttl of the key.
local function write_lease(key, l, ttl)
  local stamp = l.token == l.stamp and l.stamp or l.stamp .. ':' .. l.token
  local text = l.nonce .. ' ' .. stamp .. ' ' .. l.renewals .. ' ' .. l.ttl .. ' ' .. l.held .. ' ' .. l.granted .. ' ' .. l.keys .. l.identity
    .. '\n' .. l.ids .. '\n' .. l.tombstones .. '\n' .. l.close_mark .. l.wake_marks
  if ttl then redis.call('SET', key, text, 'PX', ttl) else redis.call('SET', key, text, 'KEEPTTL') end
end
-- `keys` has `digest:id` for the idempotency key of a hold, and `digest;id` once a repeated request has taken the hold over.
local function is_taken_over(l, id) return string.find(l.keys, ';' .. id, 1, true) ~= nil end
local function take_over(key, l, digest, id)
  if is_taken_over(l, id) then return end
  local keys, replaced = string.gsub(l.keys, ':' .. id, ';' .. id)
  if replaced == 0 then keys = keys == '-' and digest .. ';' .. id or string.sub(keys .. ',' .. digest .. ';' .. id, -KEYS_BYTES) end
  l.keys = keys
  write_lease(key, l)
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
