-- After caller.lua: shared leases (docs/protocol.md, SHARED LEASES). The lease of a holder of R has the key
-- 'fg:lease:R<tab>nonce', and 'fg:lease:R' is the index: 'shared ttl', a line for each holder with its nonce and
-- digests, and wake marks as in a lease. By the digests a caller that asks again finds its lease: 'o' and 15 digits for
-- principal, owner and resources where the owner has a name, and 16 digits for each idempotency key.
-- The wait mark, 'fg:lease:R<tab>wait', refuses new holders while an exclusive request waits. The index outlives it.
local WAIT_MS, HOLDERS_MAX = 1000, 1024

local function is_shared(key) return string.byte(key, -33) == 9 end
local function index_of(key) return string.sub(key, 1, -34) end
local function nonce_of(key) return string.sub(key, -32) end
local function wait_mark_of(index) return index .. '\twait' end
-- Returns the index under a key; nil if there is none.
local function read_index(key)
  local text = read_text(key, '1048576')
  local ttl = text and string.match(text, '^shared (%d+)')
  if not ttl then return nil end
  -- To search is much faster than a pattern.
  local first, marks = 8 + #ttl, string.find(text, '\1', 1, true) or #text + 1
  local holders = string.sub(text, first, marks - 1)
  if holders ~= '' and string.byte(holders) ~= 10 then return nil end
  return {ttl = tonumber(ttl), holders = holders, wake_marks = string.sub(text, marks)}
end
local function write_index(key, index, ttl)
  index.ttl = ttl or index.ttl
  local text = 'shared ' .. string.format('%.0f', index.ttl) .. index.holders .. index.wake_marks
  if ttl then redis.call('SET', key, text, 'PX', string.format('%.0f', ttl)) end
  if not ttl then redis.call('SET', key, text, 'KEEPTTL') end
end
-- Returns the time left of an index (docs/protocol.md, CLOCK SET BACK).
local function index_time_left(key, index)
  local left = redis.call('PTTL', key)
  if left <= index.ttl then return left end
  write_index(key, index, index.ttl)
  return index.ttl
end
local function names(index, nonce) return string.find(index.holders, '\n' .. nonce, 1, true) ~= nil end
local function remove_holder(index, nonce)
  local first = string.find(index.holders, '\n' .. nonce, 1, true)
  if not first then return end
  local last = string.find(index.holders, '\n', first + 1, true) or #index.holders + 1
  index.holders = string.sub(index.holders, 1, first - 1) .. string.sub(index.holders, last)
end

local read_any = read_lease
-- A shared lease is there only if the index names it. Any other value in the place of the index is another holder's.
local function read_lease(key)
  if not is_shared(key) then return read_any(key) end
  local index = read_index(index_of(key))
  if not index then return redis.call('PTTL', index_of(key)) ~= -2 and FOREIGN or nil end
  return names(index, nonce_of(key)) and read_any(key) or nil
end

-- Returns whether a key that SCAN found has a lease: neither an index nor a wait mark, nor a shared lease without a
-- place in the index.
local function has_lease(key)
  if is_shared(key) then
    local index = read_index(index_of(key))
    return index ~= nil and names(index, nonce_of(key))
  end
  return string.sub(key, -5) ~= '\twait' and read_index(key) == nil
end

local function digest_of(identity) return 'o' .. string.sub(redis.sha1hex(identity), 1, 15) end
-- Names a holder in the index, which lasts at least as long as its lease. It gets more time than that, so that few
-- renewals write it.
local function add_holder(key, l, ttl)
  local place, line = index_of(key), '\n' .. nonce_of(key)
  local index = read_index(place) or {ttl = 0, holders = '', wake_marks = ''}
  if not string.find(l.identity, '^\n[^\n]*\n\n') then line = line .. ' ' .. digest_of(l.identity) end
  for digest in string.gmatch(',' .. l.keys, ',(%x+)') do line = line .. ' ' .. string.sub(digest, 1, 16) end
  local left, is_known = index_time_left(place, index), string.find(index.holders .. '\n', line .. '\n', 1, true)
  if not is_known then
    remove_holder(index, nonce_of(key))
    index.holders = index.holders .. line
  end
  if left < ttl then write_index(place, index, 2 * ttl) elseif not is_known then write_index(place, index) end
end
local write_any = write_lease
local function write_lease(key, l, ttl)
  write_any(key, l, ttl)
  if ttl and is_shared(key) then add_holder(key, l, ttl) end
end

-- Returns whether a holder in the index has its lease. Removes those before it that have none. With `rotates` it
-- becomes the last, so that repeated calls test them all.
local function has_holders(place, index, rotates)
  local found, before = false, index.holders
  for line, nonce in string.gmatch(before, '(\n(%x+)[^\n]*)') do
    local key = place .. '\t' .. nonce
    found = redis.call('PTTL', key) ~= -2
    if not found or rotates then remove_holder(index, nonce) end
    if found then
      if rotates then index.holders = index.holders .. line end
      time_left(key, read_any(key))
      break
    end
  end
  if index.holders ~= before then write_index(place, index) end
  return found
end
-- Returns the shared lease of the caller that asks again, and its key; nil if the index has none.
local function find_own(place, index, tail)
  local keys, identity = parse_caller(tail)
  for _, digest in ipairs({digest_of(identity), string.match(keys, '^%x+')}) do
    digest = ' ' .. string.sub(digest, 1, 16)
    local at = string.find(index.holders, digest, 1, true)
    while at do
      local key = place .. '\t' .. string.match(string.sub(index.holders, 1, at), '^.*\n(%x+)')
      local l = read_any(key)
      if l and l ~= FOREIGN and is_same_caller(l, keys, identity) then return l, key end
      at = string.find(index.holders, digest, at + 1, true)
    end
  end
end
