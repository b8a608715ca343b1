-- After shared_index.lua and lease.lua: reads and writes shared leases. By the digests in the index a caller that asks
-- again finds its lease: 'o' and 15 digits for principal, owner and resources where the owner has a name, and 16 digits
-- for each idempotency key.
-- The wait mark, 'fg:lease:R<tab>wait', refuses new holders while an exclusive request waits. The index outlives it.
local function wait_mark_of(index) return index .. '\twait' end
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
-- Returns the line of a holder in the index, and where it begins and ends; nil if there is none.
local function find_holder(index, nonce)
  local first = string.find(index.holders, '\n' .. nonce, 1, true)
  if not first then return nil end
  local last = (string.find(index.holders, '\n', first + 1, true) or #index.holders + 1) - 1
  return string.sub(index.holders, first, last), first, last
end
local function remove_holder(index, nonce)
  local _, first, last = find_holder(index, nonce)
  if first then index.holders = string.sub(index.holders, 1, first - 1) .. string.sub(index.holders, last + 1) end
end

local read_any = read_lease
-- A shared lease is there only if the index names it. Any other value in the place of the index is another holder's.
local function read_lease(key)
  if not is_shared(key) then return read_any(key) end
  local index = read_index(index_of(key))
  if not index then return redis.call('PTTL', index_of(key)) ~= -2 and FOREIGN or nil end
  return find_holder(index, nonce_of(key)) and read_any(key) or nil
end

local function digest_of(identity) return 'o' .. string.sub(redis.sha1hex(identity), 1, 15) end
-- Names a holder in the index, which lasts at least as long as its lease. It gets more time than that, so that few
-- renewals write it.
local function add_holder(key, l, ttl)
  local place, line = index_of(key), '\n' .. nonce_of(key)
  local index = read_index(place) or {ttl = 0, holders = '', wake_marks = ''}
  if not string.find(l.identity, '^\n[^\n]*\n\n') then line = line .. ' ' .. digest_of(l.identity) end
  for digest in string.gmatch(',' .. l.keys, ',(%x+)') do line = line .. ' ' .. string.sub(digest, 1, 16) end
  local left, is_known = index_time_left(place, index), find_holder(index, nonce_of(key)) == line
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
  local left = ''
  for first, nonce, following in string.gmatch(index.holders, '()\n(%x+)[^\n]*()') do
    local key = place .. '\t' .. nonce
    if redis.call('PTTL', key) ~= -2 then
      time_left(key, read_any(key))
      left = string.sub(index.holders, rotates and following or first)
      if rotates then left = left .. string.sub(index.holders, first, following - 1) end
      break
    end
  end
  if left ~= index.holders then
    index.holders = left
    write_index(place, index)
  end
  return left ~= ''
end
