-- After shared.lua and caller.lua: recognizes a caller that asks again for what it shares.
-- Returns the shared lease of the caller, and its key; nil if the index has none.
local function find_own(place, index, tail)
  local keys, identity = parse_caller(tail)
  for _, digest in ipairs({digest_of(identity), string.match(keys, '^%x+')}) do
    digest = ' ' .. string.sub(digest, 1, 16)
    local at = string.find(index.holders, digest, 1, true)
    while at do
      local key = place .. '\t' .. (string.match(string.sub(index.holders, 1, at), '^.*\n(%x+)') or '')
      local l = read_any(key)
      if l and l ~= FOREIGN and is_same_caller(l, keys, identity) then return l, key end
      at = string.find(index.holders, digest, at + 1, true)
    end
  end
end
