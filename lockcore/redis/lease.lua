-- Put before each script that reads a lease: a lease as it stands on a node (docs/protocol.md, "State").
-- A script never fails on what others wrote: any value of any type that has not exactly this form is ANOTHERS, somebody else's lease.
local FORM = '^(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\n([%x,]*)\n([%x,]*)\n(%x*)(.*)$'
local ANOTHERS = {}
-- Idempotency keys, and tombstones, that a lease keeps at most: the newest. A tombstone that is gone lets a late HOLD stay until the ttl, no more.
local KEYS_BYTES, TOMBSTONES_BYTES = 8 * 42 - 1, 64 * 17 - 1

local function parse_lease(text)
  local by, token, renewals, ttl, held, granted, keys, who, ids, dead, closed, marks = string.match(text, FORM)
  if not by or #by ~= 32 or #token > 16 or #renewals > 9 or #ttl > 13 or #held > 13 or #granted > 15 or #keys > KEYS_BYTES then return ANOTHERS end
  if marks ~= '' and string.byte(marks) ~= 1 then return ANOTHERS end
  return {by = by, token = token, renewals = renewals, ttl = ttl, held = held, granted = granted, keys = keys, who = who, ids = ids, dead = dead, closed = closed, marks = marks}
end
-- Nil: there is none.
local function read_lease(key)
  local text = redis.pcall('GET', key)
  if not text then return nil end
  return type(text) == 'string' and parse_lease(text) or ANOTHERS
end
-- `ttl` in ms; nil leaves the time that it has.
local function write_lease(key, l, ttl)
  local text = l.by .. ' ' .. l.token .. ' ' .. l.renewals .. ' ' .. l.ttl .. ' ' .. l.held .. ' ' .. l.granted .. ' ' .. l.keys .. l.who
    .. '\n' .. l.ids .. '\n' .. l.dead .. '\n' .. l.closed .. l.marks
  if ttl then redis.call('SET', key, text, 'PX', ttl) else redis.call('SET', key, text, 'KEEPTTL') end
end
-- Nil: the key holds no counter, so this node can neither give nor confirm a token of this bucket.
local function read_counter(key)
  local text = redis.pcall('GET', key)
  if not text then return 0 end
  if type(text) ~= 'string' or #text > 16 or not string.find(text, '^%d+$') then return nil end
  return tonumber(text)
end

-- Ids of holds: 16 digits each, a comma between.
local function has(list, id) return string.find(list, id, 1, true) ~= nil end
local function with_id(list, id)
  if has(list, id) then return list end
  return list == '' and id or list .. ',' .. id
end
local function without_id(list, id)
  if list == id then return '' end
  if not has(list, id) then return list end
  return string.sub(string.gsub(',' .. list .. ',', ',' .. id .. ',', ','), 2, -2)
end
local function merge(list, more)
  if list == '' then return more end
  for id in string.gmatch(more, '%x+') do list = with_id(list, id) end
  return list
end
local function holds_of(l) return l.ids .. '\n' .. l.dead .. '\n' .. l.closed end
-- RELEASE(id), in the lists alone.
local function release_id(l, id)
  l.ids = without_id(l.ids, id)
  l.dead = l.dead == '' and id or string.sub(with_id(l.dead, id), -TOMBSTONES_BYTES)
  if string.sub(l.closed, 1, 16) == id then l.closed = '' end
end
