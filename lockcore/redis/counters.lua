-- After call.lua: reads counters.
-- Returns the effective counter of n counter keys: the highest of the base and the counters; nil if the value of one is
-- no counter: this node can then neither grant nor confirm a token of its bucket.
local function read_counters(k, n, base)
  local highest = base
  for i = k, k + n - 1 do
    local text = read_text(KEYS[i], '16')
    if text == false or (text and not string.find(text, '^%d+$')) then return nil end
    highest = math.max(highest, tonumber(text or 0))
  end
  return highest
end
