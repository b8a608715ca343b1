-- READ (docs/protocol.md, FAST READMISSION): returns the next page of all leases of a voting node, with their remaining
-- times. Writes no lease.
-- KEYS  fg:node
-- ARGV  run id, base of the first page ('' = this is the first), cursor ('0' = from the start), leases after which a
--       page ends
-- Reply array: base, next cursor ('0' = the end), then for each lease: its name (of a shared one with a tab and its
--       nonce), its PTTL (-1 = no ttl), its value
--       value: '?' if it is no string or longer than a lease can be; any other value of another writer as it is
--       error UNINIT if this is another process, the node is not admitted under this run id and base, or its command
--       marks have changed: all pages must be read again.
-- A name may appear twice. A page has up to 50 more leases than demanded (SCAN), and fewer after 400 other keys, so
-- that it takes less than 1 ms.
-- Why the live run id: the caller saw the node vote before it waited, perhaps on an earlier connection; an older
-- admission may be in the data of a new process.
-- Why atomic: a value and its remaining time are of one moment, and the last page proves that the node voted until its
-- end.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] or node[1] ~= ARGV[1] or (ARGV[2] ~= '' and node[2] ~= ARGV[2]) then
  return redis.error_reply('UNINIT node not admitted')
end
-- Returns whether a key has a lease: neither an index nor a wait mark, nor a shared lease without a place in the index,
-- which is read once for all its holders.
local named = {}
local function has_lease(key)
  if not is_shared(key) then return string.sub(key, -5) ~= '\twait' and read_index(key) == nil end
  local place = index_of(key)
  if not named[place] then
    local index = read_index(place)
    named[place] = {}
    for nonce in string.gmatch(index and index.holders or '', '\n(%x+)') do named[place][nonce] = true end
  end
  return named[place][nonce_of(key)]
end

local out, cursor, found, rounds = {node[2], ''}, ARGV[3], 0, 0
repeat
  local part = redis.call('SCAN', cursor, 'MATCH', 'fg:lease:*', 'COUNT', 50)
  cursor, rounds = part[1], rounds + 1
  for _, key in ipairs(part[2]) do
    if has_lease(key) then
      local text = read_text(key, '16384')
      out[#out + 1] = string.sub(key, 10)
      out[#out + 1] = redis.call('PTTL', key)
      out[#out + 1] = text or '?'
      found = found + 1
    end
  end
until cursor == '0' or found >= tonumber(ARGV[4]) or rounds == 8
out[2] = cursor
return out
