-- After call.lua: parses and writes the value of a lease key (docs/protocol.md, "State").
-- A script never fails on a value of another writer: a value of any other type or form is treated as another holder's
-- lease (FOREIGN).
local FOREIGN = {}
-- A lease keeps the newest 8 idempotency keys.
local KEYS_BYTES = 8 * 42 - 1
-- CLOSE marks: 32 digits each, the id of the hold and 16 of the call. CLOSE keeps eight; of a merge the newest 64 are
-- kept.
local MARK_BYTES, MARKS_BYTES = 32, 8 * 8 * 32

-- The second word is the stamp of the lease on this node, `S`, which is its token too, or `S:T` with another token T
-- (0: none yet).
local function parse_lease(text)
  -- A backslash at the end of a line is a line break in the string; to join two strings takes time in each call.
  local nonce, stamp, token, renewals, ttl, held, granted, keys, identity, ids, tombstones, close_marks, wake_marks =
    string.match(text, '^(%x+) (%d+)(:?%d*) (%d+) (%d+) (%d+) (%d+) (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\
([%x,]*)\n([%x,]*)\n([0-9a-f]*)(.*)$')
  if not nonce or #nonce ~= 32 or #stamp > 16 or #token > 17 or token == ':' then return FOREIGN end
  if #renewals > 9 or #ttl > 13 or #held > 13 or #granted > 15 or #keys > KEYS_BYTES then return FOREIGN end
  if string.byte(ttl) == 48 and #ttl > 1 then return FOREIGN end -- Redis takes no time with leading zeros
  if #close_marks % MARK_BYTES ~= 0 or #close_marks > MARKS_BYTES then return FOREIGN end
  if wake_marks ~= '' and string.byte(wake_marks) ~= 1 then return FOREIGN end
  token = token == '' and stamp or string.sub(token, 2)
  return {nonce = nonce, stamp = stamp, token = token, renewals = renewals, ttl = ttl, held = held, granted = granted,
    keys = keys, identity = identity, ids = ids, tombstones = tombstones, close_marks = close_marks,
    wake_marks = wake_marks}
end
-- Returns nil if there is no lease. No lease has more bytes.
local function read_lease(key)
  local text = read_text(key, '16384')
  if text == nil then return nil end
  return text and parse_lease(text) or FOREIGN
end
-- `ttl` in ms, which the lease then has as its ttl; nil keeps the time of the key.
local function write_lease(key, l, ttl)
  if ttl and ttl ~= tonumber(l.ttl) then l.ttl = string.format('%.0f', ttl) end
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
