-- The first part of RELEASE (release.lua follows): deletes the leases of the call, up to the first one that is not the
-- most frequent kind: one resource, one hold, no tombstone, no mark.
-- KEYS and ARGV  those of release.lua
-- Reply if each lease is deleted here: those of release.lua; otherwise none, release.lua goes on with the next lease
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end

-- A value that begins with the caller's nonce and ends with its hold id, or the tentative one, is the caller's lease,
-- so it is not parsed.
local function release_single(k, n, nonce, _, scope, id)
  local text = n == 1 and read_text(KEYS[k], '16384')
  if not text or string.sub(text, -1) ~= '\n' or string.sub(text, 1, 33) ~= nonce .. ' ' then return nil end
  local holds = string.sub(text, -19)
  if holds ~= '\n' .. id .. '\n\n' and (scope == '2' or holds ~= '\n' .. tentative(id) .. '\n\n') then return nil end
  redis.call('DEL', KEYS[k])
  return '0 0 \n' .. id .. '\n'
end

local replies, next_argument, next_key = for_each_lease(1, 5, release_single)
if next_argument > #ARGV then return replies end
