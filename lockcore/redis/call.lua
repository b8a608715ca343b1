-- In front of each script about leases: reads values, and runs a command for each lease of the call.
-- Redis runs the whole text in each call. There a function costs some 0.1 µs, and so does each local variable outside
-- of a function that one of them uses. So a script begins with what most calls need, and what is used by one function
-- is inside of it.

-- Returns the text; nil if there is no key, false if its value is no string or has more than `bytes_max` bytes: another
-- writer's value may be large. (Redis converts a number slowly, so GETRANGE gets strings.)
local function read_text(key, bytes_max)
  local text = redis.pcall('GETRANGE', key, '0', bytes_max)
  if type(text) ~= 'string' then
    if string.find(text.err, '^WRONGTYPE') then return false end
    error(text)
  end
  if text == '' and redis.call('PTTL', key) == -2 then return nil end
  return #text <= tonumber(bytes_max) and text
end

-- A hold with an idempotency key has two ids (docs/protocol.md, HOLDS): the tentative one, an even number, which its
-- first request sends and undoes, and the confirmed one, the next number, which its callers get. They are one hold, so
-- a list has at most one of them, and the confirmed one replaces the other.
local function tentative(id)
  local digit = tonumber(string.sub(id, 16), 16) or 0 -- 0: another writer's id is shorter
  return string.sub(id, 1, 15) .. string.format('%x', digit - digit % 2)
end

-- Runs a command for each lease of the call from ARGV[a] and KEYS[k] on, until it returns nil. A lease has `keys` keys
-- for each resource and `count` arguments, of which the first is the number of its resources. The command gets the
-- index of its first key, and its arguments. Adds the replies, and returns them with the place of the next lease.
local function for_each_lease(keys, count, command, replies, a, k)
  replies, a, k = replies or {}, a or 2, k or 2
  while a <= #ARGV do
    local n = tonumber(ARGV[a])
    local reply = command(k, n, unpack(ARGV, a + 1, a + count - 1))
    if not reply then break end
    replies[#replies + 1] = reply
    k, a = k + keys * n, a + count
  end
  return replies, a, k
end
