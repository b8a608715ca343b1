-- After call.lua: reads the index of shared leases (docs/protocol.md, SHARED LEASES). The lease of a holder of R has
-- the key 'fg:lease:R<tab>nonce', and 'fg:lease:R' is the index: 'shared ttl', a line for each holder with its nonce
-- and digests, and wake marks as in a lease.
local function is_shared(key) return string.byte(key, -33) == 9 end
local function index_of(key) return string.sub(key, 1, -34) end
local function nonce_of(key) return string.sub(key, -32) end
-- Returns the index under a key; nil if there is none: most other values have other first bytes.
local function read_index(key)
  if redis.pcall('GETRANGE', key, '0', '6') ~= 'shared ' then return nil end
  local text = read_text(key, '1048576')
  local ttl = text and string.match(text, '^shared ([1-9]%d*)')
  if not ttl or #ttl > 13 then return nil end -- a time that Redis does not take
  -- To search is much faster than a pattern.
  local first, marks = 8 + #ttl, string.find(text, '\1', 1, true) or #text + 1
  local holders = string.sub(text, first, marks - 1)
  if holders ~= '' and string.byte(holders) ~= 10 then return nil end
  return {ttl = tonumber(ttl), holders = holders, wake_marks = string.sub(text, marks)}
end
